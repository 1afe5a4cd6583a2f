//! What the types of bodies cannot say by themselves.

use utoipa::{
    Modify, ToSchema,
    openapi::{
        AllOf, Object, ObjectBuilder, OneOf, OpenApi, Ref, RefOr, Schema, Type,
        schema::{AnyOf, SchemaType},
    },
};

use crate::{
    api::problem::Kind,
    metrics::{DecidedBy, Label, Reason},
};

/// A version as headers carry it: a strong ETag.
#[derive(ToSchema)]
#[schema(as = ETag, pattern = r#"^"[1-9][0-9]{0,18}"$"#, example = "\"3\"")]
pub struct Etag(#[expect(dead_code, reason = "a description")] String);

/// The only form of `If-None-Match` that a write can have: there is no value yet.
#[derive(ToSchema)]
pub enum AnyVersion {
    #[schema(rename = "*")]
    Any,
}

/// A key, percent-encoded as in a path.
#[derive(ToSchema)]
#[schema(pattern = r"^([\t -$&-~]|%[0-9A-Fa-f]{2})+$", example = "orders/42")]
pub struct EncodedKey(#[expect(dead_code, reason = "a description")] String);

/// Every `type` of problem there is.
pub fn problem_types() -> Object {
    let mut types = Kind::ALL.map(Kind::urn).to_vec();
    // Two neighbours share one.
    types.dedup();
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("What went wrong, for a program to tell."))
        .enum_values(Some(types))
        .build()
}

/// Why a write can be refused.
pub fn reasons() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("The type of the problem that it was answered with."))
        .enum_values(Some(Reason::all().map(Reason::name)))
        .build()
}

/// Days that there are, so that a client made from this sends none that is refused: months of 31 and 30 days,
/// February, and February 29 of leap years (2000 was one, 2100 is out of range).
const DAY: &str = "(19[7-9]|20[0-9])[0-9]-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])\
                   |(19[7-9]|20[0-9])[0-9]-(0[469]|11)-(0[1-9]|[12][0-9]|30)\
                   |(19[7-9]|20[0-9])[0-9]-02-(0[1-9]|1[0-9]|2[0-8])\
                   |(19(7[26]|8[048]|9[26])|20([02468][048]|[13579][26]))-02-29";
/// Also a leap second, at any minute.
const TIME: &str = "([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]{1,9})?";
/// Up to a hundred years: each part is at most a quarter of that.
const AGO: &str = "[1-9][0-9]{0,3}d([1-9][0-9]{0,4}h)?([1-9][0-9]{0,6}m)?([1-9][0-9]{0,7}s)?([1-9][0-9]{0,9}ms)?\
                   |[1-9][0-9]{0,4}h([1-9][0-9]{0,6}m)?([1-9][0-9]{0,7}s)?([1-9][0-9]{0,9}ms)?\
                   |[1-9][0-9]{0,6}m([1-9][0-9]{0,7}s)?([1-9][0-9]{0,9}ms)?\
                   |[1-9][0-9]{0,7}s([1-9][0-9]{0,9}ms)?\
                   |[1-9][0-9]{0,9}ms";

/// A moment in UTC, or how long ago it was.
pub fn since() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(format!("^({AGO})$|^({DAY})T{TIME}(Z|\\+00:00)$")))
        .examples(["5m", "2026-01-31T12:00:00Z"])
        .build()
}

/// Who can refuse one.
pub fn judges() -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("Who refused it: a mark in memory, the store, or the parser."))
        .enum_values(Some(DecidedBy::ALL.iter().map(|judge| judge.name())))
        .build()
}

/// The precondition of a batch's write.
pub fn version_or_etag() -> Schema {
    let description = "Only write at this version: 3, or its ETag as a header carries it.";
    let version = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(9_223_372_036_854_775_807_isize));
    let mut either = OneOf::new();
    either.description = Some(description.into());
    either.items.extend([
        Schema::Object(version.build()).into(),
        Ref::from_schema_name(Etag::name()).into(),
        Schema::Object(Object::with_type(Type::Null)).into(),
    ]);
    Schema::OneOf(either)
}

/// A batch's write has exactly one of three changes, and at most one precondition. The type alone
/// does not say so: its parser does.
pub struct OneChangePerWrite;

impl Modify for OneChangePerWrite {
    fn modify(&self, document: &mut OpenApi) {
        let schemas = &mut document.components.get_or_insert_default().schemas;
        let Some(write) = schemas.remove("BatchWrite") else { return };
        let mut change = OneOf::new();
        change.items.extend([
            member("value", Object::with_type(SchemaType::AnyValue), true),
            member("value_base64", Object::with_type(Type::String), true),
            member("delete", only_true(), true),
        ]);
        let mut precondition = AnyOf::new();
        precondition.items.extend([
            member("if_match", Object::with_type(Type::Null), false),
            member("if_none_match", Object::with_type(Type::Null), false),
        ]);
        let mut all = AllOf::new();
        all.items.extend([write, Schema::OneOf(change).into(), Schema::AnyOf(precondition).into()]);
        schemas.insert("BatchWrite".into(), Schema::AllOf(all).into());
    }
}

pub fn only_true() -> Object {
    ObjectBuilder::new().schema_type(Type::Boolean).enum_values(Some([true])).build()
}

fn member(name: &str, schema: Object, required: bool) -> RefOr<Schema> {
    let mut object = ObjectBuilder::new().property(name, schema);
    if required {
        object = object.required(name);
    }
    Schema::Object(object.build()).into()
}
