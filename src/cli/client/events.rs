//! Answers that go on: server-sent events, one after the other.

use std::time::Duration;

use reqwest::{RequestBuilder, Response, header};
use serde_json::Value;

use super::http;
use crate::cli::exit::Failure;

/// The answer may last as long as it likes. What may not is a silence.
const NO_END: Duration = Duration::from_hours(24 * 365);

pub struct Events {
    answer: Response,
    /// What has been received, and does not make up a whole event yet.
    rest: Vec<u8>,
}

pub struct Event {
    pub name: String,
    pub data: Value,
}

impl Events {
    /// `patience`: how long the first event may take.
    pub async fn of(request: RequestBuilder, patience: Duration) -> Result<Self, Failure> {
        let request = request.header(header::ACCEPT, "text/event-stream").timeout(NO_END);
        let sent = tokio::time::timeout(patience, http::send(request)).await;
        let answer = sent.map_err(|_| silent())??;
        Ok(Self { answer, rest: Vec::new() })
    }

    /// `None`: the server has ended it. It must not be silent for longer than `patience`.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(end) = self.rest.windows(2).position(|window| window == b"\n\n") {
                let text: Vec<u8> = self.rest.drain(..end + 2).collect();
                match event(&String::from_utf8_lossy(&text)) {
                    Some(event) => return Ok(Some(event)),
                    // A comment, which says no more than that the server is there.
                    None => continue,
                }
            }
            let chunk = tokio::time::timeout(patience, self.answer.chunk()).await;
            match chunk.map_err(|_| silent())?.map_err(http::unreachable)? {
                Some(bytes) => self.rest.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }
}

fn event(text: &str) -> Option<Event> {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.strip_prefix(' ').unwrap_or(value))
    };
    let data = serde_json::from_str(field("data:")?).ok()?;
    Some(Event { name: field("event:")?.to_owned(), data })
}

fn silent() -> Failure {
    Failure::Unavailable("the server has fallen silent".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_name_and_data_and_a_comment_has_neither() {
        let granted = event("event: granted\ndata: {\"token\":7}\n\n").unwrap();
        assert_eq!((granted.name.as_str(), &granted.data["token"]), ("granted", &Value::from(7)));
        assert!(event("event:lost\ndata:{}\n\n").is_some());
        assert!(event(":\n\n").is_none());
        assert!(event(": keep-alive\n\n").is_none());
    }
}
