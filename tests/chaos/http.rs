//! The real thing, by HTTP, by way of any of several fenceposts.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    history::{self, Moment, Outcome, Request, Seen, Write},
    work::Service,
};

/// When a client stops waiting for an answer. By then it is unknown.
const TIMEOUT: Duration = Duration::from_secs(8);

pub struct Fenceposts {
    http: reqwest::Client,
    addresses: Vec<String>,
    next: AtomicUsize,
}

impl Fenceposts {
    pub fn new(addresses: Vec<String>, first: usize) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().build().expect("a client");
        Self { http, addresses, next: AtomicUsize::new(first) }
    }

    fn request(&self, via: usize, request: &Request) -> RequestBuilder {
        let address = &self.addresses[via];
        let to = |method, path: String| {
            self.http.request(method, format!("http://{address}/v1/{path}")).timeout(TIMEOUT)
        };
        match request {
            Request::Write(write) => {
                let path = format!("resources/{}", write.key);
                let request = match &write.value {
                    Some(value) => to(Method::PUT, path).body(value.clone()),
                    None => to(Method::DELETE, path),
                };
                with_fencing(request, write)
            }
            Request::Batch(writes) => {
                let writes: Vec<Value> = writes.iter().map(entry).collect();
                to(Method::POST, "batch".into())
                    .header("Content-Type", "application/json")
                    .body(json!({ "writes": writes }).to_string())
            }
            Request::Read { key, token } => {
                let request = to(Method::GET, format!("resources/{key}"));
                token.iter().fold(request, |request, token| request.header(TOKEN, *token))
            }
            Request::Claim { key, token } => {
                to(Method::PUT, format!("marks/{key}")).header(TOKEN, *token)
            }
            Request::Acquire { lock, ttl_ms, wait_ms } => {
                let terms = json!({ "ttl_ms": ttl_ms, "wait_ms": wait_ms });
                to(Method::POST, format!("locks/{lock}"))
                    .timeout(TIMEOUT + Duration::from_millis(*wait_ms))
                    .header("Content-Type", "application/json")
                    .body(terms.to_string())
            }
            Request::Renew { lock, token } => {
                to(Method::PUT, format!("locks/{lock}")).header(TOKEN, *token)
            }
            Request::Release { lock, token } => {
                to(Method::DELETE, format!("locks/{lock}")).header(TOKEN, *token)
            }
        }
    }
}

const TOKEN: &str = "X-Fencing-Token";

fn with_fencing(mut request: RequestBuilder, write: &Write) -> RequestBuilder {
    request = request.header(TOKEN, write.token);
    if write.seq > 0 {
        request = request.header("X-Fencing-Seq", write.seq);
    }
    if let Some(scope) = &write.scope {
        request = request.header("X-Fencing-Scope", scope);
    }
    match write.expects {
        None => request,
        Some(0) => request.header("If-None-Match", "*"),
        Some(version) => request.header("If-Match", format!("\"{version}\"")),
    }
}

fn entry(write: &Write) -> Value {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let mut entry = json!({ "key": write.key, "token": write.token });
    if write.seq > 0 {
        entry["seq"] = write.seq.into();
    }
    if let Some(scope) = &write.scope {
        entry["scope"] = scope.as_str().into();
    }
    match &write.value {
        Some(value) => entry["value_base64"] = BASE64_STANDARD.encode(value).into(),
        None => entry["delete"] = true.into(),
    }
    match write.expects {
        None => {}
        Some(0) => entry["if_none_match"] = "*".into(),
        Some(version) => entry["if_match"] = version.into(),
    }
    entry
}

impl Service for Fenceposts {
    fn choose(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.addresses.len()
    }

    async fn send(&self, via: usize, request: &Request) -> Outcome {
        let unknown = |error: reqwest::Error| Outcome::Unknown { reason: format!("{error:?}") };
        let response = match self.request(via, request).send().await {
            Ok(response) => response,
            // Nobody was there to be asked.
            Err(error) if error.is_connect() => {
                return Outcome::NotApplied { reason: "unreachable".into() };
            }
            Err(error) => return unknown(error),
        };
        let (status, fencing) = (response.status(), fencing(&response));
        match response.bytes().await {
            Ok(body) => outcome(request, status, fencing, &body),
            Err(error) => unknown(error),
        }
    }

    async fn hang_up(&self, via: usize, request: &Request, patience_us: u64) -> Outcome {
        let patience = Duration::from_micros(patience_us);
        // What is dropped takes its connection with it, wherever it was.
        tokio::time::timeout(patience, self.send(via, request))
            .await
            .unwrap_or_else(|_| Outcome::Unknown { reason: "hung up".into() })
    }

    async fn pause(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    fn now(&self) -> Moment {
        history::now()
    }
}

fn fencing(response: &Response) -> Seen {
    let header = |name| {
        let value = response.headers().get(name)?.to_str().ok()?;
        value.trim_matches('"').parse().ok()
    };
    Seen { mark: header("x-fencing-mark"), version: header("etag"), value: None }
}

fn outcome(request: &Request, status: StatusCode, seen: Seen, body: &[u8]) -> Outcome {
    let json = || serde_json::from_slice::<Value>(body).unwrap_or_default();
    match (status.as_u16(), request) {
        (201, Request::Acquire { .. }) => match json()["token"].as_i64() {
            Some(token) => Outcome::Granted { token },
            None => strange(status, "a grant without a token"),
        },
        (200, Request::Batch(_)) => Outcome::Done(results(&json())),
        (200, Request::Read { .. }) => {
            let value = Some(String::from_utf8_lossy(body).into_owned());
            Outcome::Done(vec![Seen { value, ..seen }])
        }
        (404, Request::Read { .. }) => Outcome::Done(vec![Seen { version: None, ..seen }]),
        (200, Request::Claim { .. }) => {
            let mark = json()["token"].as_i64();
            Outcome::Done(vec![Seen { mark, ..Seen::default() }])
        }
        (200..=204, _) => Outcome::Done(vec![seen]),
        (_, _) => problem(status, seen, &json()),
    }
}

fn results(document: &Value) -> Vec<Seen> {
    let results = document["results"].as_array().cloned().unwrap_or_default();
    let seen = |result: &Value| Seen {
        mark: result["token"].as_i64(),
        version: result["version"].as_i64(),
        value: None,
    };
    results.iter().map(seen).collect()
}

fn problem(status: StatusCode, seen: Seen, document: &Value) -> Outcome {
    let kind = document["type"].as_str().unwrap_or_default();
    let reason = kind.strip_prefix("urn:fencepost:").unwrap_or_default().to_owned();
    match reason.as_str() {
        "stale-token" | "out-of-order" | "seq-reused" | "unissued-token" | "version-mismatch" => {
            let index = document["index"].as_u64().and_then(|index| usize::try_from(index).ok());
            let mark = document["mark"].as_i64().unwrap_or(-1);
            Outcome::Refused { reason, index: index.unwrap_or(0), mark, seen }
        }
        "lock-lost"
        | "lock-held"
        | "overloaded"
        | "store-unavailable"
        | "store-full"
        | "shutting-down"
        | "authority-unavailable"
        | "authority-mismatch" => Outcome::NotApplied { reason },
        "outcome-unknown" => Outcome::Unknown { reason },
        _ => strange(status, &document.to_string()),
    }
}

/// An answer that the contract does not know. The check for false refusals finds it.
fn strange(status: StatusCode, what: &str) -> Outcome {
    let reason = format!("{status}: {what}");
    Outcome::Refused { reason, index: 0, mark: -1, seen: Seen::default() }
}
