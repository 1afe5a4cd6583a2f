//! How requests prove who sends them. Where authentication is off, none has to.

use axum::http::StatusCode;
use utoipa::{
    Modify,
    openapi::{
        OpenApi, Ref,
        path::{Operation, PathItem},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::problems::name;

const BEARER: &str = "bearer";
const CERTIFICATE: &str = "certificate";

/// Every operation is behind the same door.
pub struct Access;

impl Modify for Access {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token of `--tokens-file`, or a JWT."))
            .build();
        components.security_schemes.insert(BEARER.into(), SecurityScheme::Http(bearer).into());
        let description = Some("A certificate that `--tls-client-ca` has signed.".into());
        let certificate =
            SecurityScheme::MutualTls { description, deprecated: None, extensions: None };
        components.security_schemes.insert(CERTIFICATE.into(), certificate.into());
        // The empty one: it depends on the server's settings whether anything is asked for.
        let none: [&str; 0] = [];
        document.security = Some(vec![
            SecurityRequirement::default(),
            SecurityRequirement::new(BEARER, none),
            SecurityRequirement::new(CERTIFICATE, none),
        ]);
        for item in document.paths.paths.values_mut() {
            operations(item).for_each(add_refusals);
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().flatten()
}

fn add_refusals(operation: &mut Operation) {
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        let reference = Ref::from_response_name(name(status)).into();
        operation.responses.responses.insert(status.as_str().into(), reference);
    }
}
