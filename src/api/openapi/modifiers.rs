//! What is true of many operations, added to each of them.

use utoipa::{
    Modify, ToSchema,
    openapi::{
        ObjectBuilder, OpenApi, Ref, RefOr, Response, Schema, Type,
        extensions::Extensions,
        header::{Header, HeaderBuilder},
        path::{Operation, PathItem},
    },
};

use super::schemas::{Etag, only_true};

pub fn header_ref(name: &str) -> RefOr<Header> {
    RefOr::Ref(Ref::new(format!("#/components/headers/{name}")))
}

/// The answers about one key carry its mark and the ETag of its value.
pub struct FencingHeaders;

impl Modify for FencingHeaders {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        components.headers.extend(fencing_headers());
        let items = document.paths.paths.iter_mut();
        for (_, item) in items.filter(|(path, _)| path.ends_with("{key}")) {
            for write in [&mut item.put, &mut item.delete].into_iter().flatten() {
                add_headers(write, &["X-Fencing-Mark", "ETag", "X-Fencing-Replay"]);
            }
            if let Some(read) = &mut item.get {
                add_headers(read, &["X-Fencing-Mark", "ETag"]);
            }
        }
    }
}

fn fencing_headers() -> [(String, RefOr<Header>); 3] {
    let header = |schema: RefOr<Schema>, description: &str| {
        HeaderBuilder::new().schema(Some(schema)).description(Some(description))
    };
    let mark = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build();
    let mark = header(mark.into(), "The key's mark after the request.")
        // `Header` has no such member, though OpenAPI does.
        .extensions(Some(Extensions::from_iter([("required", true)])));
    let etag = header(
        Ref::from_schema_name(Etag::name()).into(),
        "The version of the key's value, where there is one.",
    );
    let replay = header(
        only_true().into(),
        "There if this write had been accepted before, and was not written again.",
    );
    [("X-Fencing-Mark", mark), ("ETag", etag), ("X-Fencing-Replay", replay)]
        .map(|(name, header)| (name.to_owned(), header.build().into()))
}

/// To what is not a problem; those have theirs already.
fn add_headers(operation: &mut Operation, names: &[&str]) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        // After a delete there is no value.
        let names = names.iter().filter(|name| !(status == "204" && **name == "ETag"));
        response.headers.extend(names.map(|name| ((*name).to_owned(), header_ref(name))));
    }
}

/// Whatever can be got can also be asked for without its body.
pub struct HeadLikeGet;

impl Modify for HeadLikeGet {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default().responses.clone();
        let resolve = |response: &RefOr<Response>| match response {
            RefOr::T(response) => Some(response.clone()),
            RefOr::Ref(reference) => {
                let name = reference.ref_location.rsplit('/').next()?;
                match components.get(name)? {
                    RefOr::T(response) => Some(response.clone()),
                    RefOr::Ref(_) => None,
                }
            }
        };
        for item in document.paths.paths.values_mut() {
            let PathItem { get: Some(get), head, .. } = item else { continue };
            let mut operation = get.clone();
            operation.operation_id = get.operation_id.as_ref().map(|id| format!("{id}Head"));
            operation.summary =
                get.summary.as_ref().map(|summary| format!("{summary}: the headers only"));
            operation.description = None;
            for response in operation.responses.responses.values_mut() {
                let Some(mut bare) = resolve(response) else { continue };
                bare.content.clear();
                *response = bare.into();
            }
            *head = Some(operation);
        }
    }
}
