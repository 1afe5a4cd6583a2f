//! `/v1/resources/{key}`: write, delete, read.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Api, caller, content_type, extract,
    named::{Name, Named},
    openapi,
    outcome::{fenced_read, read, settle, with_fencing},
    problem::{Kind, Problem},
    render,
    weighed::{Counted, ValueRoom},
};
use crate::{
    fence::Standing,
    token::{Key, Version},
    write::{Change, Value},
};

pub const PREFIX: &str = "/v1/resources/";

/// What a write leaves behind.
#[derive(Serialize, ToSchema)]
struct Written<'a> {
    key: &'a Key,
    version: Version,
    /// The key's mark.
    #[schema(minimum = 1, example = 33)]
    token: i64,
}

/// Write a resource
///
/// The bytes and their `Content-Type` are kept as they are sent, 1 MiB at most unless `--max-body`
/// says otherwise.
#[utoipa::path(
    put,
    path = "/v1/resources/{key}",
    tag = "resources",
    operation_id = "putResource",
    params(openapi::KeyInPath, openapi::WriteHeaders, openapi::Preconditions),
    request_body(description = "Any bytes, of any type", content(("*/*", example = json!("paid")))),
    responses(
        (status = 200, description = "Replaced, or a replay of the write that did", body = Written),
        (
            status = 201, description = "Created, or a replay of the write that did", body = Written,
            links(
                ("read" = (
                    operation_id = "getResource",
                    parameters(("key" = "$request.path.key")),
                )),
                ("delete" = (
                    operation_id = "deleteResource",
                    parameters(
                        ("key" = "$request.path.key"),
                        ("X-Fencing-Token" = "$request.header.X-Fencing-Token"),
                    ),
                )),
            ),
        ),
        openapi::WriteProblems,
        openapi::PreconditionProblems,
        openapi::BodyProblems,
    )
)]
pub async fn put(
    State(api): State<Api>,
    request: Request,
    named: Named,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    // The body is taken off the wire even if the headers are no good: an answer that arrives while
    // the client is still sending may be lost.
    let body = api.receive(&parts, body).await;
    let key = extract::key(&parts.uri, PREFIX)?;
    let mut write = extract::write(&api, key, &parts.headers, named, Change::Claim)?;
    let content_type =
        content_type::of_request(&parts.headers, named).map_err(|problem| problem.of(&write))?;
    let body = body.map_err(|problem| problem.of(&write))?.into_bytes();
    write.change = Change::Put(Value { body, content_type });
    let key = write.key.clone();
    let permit = api.access(&parts.extensions).write(&write)?;
    let engine = api.guarded.engine(permit);
    let judgement = settle(engine, write, caller::of(&parts.extensions)).await?;
    let status = if judgement.key.created { StatusCode::CREATED } else { StatusCode::OK };
    let written =
        Written { key: &key, version: judgement.key.version, token: judgement.key.mark.token };
    Ok(with_fencing(render::json(status, &written), &judgement))
}

/// Delete a resource
///
/// The value goes; the mark stays and rises, also where there was no value.
#[utoipa::path(
    delete,
    path = "/v1/resources/{key}",
    tag = "resources",
    operation_id = "deleteResource",
    params(openapi::KeyInPath, openapi::WriteHeaders, openapi::Preconditions),
    responses(
        (status = 204, description = "Deleted, or there was nothing to delete"),
        openapi::WriteProblems,
        openapi::PreconditionProblems,
    )
)]
pub async fn delete(
    State(api): State<Api>,
    request: Request,
    named: Named,
) -> Result<Response, Problem> {
    let key = extract::key(request.uri(), PREFIX)?;
    let write = extract::write(&api, key, request.headers(), named, Change::Delete)?;
    let permit = api.access(request.extensions()).write(&write)?;
    let engine = api.guarded.engine(permit);
    let judgement = settle(engine, write, caller::of(request.extensions())).await?;
    Ok(with_fencing(render::empty(StatusCode::NO_CONTENT), &judgement))
}

/// Read a resource
///
/// With `X-Fencing-Token` it is a fenced read: it claims the key, then reads, so that no older
/// holder can write in between. Without one it changes nothing, and protects nothing.
#[utoipa::path(
    get,
    path = "/v1/resources/{key}",
    tag = "resources",
    operation_id = "getResource",
    params(openapi::KeyInPath, openapi::ReadHeaders),
    responses(
        (status = 200, description = "The bytes, with the type they were written with", content(("*/*"))),
        (status = 304, description = "The version is one that `If-None-Match` names"),
        openapi::ReadProblems,
        openapi::ValueProblems,
    )
)]
pub async fn get(
    State(api): State<Api>,
    request: Request,
    named: Named,
) -> Result<Response, Problem> {
    let headers = request.headers();
    let key = extract::key(request.uri(), PREFIX)?;
    let claim = extract::fenced_read(&key, headers, named)?;
    let known = versions_known_to(headers, named)?;
    let access = api.access(request.extensions());
    let mut room = ValueRoom::new(&api.limits, access.identity());
    let is_known = |standing: &Standing| known.contains(standing.version);
    let (standing, value) = match claim {
        None => {
            let engine = api.guarded.engine(access.read(&key)?);
            read(engine, &key, is_known, &mut room).await?
        }
        Some(claim) => {
            let engine = api.guarded.engine(access.fenced_read(&claim)?);
            let caller = caller::of(request.extensions());
            fenced_read(engine, claim, caller, is_known, &mut room).await?
        }
    };
    if !standing.present {
        return Err(Problem::no_value(&key, &standing));
    }
    let mut response = match value.filter(|_| !is_known(&standing)) {
        Some(value) => value_response(value, room),
        None => render::empty(StatusCode::NOT_MODIFIED),
    };
    render::fencing_headers(response.headers_mut(), &standing);
    Ok(response)
}

/// The value counts from before it was fetched until its client has taken it.
fn value_response(value: Value, room: ValueRoom<'_>) -> Response {
    let content_type = HeaderValue::try_from(value.content_type)
        .unwrap_or(HeaderValue::from_static(content_type::BYTES));
    let mut headers = render::headers();
    headers.insert(header::CONTENT_TYPE, content_type);
    // Stored bytes are data. A browser must not take them for a page of this server.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let nothing = HeaderValue::from_static("sandbox; default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, nothing);
    let mut response = match room.of(&value.body) {
        None => Response::new(Body::from(value.body)),
        Some(counted) => {
            let mut response = Response::new(Body::from(counted));
            response.extensions_mut().insert(Counted);
            response
        }
    };
    *response.headers_mut() = headers;
    response
}

/// What a reader says it already has, in `If-None-Match`.
enum Known {
    Nothing,
    Anything,
    Versions(Vec<Version>),
}

impl Known {
    fn contains(&self, version: Version) -> bool {
        match self {
            Self::Nothing => false,
            Self::Anything => true,
            Self::Versions(versions) => versions.contains(&version),
        }
    }
}

/// A list of ETags, weak or strong: on a read the comparison is weak. An ETag that this server
/// never gave out matches nothing.
fn versions_known_to(headers: &HeaderMap, named: Named) -> Result<Known, Problem> {
    if !named.has(Name::Condition) {
        return Ok(Known::Nothing);
    }
    if headers.contains_key(header::IF_MATCH) {
        let detail = "If-Match is for writes; a read can have If-None-Match";
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    let mut versions = Vec::new();
    for value in headers.get_all(header::IF_NONE_MATCH) {
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Known::Anything);
        }
        for etag in text.split(',') {
            let etag = etag.trim();
            versions.extend(extract::version_of(etag.strip_prefix("W/").unwrap_or(etag)));
        }
    }
    Ok(if versions.is_empty() { Known::Nothing } else { Known::Versions(versions) })
}
