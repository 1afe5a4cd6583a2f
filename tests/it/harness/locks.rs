//! Requests about locks, and the events of those that go on.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::{
    PATIENCE, eventually,
    http::{Answer, Client, answer},
};

impl Client {
    pub fn acquire(&self, name: &str, terms: &Value) -> RequestBuilder {
        self.request(Method::POST, &format!("/v1/locks/{name}"))
            .header("Content-Type", "application/json")
            .body(terms.to_string())
    }

    /// Gets a lock that is free, or soon will be: its token.
    pub async fn lock(&self, name: &str, ttl: Duration) -> i64 {
        let terms = json!({"ttl_ms": millis(ttl), "wait_ms": millis(PATIENCE)});
        let granted = answer(self.acquire(name, &terms)).await;
        assert_eq!(granted.status, 201, "{}", granted.text());
        granted.json()["token"].as_i64().expect("a token")
    }

    pub fn renew(&self, name: &str, token: i64) -> RequestBuilder {
        self.request(Method::PUT, &format!("/v1/locks/{name}")).header("X-Fencing-Token", token)
    }

    pub fn release(&self, name: &str, token: i64) -> RequestBuilder {
        self.request(Method::DELETE, &format!("/v1/locks/{name}")).header("X-Fencing-Token", token)
    }

    /// Who holds it, as `GET` tells.
    pub async fn inspect(&self, name: &str) -> Value {
        let answer = answer(self.get(&format!("/v1/locks/{name}"))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The token of whoever holds a lock now; 0 if nobody does.
    pub async fn holder(&self, name: &str) -> i64 {
        self.inspect(name).await["token"].as_i64().expect("a token")
    }

    pub async fn until_free(&self, name: &str) {
        eventually("the lock is free", || async { self.holder(name).await == 0 }).await;
    }

    /// Until so many wait for a lock.
    pub async fn until_waiting(&self, name: &str, count: u64) {
        eventually(&format!("{count} wait for the lock"), || async {
            self.inspect(name).await["waiters"] == count
        })
        .await;
    }

    /// Holds a lock for as long as the events are kept.
    pub async fn hold(&self, name: &str, terms: &Value) -> Events {
        Events::of(self.acquire(name, terms)).await
    }

    pub async fn watch(&self, name: &str) -> Events {
        Events::of(self.get(&format!("/v1/locks/{name}"))).await
    }
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a short time")
}

/// An answer that goes on. Dropped, its connection is closed.
pub struct Events {
    response: Response,
    unread: String,
}

impl Events {
    pub async fn of(request: RequestBuilder) -> Self {
        let request = request.header("Accept", "text/event-stream");
        let response = request.send().await.expect("an answer");
        if response.status() != 200 {
            let answer = Answer::of(response).await;
            panic!("{}: {}", answer.status, answer.text());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, unread: String::new() }
    }

    /// The next event that is not a ping: its name and its data. `None` at the end.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let event = self.next_or_ping().await?;
            if event.0 != "ping" {
                return Some(event);
            }
        }
    }

    /// The same for one that must be of this kind: its data.
    pub async fn expect(&mut self, name: &str) -> Value {
        let (found, data) = self.next().await.expect("one more event");
        assert_eq!(found, name, "{data}");
        data
    }

    pub async fn next_or_ping(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let event = parse(event);
                self.unread = rest.into();
                if event.is_some() {
                    return event;
                }
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await;
            let chunk = chunk.expect("an event in time").ok()??;
            self.unread += std::str::from_utf8(&chunk).expect("UTF-8");
        }
    }
}

/// `None` for a comment.
fn parse(event: &str) -> Option<(String, Value)> {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data: ")?;
    Some((field("event: ")?.to_owned(), serde_json::from_str(data).expect("JSON")))
}
