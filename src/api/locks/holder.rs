//! `PUT` and `DELETE /v1/locks/{name}`: what a holder does with its lock. Both compare the token
//! where the lock is kept, so neither can touch a successor's.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::milliseconds;
use crate::{
    api::{
        Api, extract, openapi,
        problem::{Kind, Problem},
        render,
    },
    token::Token,
};

/// The lease lasts for its whole time again.
#[derive(Serialize, ToSchema)]
struct Renewed {
    /// How long it lasts from now on, in milliseconds.
    #[schema(minimum = 1000, example = 30_000)]
    ttl_ms: u64,
}

/// Renew a lock
///
/// The lease lasts for its whole time again. A grant that has lost the lock stays without it.
#[utoipa::path(
    put,
    path = "/v1/locks/{name}",
    tag = "locks",
    operation_id = "renewLock",
    params(openapi::NameInPath, openapi::HolderHeaders),
    responses(
        (status = 200, description = "The lock is still held", body = Renewed),
        openapi::LockProblems,
        openapi::HolderProblems,
    )
)]
pub async fn renew(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let name = super::name(request.uri(), request.headers())?;
    let access = api.access(request.extensions());
    let locks = api.guarded.locks(access.lock(&name)?)?;
    let token = token(request.headers())?;
    match locks.renew_for(access.identity(), name.clone(), token).await? {
        Some(ttl) => Ok(render::json(StatusCode::OK, &Renewed { ttl_ms: milliseconds(ttl) })),
        None => Err(Problem::lock_lost(name, token)),
    }
}

/// Release a lock
///
/// The next in the queue gets it at once. A successor's grant is never touched.
#[utoipa::path(
    delete,
    path = "/v1/locks/{name}",
    tag = "locks",
    operation_id = "releaseLock",
    params(openapi::NameInPath, openapi::HolderHeaders),
    responses(
        (status = 204, description = "Released"),
        openapi::LockProblems,
        openapi::HolderProblems,
    )
)]
pub async fn release(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let name = super::name(request.uri(), request.headers())?;
    let access = api.access(request.extensions());
    let locks = api.guarded.locks(access.lock(&name)?)?;
    let token = token(request.headers())?;
    if locks.release_for(access.identity(), name.clone(), token).await? {
        Ok(render::empty(StatusCode::NO_CONTENT))
    } else {
        Err(Problem::lock_lost(name, token))
    }
}

fn token(headers: &HeaderMap) -> Result<Token, Problem> {
    extract::client(headers)?;
    extract::token(headers)?.ok_or_else(|| {
        let detail = "say which grant it is about: its fencing token, in X-Fencing-Token";
        Problem::new(Kind::TokenRequired, detail)
    })
}
