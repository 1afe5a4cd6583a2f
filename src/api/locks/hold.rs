//! A lock that is held for as long as the connection is open, as events.
//!
//! When the client goes, hyper drops the stream, with it goes the keeper, and the lock is released.
//! The pings are for the client, to tell a silent server from a dead one; and for the server, since
//! a client that has vanished is noticed by what it no longer acknowledges.

use std::{convert::Infallible, time::Duration};

use axum::response::{
    Response,
    sse::{Event, Sse},
};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use utoipa::ToSchema;

use super::{acquire::Granted, milliseconds};
use crate::{
    api::events,
    limits::Place,
    locks::{Handover, Keeper, Loss},
    token::{Key, Token},
};

const LONGEST_SILENCE: Duration = Duration::from_secs(5);

/// The lock is still held.
#[derive(Serialize, ToSchema)]
struct Ping {
    /// What is surely left of the lease, in milliseconds.
    #[schema(minimum = 0, example = 21_500)]
    ttl_ms: u64,
}

/// The lock is no longer held, and the stream ends.
#[derive(Serialize, ToSchema)]
struct Lost<'a> {
    name: &'a Key,
    token: Token,
    reason: Loss,
}

struct Hold {
    keeper: Keeper,
    pings: Interval,
    _place: Place,
}

enum Next {
    Granted(Hold),
    Later(Hold),
    Nothing,
}

/// `lost`: returns when the client no longer may. The stream ends then, and with it the hold.
pub fn response(
    handover: Handover,
    place: Place,
    lost: impl Future<Output = ()> + Send + 'static,
) -> Response {
    let keeper = handover.keep();
    let silence = LONGEST_SILENCE.min(keeper.grant().ttl / 3);
    let mut pings = interval_at(Instant::now() + silence, silence);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let hold = Hold { keeper, pings, _place: place };
    let events = stream::unfold(Next::Granted(hold), step).take_until(lost);
    events::response(Sse::new(events.map(Ok::<_, Infallible>)))
}

async fn step(next: Next) -> Option<(Event, Next)> {
    match next {
        Next::Granted(hold) => {
            let granted = events::event("granted", &Granted::from(hold.keeper.grant()));
            Some((granted, Next::Later(hold)))
        }
        Next::Later(hold) => Some(hold.goes_on().await),
        Next::Nothing => None,
    }
}

impl Hold {
    async fn goes_on(mut self) -> (Event, Next) {
        tokio::select! {
            biased;
            reason = self.keeper.lost() => {
                let grant = self.keeper.grant();
                let lost = Lost { name: &grant.name, token: grant.token, reason };
                (events::event("lost", &lost), Next::Nothing)
            }
            _ = self.pings.tick() => {
                let ttl_ms = milliseconds(self.keeper.remaining());
                (events::event("ping", &Ping { ttl_ms }), Next::Later(self))
            }
        }
    }
}
