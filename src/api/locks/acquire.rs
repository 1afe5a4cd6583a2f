//! `POST /v1/locks/{name}`: take a lock, or wait for one's turn.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{hold, milliseconds};
use crate::{
    api::{
        Api, FENCING_TOKEN,
        accept::{self, Form},
        content_type, extract, openapi,
        problem::{Kind, Problem},
        render,
    },
    auth::{access::Subject, policy::Right},
    authority::Grant,
    locks::{Acquired, Wish},
    token::{Key, Token},
};

const DEFAULT_TTL_MS: u64 = 30_000;
const MIN_TTL_MS: u64 = 1_000;
const MAX_TTL_MS: u64 = 3_600_000;
const MAX_WAIT_MS: u64 = 600_000;
const MAX_OWNER_BYTES: usize = 256;

/// How to hold the lock. Every member may be left out, and so may the whole body.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LockRequest)]
struct Terms<'a> {
    // Each is taken apart by itself, so that a mistake can be told by its name.
    /// How long the lease lasts without a renewal, in milliseconds.
    #[serde(borrow)]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 3_600_000, default = 30_000)]
    ttl_ms: Option<&'a RawValue>,
    /// How long to wait while somebody else holds the lock, in milliseconds.
    #[serde(borrow)]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 600_000, default = 0)]
    wait_ms: Option<&'a RawValue>,
    /// Who asks, for people to read; up to 256 bytes without NUL. What `X-Fencing-Client` says, where
    /// this is left out.
    #[serde(borrow)]
    #[schema(
        value_type = Option<String>, max_length = 256, pattern = "^[^\\x00]*$",
        example = "billing-7"
    )]
    owner: Option<&'a RawValue>,
}

/// A lock, and the token to write with.
#[derive(Serialize, ToSchema)]
#[schema(as = Grant)]
pub(super) struct Granted<'a> {
    name: &'a Key,
    token: Token,
    #[schema(example = "billing-7")]
    owner: &'a str,
    /// How long the lease lasts without a renewal, in milliseconds: at least what was asked for.
    #[schema(minimum = 1000, example = 30_000)]
    ttl_ms: u64,
    /// What the lock service calls the lease.
    #[schema(example = "694d5765fc71500b")]
    lease: &'a str,
}

impl<'a> From<&'a Grant> for Granted<'a> {
    fn from(grant: &'a Grant) -> Self {
        Self {
            name: &grant.name,
            token: grant.token,
            owner: &grant.owner,
            ttl_ms: milliseconds(grant.ttl),
            lease: &grant.lease,
        }
    }
}

/// Acquire a lock
///
/// First come, first served. Before it is granted, the mark of the key that has the lock's name
/// rises to its token, so that the former holder's writes are refused from then on. Keep it with
/// renewals, and release it; or it ends with its lease.
///
/// With `Accept: text/event-stream` the server keeps it: it renews for as long as the connection is
/// open, and releases when it closes. The events are `granted` (the grant), then `ping` every few
/// seconds (`ttl_ms`: what is surely left of the lease), and `lost` (`name`, `token`, `reason`), after
/// which the stream ends. A stream that ends otherwise means the same as `lost`.
#[utoipa::path(
    post,
    path = "/v1/locks/{name}",
    tag = "locks",
    operation_id = "acquireLock",
    params(openapi::NameInPath, openapi::OwnerHeader),
    request_body(content = Option<Terms>, example = json!({"ttl_ms": 30_000, "wait_ms": 5_000, "owner": "billing-7"})),
    responses(
        (
            status = 200, description = "The lock is held while this goes on",
            content_type = "text/event-stream", body = String,
            example = "event: granted\ndata: {\"name\":\"orders/42\",\"token\":33}\n\n",
        ),
        (
            status = 201, description = "The lock is held, under this token", body = Granted,
            headers(("X-Fencing-Token" = Token, description = "The token to write with.")),
        ),
        openapi::LockProblems,
        openapi::AcquireProblems,
        openapi::BodyProblems,
    )
)]
pub async fn post(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    // As with every body: it is taken off the wire even if the rest is no good.
    let body = api.receive(&parts, body).await;
    let name = super::name(&parts.uri, &parts.headers)?;
    let access = api.access(&parts.extensions);
    let locks = api.guarded.locks(access.lock(&name)?)?;
    let form = accept::form(&parts.headers)?;
    let mut wish = wish(name.clone(), &parts.headers, &body?.bytes)?;
    wish.identity = access.identity().cloned();
    let place = if form == Form::Events { Some(locks.stream(access.identity())?) } else { None };
    let acquired = locks.acquire(wish).await?;
    // What is not taken is given back.
    access.still_lock(&name)?;
    match (acquired, place) {
        (Acquired::Granted(handover), None) => Ok(granted(&handover.take())),
        (Acquired::Granted(handover), Some(place)) => {
            let lost = access.lost(Right::Lock, Subject::Key(name));
            Ok(hold::response(handover, place, lost))
        }
        (Acquired::Held(holder), _) => Err(Problem::lock_held(name, holder.as_ref())),
    }
}

fn granted(grant: &Grant) -> Response {
    let mut response = render::json(StatusCode::CREATED, &Granted::from(grant));
    response.headers_mut().insert(FENCING_TOKEN, HeaderValue::from(grant.token.get()));
    response
}

fn wish(name: Key, headers: &HeaderMap, body: &[u8]) -> Result<Wish, Problem> {
    let terms = if body.is_empty() {
        Terms::default()
    } else {
        content_type::require_json(headers, "the terms of a lock are")?;
        // serde would take an array for an object whose members have lost their names.
        if body.trim_ascii_start().starts_with(b"[") {
            return Err(invalid("the terms of a lock are an object, and not an array".into()));
        }
        serde_json::from_slice::<Option<Terms<'_>>>(body)
            .map_err(|error| invalid(format!("not the terms of a lock: {error}")))?
            .unwrap_or_default()
    };
    let ttl = number("ttl_ms", terms.ttl_ms, MIN_TTL_MS..=MAX_TTL_MS)?.unwrap_or(DEFAULT_TTL_MS);
    let wait = number("wait_ms", terms.wait_ms, 0..=MAX_WAIT_MS)?.unwrap_or(0);
    let client = extract::client(headers)?;
    Ok(Wish {
        name,
        owner: owner(terms.owner)?.or(client).unwrap_or_default(),
        identity: None,
        ttl: Duration::from_millis(ttl),
        wait: Duration::from_millis(wait),
    })
}

/// Judged by its text, as a token is: `5000.0` and `5e3` are not milliseconds.
fn number(
    member: &str,
    value: Option<&RawValue>,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, Problem> {
    let Some(value) = value else { return Ok(None) };
    match value.get().parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(invalid(format!(
            "{member} is a whole number of milliseconds from {} to {}",
            range.start(),
            range.end()
        ))),
    }
}

fn owner(value: Option<&RawValue>) -> Result<Option<String>, Problem> {
    let Some(value) = value else { return Ok(None) };
    match serde_json::from_str::<String>(value.get()) {
        Ok(owner) if owner.len() <= MAX_OWNER_BYTES && !owner.contains('\0') => Ok(Some(owner)),
        _ => Err(invalid(format!("owner is text of up to {MAX_OWNER_BYTES} bytes, without NUL"))),
    }
}

fn invalid(detail: String) -> Problem {
    Problem::new(Kind::InvalidRequest, detail)
}
