//! Rejections as they happen, as events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    http::HeaderMap,
    response::{
        Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{StreamExt, stream};
use serde::Serialize;

use super::{Document, query::Asked};
use crate::{
    api::{
        events,
        problem::{Kind, Problem},
    },
    rejections::{Id, News, Rejections},
    server::Lingering,
};

/// Comments in between tell a quiet server from a dead one.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);

/// There was more than could be told.
#[derive(Serialize)]
struct Dropped {
    count: u64,
}

/// `until`: returns when it is to end, though its client would stay.
pub fn response(
    rejections: &Arc<Rejections>,
    asked: Asked,
    headers: &HeaderMap,
    by_operator: bool,
    until: impl Future<Output = ()> + Send + 'static,
) -> Result<Response, Problem> {
    // One that is not ours says nothing: what came after it is not known here.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.and_then(|id| id.parse::<Id>().ok());
    let follower = rejections.follow(asked.filter, last, by_operator).ok_or_else(|| {
        let detail = "as many connections follow the rejections as may; try again later";
        Problem::new(Kind::OverLimit, detail).retry_after(Duration::ZERO)
    })?;
    let news =
        stream::unfold(follower, async |mut follower| Some((follower.news().await, follower)));
    // One event at a time: a client that reads nothing keeps what is unread as it is in the record.
    let events = news
        .take_until(until)
        .flat_map(|news| stream::iter(events_of(news)).map(Ok::<_, Infallible>));
    let silence = KeepAlive::new().interval(LONGEST_SILENCE);
    let mut response = events::response(Sse::new(events).keep_alive(silence));
    response.extensions_mut().insert(Lingering);
    Ok(response)
}

/// Renders each when it is asked for.
fn events_of(news: News) -> impl Iterator<Item = Event> {
    let dropped = (news.dropped > 0).then_some(Dropped { count: news.dropped });
    let dropped = dropped.map(|dropped| events::event("dropped", &dropped));
    let rejections = news
        .entries
        .into_iter()
        .map(|entry| events::event("rejection", &Document::of(&entry)).id(entry.id.to_string()));
    dropped.into_iter().chain(rejections)
}
