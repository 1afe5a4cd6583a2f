//! What happens to a lock, as events: leader election's "who leads".

use std::{convert::Infallible, time::Duration};

use axum::response::{
    Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::StreamExt;
use serde::Serialize;
use utoipa::ToSchema;

use super::HolderNow;
use crate::{
    api::{events, problem::Problem},
    auth::Identity,
    authority::LockEvent,
    locks::Locks,
    server::Lingering,
    token::{Key, Token},
};

/// Comments in between tell a silent lock from a dead server.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);

/// The lock has a new holder, or had one when the watch began.
#[derive(Serialize, ToSchema)]
#[schema(as = WatchedGrant)]
struct Granted<'a> {
    name: &'a Key,
    #[serde(flatten)]
    #[schema(inline)]
    holder: HolderNow,
}

/// The lock was released, or its holder's lease has ended.
#[derive(Serialize, ToSchema)]
#[schema(as = WatchedEnd)]
struct Ended<'a> {
    name: &'a Key,
    /// The former holder's; 0 for a lock that was free when the watch began.
    #[schema(minimum = 0, example = 33)]
    token: i64,
}

/// `lost`: returns when the client no longer may.
pub async fn response(
    locks: &Locks,
    name: Key,
    who: Option<&Identity>,
    lost: impl Future<Output = ()> + Send + 'static,
) -> Result<Response, Problem> {
    let place = locks.stream(who)?;
    let events = locks.watch(name.clone()).await?.take_until(locks.closing()).take_until(lost);
    let events = events.map(move |event| {
        let _ = &place;
        Ok::<_, Infallible>(render(&name, &event))
    });
    let silence = KeepAlive::new().interval(LONGEST_SILENCE);
    let mut response = events::response(Sse::new(events).keep_alive(silence));
    response.extensions_mut().insert(Lingering);
    Ok(response)
}

fn render(name: &Key, event: &LockEvent) -> Event {
    let ended = |token: Option<Token>| Ended { name, token: token.map_or(0, Token::get) };
    match event {
        LockEvent::Granted(holder) => {
            events::event("granted", &Granted { name, holder: holder.into() })
        }
        LockEvent::Released(token) => events::event("released", &ended(*token)),
        LockEvent::Expired(token) => events::event("expired", &ended(Some(*token))),
    }
}
