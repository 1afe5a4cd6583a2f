//! The contract as an OpenAPI 3.1 document, made from the code that keeps it.
//!
//! Each handler says what is its own. What several share is here: `parameters.rs` has what requests
//! carry, `problems.rs` how they fail, `schemas.rs` what the types of bodies cannot say by
//! themselves, `modifiers.rs` what is true of many operations, and `access.rs` who may ask.

mod access;
mod modifiers;
mod parameters;
mod problems;
mod schemas;

use std::sync::LazyLock;

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use utoipa::OpenApi;

use self::{
    access::Access,
    modifiers::{FencingHeaders, HeadLikeGet},
    problems::ProblemResponses,
    schemas::{EncodedKey, Etag, OneChangePerWrite},
};
pub use self::{
    parameters::{
        HolderHeaders, KeyInPath, NameInPath, OwnerHeader, PageQuery, Preconditions, ReadHeaders,
        RejectionsQuery, WriteHeaders,
    },
    problems::{
        AcquireProblems, BatchProblems, BodyProblems, FormProblems, HolderProblems, LockProblems,
        PreconditionProblems, ReadProblems, RequestProblems, ValueProblems, WriteProblems,
    },
    schemas::{AnyVersion, judges, problem_types, reasons, version_or_etag},
};
use super::{batch, listing, locks, marks, problem, rejections, resources};
use crate::{
    token::{Key, Seq, Token, Version},
    write::Rule,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Fencepost",
        description = include_str!("openapi/description.md"),
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "http://127.0.0.1:7420", description = "Where it listens by default")),
    tags(
        (name = "resources", description = "Values, each behind its key's mark"),
        (name = "marks", description = "The highest token that each key has seen"),
        (name = "batch", description = "Several writes as one"),
        (name = "locks", description = "Who may write, and the token to write with"),
        (name = "rejections", description = "What was refused, and why"),
        (name = "about", description = "This document"),
    ),
    paths(
        listing::list,
        resources::put,
        resources::get,
        resources::delete,
        marks::get,
        marks::put,
        batch::post,
        locks::list::get,
        locks::inspect::get,
        locks::acquire::post,
        locks::holder::renew,
        locks::holder::release,
        rejections::get,
        get,
    ),
    components(schemas(
        Key, Token, Seq, Version, Rule, AnyVersion, EncodedKey, Etag, problem::Document,
    )),
    modifiers(&ProblemResponses, &Access, &FencingHeaders, &OneChangePerWrite, &HeadLikeGet),
)]
struct Document;

/// This document
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "about",
    operation_id = "getOpenApi",
    responses(
        (status = 200, description = "OpenAPI 3.1", body = serde_json::Value),
        RequestProblems,
    )
)]
pub fn get() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], document_text()).into_response()
}

/// As it is served, printed and committed.
pub fn document_text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let json = Document::openapi().to_pretty_json();
        json.expect("a document of strings and numbers can be serialized") + "\n"
    });
    &TEXT
}
