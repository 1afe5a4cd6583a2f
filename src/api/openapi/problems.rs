//! How requests fail: one response for each status, made from the kinds of problem that have it.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use utoipa::{
    IntoResponses, Modify,
    openapi::{
        AllOf, Content, Object, ObjectBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder,
        Schema, Type, header::Header,
    },
};

use super::modifiers::header_ref;
use crate::api::problem::Kind;

type Responses = BTreeMap<String, RefOr<Response>>;

/// What any request can meet.
pub struct RequestProblems;

/// What any request can meet that asks the store.
pub struct ReadProblems;

/// A read of a value, which may be a fenced one.
pub struct ValueProblems;

/// A write, a delete or a claim of one key.
pub struct WriteProblems;

/// A write that expects a version.
pub struct PreconditionProblems;

/// A request with a body.
pub struct BodyProblems;

/// Several writes as one.
pub struct BatchProblems;

/// What any request about locks can meet.
pub struct LockProblems;

/// What can be had in several forms.
pub struct FormProblems;

/// What only happens to somebody who has no lock yet.
pub struct AcquireProblems;

/// What only happens to somebody who has one.
pub struct HolderProblems;

impl IntoResponses for RequestProblems {
    fn responses() -> Responses {
        of_request([StatusCode::BAD_REQUEST, StatusCode::TOO_MANY_REQUESTS])
    }
}

impl IntoResponses for ReadProblems {
    fn responses() -> Responses {
        of_request([
            StatusCode::BAD_REQUEST,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ])
    }
}

impl IntoResponses for ValueProblems {
    fn responses() -> Responses {
        of_request([
            StatusCode::NOT_FOUND,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::CONFLICT,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNPROCESSABLE_ENTITY,
            StatusCode::GATEWAY_TIMEOUT,
        ])
    }
}

impl IntoResponses for WriteProblems {
    fn responses() -> Responses {
        of_request([
            StatusCode::BAD_REQUEST,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::CONFLICT,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNPROCESSABLE_ENTITY,
            StatusCode::PRECONDITION_REQUIRED,
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ])
    }
}

impl IntoResponses for PreconditionProblems {
    fn responses() -> Responses {
        of_request([StatusCode::PRECONDITION_FAILED])
    }
}

impl IntoResponses for BodyProblems {
    fn responses() -> Responses {
        of_request([
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ])
    }
}

impl IntoResponses for BatchProblems {
    fn responses() -> Responses {
        let mut responses = WriteProblems::responses();
        responses.extend(REFUSALS.map(|status| {
            (status.as_str().to_owned(), Ref::from_response_name(name_in_batch(status)).into())
        }));
        responses
    }
}

impl IntoResponses for LockProblems {
    fn responses() -> Responses {
        let mut responses = ReadProblems::responses();
        responses.extend(of_lock([StatusCode::NOT_FOUND]));
        responses
    }
}

impl IntoResponses for FormProblems {
    fn responses() -> Responses {
        of_request([StatusCode::NOT_ACCEPTABLE])
    }
}

impl IntoResponses for AcquireProblems {
    fn responses() -> Responses {
        let mut responses = of_request([StatusCode::LOCKED, StatusCode::NOT_ACCEPTABLE]);
        responses.extend(of_lock([StatusCode::CONFLICT]));
        responses
    }
}

impl IntoResponses for HolderProblems {
    fn responses() -> Responses {
        let mut responses = of_request([
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::PRECONDITION_REQUIRED,
        ]);
        responses.extend(of_lock([StatusCode::CONFLICT]));
        responses
    }
}

/// The statuses of writes that the fence, or the precondition behind it, has refused.
const REFUSALS: [StatusCode; 3] =
    [StatusCode::CONFLICT, StatusCode::PRECONDITION_FAILED, StatusCode::UNPROCESSABLE_ENTITY];

fn of_request<const N: usize>(statuses: [StatusCode; N]) -> Responses {
    let reference = |status| Ref::from_response_name(name(status)).into();
    statuses.map(|status| (status.as_str().to_owned(), reference(status))).into()
}

/// Those that speak of a lock have no headers of a resource.
fn of_lock<const N: usize>(statuses: [StatusCode; N]) -> Responses {
    let reference = |status| Ref::from_response_name(name_of_lock(status)).into();
    statuses.map(|status| (status.as_str().to_owned(), reference(status))).into()
}

/// `BadRequest` for 400.
pub fn name(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().replace(' ', "")
}

fn name_in_batch(status: StatusCode) -> String {
    format!("Batch{}", name(status))
}

fn name_of_lock(status: StatusCode) -> String {
    format!("Lock{}", name(status))
}

/// What the names above refer to.
pub struct ProblemResponses;

impl Modify for ProblemResponses {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::MethodNotAllowed) {
            let status = kind.status();
            components.responses.insert(name(status), response(status).into());
        }
        for status in REFUSALS {
            let response = response_in_batch(status).into();
            components.responses.insert(name_in_batch(status), response);
        }
        for kinds in [&[Kind::NotFound][..], &[Kind::StaleToken, Kind::LockLost]] {
            let status = kinds[0].status();
            let response = problem_response(kinds, members(status, kinds));
            components.responses.insert(name_of_lock(status), response.into());
        }
    }
}

/// The problems of one status.
fn response(status: StatusCode) -> Response {
    let kinds = kinds(status);
    let mut response = problem_response(&kinds, members(status, &kinds));
    let headers = &mut response.headers;
    if status == StatusCode::NOT_FOUND || REFUSALS.contains(&status) {
        headers.insert("X-Fencing-Mark".into(), header_ref("X-Fencing-Mark"));
    }
    if REFUSALS.contains(&status) {
        headers.insert("ETag".into(), header_ref("ETag"));
    }
    if status == StatusCode::UNAUTHORIZED {
        let mut how = Header::new(ObjectBuilder::new().schema_type(Type::String).build());
        how.description = Some("How to prove who asks".into());
        headers.insert("WWW-Authenticate".into(), how.into());
    }
    let later =
        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS, StatusCode::LOCKED];
    if later.contains(&status) {
        let mut seconds = Header::new(ObjectBuilder::new().schema_type(Type::Integer).build());
        seconds.description = Some("In how many seconds to try again".into());
        headers.insert("Retry-After".into(), seconds.into());
    }
    response
}

/// The same for a batch, which has no headers of one key but says which write it was.
fn response_in_batch(status: StatusCode) -> Response {
    let kinds = kinds(status);
    let mut members = members(status, &kinds);
    members.required.push("index".into());
    problem_response(&kinds, members)
}

fn problem_response(kinds: &[Kind], members: Object) -> Response {
    let mut schema = AllOf::new();
    schema.items.push(Ref::from_schema_name("Problem").into());
    schema.items.push(Schema::Object(members).into());
    let content = Content::new(Some(Schema::AllOf(schema)));
    ResponseBuilder::new()
        .description(description(kinds))
        .content("application/problem+json", content)
        .build()
}

/// What a request about resources can meet. Only a lock can be lost.
fn kinds(status: StatusCode) -> Vec<Kind> {
    let all = Kind::ALL.into_iter().filter(|kind| *kind != Kind::LockLost);
    all.filter(|kind| kind.status() == status).collect()
}

fn description(kinds: &[Kind]) -> String {
    let lines = kinds.iter().map(|kind| format!("`{}`: {}", kind.name(), kind.title()));
    lines.collect::<Vec<_>>().join("  \n")
}

/// What the status says of the problem's members.
fn members(status: StatusCode, kinds: &[Kind]) -> Object {
    let types = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(kinds.iter().map(|kind| kind.urn())));
    let status =
        ObjectBuilder::new().schema_type(Type::Integer).enum_values(Some([status.as_u16()]));
    ObjectBuilder::new().property("type", types).property("status", status).build()
}
