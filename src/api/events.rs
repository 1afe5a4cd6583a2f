//! Server-sent events: an answer that goes on for as long as its connection.

use axum::{
    http::{HeaderName, HeaderValue},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use serde::Serialize;

/// One event, with a document as its data.
pub fn event(name: &str, document: &impl Serialize) -> Event {
    // Plain structs of strings and numbers, on one line.
    let data = serde_json::to_string(document).unwrap_or_default();
    Event::default().event(name).data(data)
}

pub fn response<S>(events: Sse<S>) -> Response
where
    Sse<S>: IntoResponse,
{
    let mut response = events.into_response();
    // A reverse proxy that gathers an answer before it passes it on would keep a grant to itself.
    let name = HeaderName::from_static("x-accel-buffering");
    response.headers_mut().insert(name, HeaderValue::from_static("no"));
    response
}
