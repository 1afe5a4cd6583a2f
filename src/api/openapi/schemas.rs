//! What the types of bodies cannot say by themselves.

use utoipa::{
    Modify, ToSchema,
    openapi::{
        AllOf, Object, ObjectBuilder, OneOf, OpenApi, Ref, RefOr, Schema, Type,
        schema::{AnyOf, SchemaType},
    },
};

use crate::api::problem::Kind;

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
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("What went wrong, for a program to tell."))
        .enum_values(Some(Kind::ALL.map(Kind::urn)))
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
