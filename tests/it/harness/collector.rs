//! A collector of traces: it takes OTLP over HTTP, and can be slow or unwilling.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use fencepost::{
    server::{Drain, Limits, serve},
    threads::Threads,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, status::StatusCode as SpanStatus},
};
use prost::Message;
use tokio::net::TcpListener;

use super::{PATIENCE, eventually};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Willing,
    /// Takes what it is sent, and never says so.
    Silent,
    /// 400, which means: do not try that again.
    Unwilling,
}

/// A span as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub trace: String,
    pub span: String,
    /// Empty if there is none.
    pub parent: String,
    pub kind: i32,
    pub start: u64,
    pub end: u64,
    pub attributes: BTreeMap<String, String>,
    /// As (trace, span).
    pub links: Vec<(String, String)>,
    pub failed: bool,
    /// Attributes of the process it comes from.
    pub resource: BTreeMap<String, String>,
}

pub struct Collector {
    pub url: String,
    desk: Arc<Desk>,
}

struct Desk {
    mood: Mutex<Mood>,
    seen: Mutex<Vec<Seen>>,
}

impl Collector {
    pub async fn start(mood: Mood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let desk = Arc::new(Desk { mood: Mutex::new(mood), seen: Mutex::default() });
        let router = Router::new().route("/v1/traces", post(take)).with_state(desk.clone());
        let limits = Limits {
            connections: 100,
            turned_away: prometheus_client::metrics::counter::Counter::default(),
            by_identity: false,
            head: 16 << 10,
            header_timeout: PATIENCE,
            write_timeout: PATIENCE,
        };
        tokio::spawn(serve(listener, None, router, limits, Drain::never(), Threads::only_this()));
        Self { url, desk }
    }

    pub fn becomes(&self, mood: Mood) {
        *self.desk.mood.lock().expect("a mood") = mood;
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.desk.seen.lock().expect("the spans").clone()
    }

    /// The spans of a trace, once there are that many.
    pub async fn trace(&self, trace: &str, count: usize) -> Vec<Seen> {
        let of_it = || self.seen().into_iter().filter(|span| span.trace == trace);
        eventually("the trace arrives", || async { of_it().count() >= count }).await;
        let spans: Vec<_> = of_it().collect();
        assert_eq!(spans.len(), count, "{spans:?}");
        spans
    }
}

/// The only one of that name.
pub fn named<'a>(spans: &'a [Seen], name: &str) -> &'a Seen {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("not exactly one {name} in {spans:?}"),
    }
}

async fn take(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let mood = *desk.mood.lock().expect("a mood");
    match mood {
        Mood::Willing => {}
        Mood::Silent => std::future::pending().await,
        Mood::Unwilling => return StatusCode::BAD_REQUEST,
    }
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
    let mut seen = desk.seen.lock().expect("the spans");
    for group in request.resource_spans {
        let resource = table(&group.resource.expect("a resource").attributes);
        let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
        seen.extend(spans.map(|span| Seen::of(span, resource.clone())));
    }
    StatusCode::OK
}

impl Seen {
    fn of(span: Span, resource: BTreeMap<String, String>) -> Self {
        let links = span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id)));
        Self {
            links: links.collect(),
            trace: hex(&span.trace_id),
            span: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            kind: span.kind,
            start: span.start_time_unix_nano,
            end: span.end_time_unix_nano,
            attributes: table(&span.attributes),
            failed: span.status.is_some_and(|status| status.code == SpanStatus::Error as i32),
            name: span.name,
            resource,
        }
    }

    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub fn lies_within(&self, other: &Self) -> bool {
        other.start <= self.start && self.start <= self.end && self.end <= other.end
    }
}

fn table(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone().and_then(|any| any.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("an attribute of another kind: {other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
