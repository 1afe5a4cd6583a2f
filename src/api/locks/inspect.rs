//! `GET /v1/locks/{name}`: who holds a lock, and how many wait for it.

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{milliseconds, watch};
use crate::{
    api::{
        Api,
        accept::{self, Form},
        openapi,
        problem::Problem,
        render,
    },
    auth::{access::Subject, policy::Right},
    authority::LockState,
    token::Key,
};

/// A lock as it is now. By the time this is read, it may have passed on.
#[derive(Serialize, ToSchema)]
struct Lock<'a> {
    name: &'a Key,
    held: bool,
    /// The holder's; 0 where the lock is free.
    #[schema(minimum = 0, example = 33)]
    token: i64,
    /// The holder's name for itself; empty where it gave none, or the lock is free.
    #[schema(example = "billing-7")]
    owner: &'a str,
    /// What is left of the lease, in milliseconds; 0 where the lock is free.
    #[schema(minimum = 0, example = 21_500)]
    ttl_ms: u64,
    /// How many wait for their turn.
    #[schema(minimum = 0, example = 2)]
    waiters: u64,
}

/// Look at a lock
///
/// With `Accept: text/event-stream` it is a watch: the events `granted` (`name`, `token`, `owner`,
/// `ttl_ms`), `released` and `expired` (`name`, `token`), as they happen. It begins with the state now;
/// the token is 0 for a lock that is free.
#[utoipa::path(
    get,
    path = "/v1/locks/{name}",
    tag = "locks",
    operation_id = "getLock",
    params(openapi::NameInPath),
    responses(
        (status = 200, description = "Who holds it, if anybody", content(
            (Lock = "application/json"),
            (String = "text/event-stream", example = "event: released\ndata: {\"name\":\"orders/42\",\"token\":33}\n\n"),
        )),
        openapi::LockProblems,
        openapi::FormProblems,
    )
)]
pub async fn get(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let name = super::name(request.uri(), request.headers())?;
    let access = api.access(request.extensions());
    let locks = api.guarded.locks(access.read(&name)?)?;
    if accept::form(request.headers())? == Form::Events {
        let lost = access.clone().lost(Right::Read, Subject::Key(name.clone()));
        return watch::response(locks, name, access.identity(), lost).await;
    }
    let LockState { holder, waiters, .. } = locks.inspect(name.clone()).await?;
    let holder = holder.as_ref();
    let lock = Lock {
        name: &name,
        held: holder.is_some(),
        token: holder.map_or(0, |holder| holder.token.get()),
        owner: holder.map_or("", |holder| &holder.owner),
        ttl_ms: holder.map_or(0, |holder| milliseconds(holder.remaining)),
        waiters,
    };
    Ok(render::json(StatusCode::OK, &lock))
}
