//! Traces: what a request went through, as a collector gets to see it.

mod batches;
mod collectors;

use serde_json::json;

use crate::{
    harness::{
        collector::{Collector, Mood, named},
        fencepost::{Fencepost, run_with},
        http::{Answer, Client, answer},
        prometheus::Scrape,
        store::{TestStore, on_each_store},
    },
    rejections::rejections,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// A parent in that trace, sampled or not.
fn parent(trace: &str, sampled: bool) -> String {
    format!("00-{trace}-{CALLER}-{:02x}", u8::from(sampled))
}

async fn traced(client: &Client, key: &str, token: i64, trace: &str) -> Answer {
    answer(client.put(key, token, "v").header("traceparent", parent(trace, true))).await
}

on_each_store! {
    async fn a_write_is_followed_from_its_request_to_its_statement(store: TestStore) {
        let collector = Collector::start(Mood::Willing).await;
        let server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
        let written = traced(&server.client(), "orders/42", 9, TRACE).await;
        assert_eq!(written.status, 201);

        let spans = collector.trace(TRACE, 5).await;
        let request = named(&spans, "PUT /v1/resources/{key}");
        assert_eq!((request.parent.as_str(), request.kind), (CALLER, SERVER));
        let passed_on = format!("00-{TRACE}-{}-01", request.span);
        assert_eq!(written.header("traceparent"), Some(passed_on.as_str()));
        assert_eq!(request.attribute("http.request.method"), "PUT");
        assert_eq!(request.attribute("http.route"), "/v1/resources/{key}");
        assert_eq!(request.attribute("url.path"), "/v1/resources/orders/42");
        assert_eq!(request.attribute("http.response.status_code"), "201");
        assert_eq!(request.attribute("network.peer.address"), "127.0.0.1");
        assert_eq!(request.attribute("fencepost.token"), "9");
        assert_eq!(request.attribute("fencepost.mark"), "9");
        assert!(!request.attributes.contains_key("error.type"));

        let batch = named(&spans, "batch");
        let statement = named(&spans, "statement");
        for part in [named(&spans, "parse"), named(&spans, "queue"), batch] {
            assert_eq!(part.parent, request.span, "{}", part.name);
        }
        assert_eq!((&statement.parent, statement.kind), (&batch.span, CLIENT));
        let database = if store.is_postgres() { "postgresql" } else { "sqlite" };
        assert_eq!(statement.attribute("db.system.name"), database);
        assert_eq!(statement.attribute("db.operation.batch.size"), "1");
        assert!(named(&spans, "parse").lies_within(request));
        assert!(statement.lies_within(batch));
        assert!(spans.iter().all(|span| !span.failed), "{spans:?}");

        let resource = &request.resource;
        assert_eq!(resource["service.name"], "fencepost");
        assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
        // The same as in the ids of what it has refused.
        assert_eq!(answer(server.client().put("orders/42", 8, "late")).await.status, 409);
        let id = rejections(&server.client(), "").await[0]["id"].clone();
        let instance = &resource["service.instance.id"];
        assert!(id.as_str().expect("an id").starts_with(instance.as_str()), "{id} {instance}");
    }
}

#[tokio::test]
async fn a_refused_write_shows_how_far_it_came() {
    let store = TestStore::sqlite();
    let collector = Collector::start(Mood::Willing).await;
    let server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
    let client = server.client();
    assert_eq!(answer(client.put("k", 9, "new")).await.status, 201);

    // By the cache: it was understood, and that was all.
    assert_eq!(traced(&client, "k", 7, TRACE).await.status, 409);
    let spans = collector.trace(TRACE, 2).await;
    let request = named(&spans, "PUT /v1/resources/{key}");
    assert_eq!(named(&spans, "parse").parent, request.span);
    assert_eq!(request.attribute("error.type"), "stale-token");
    assert_eq!(request.attribute("http.response.status_code"), "409");
    assert_eq!(request.attribute("fencepost.mark"), "9");
    // The product at work is no error.
    assert!(!request.failed);

    // By the parser.
    let other = TRACE.replace('0', "1");
    let malformed = client.request(reqwest::Method::PUT, "/v1/resources/k");
    let malformed = answer(malformed.header("traceparent", parent(&other, true))).await;
    assert_eq!(malformed.status, 428);
    let spans = collector.trace(&other, 2).await;
    let request = named(&spans, "PUT /v1/resources/{key}");
    assert_eq!(request.attribute("error.type"), "token-required");
    named(&spans, "parse");

    // By the store.
    let third = TRACE.replace('0', "2");
    let late = client.put("k", 9, "x").header("If-Match", "\"7\"");
    assert_eq!(answer(late.header("traceparent", parent(&third, true))).await.status, 412);
    let spans = collector.trace(&third, 5).await;
    assert!(!named(&spans, "statement").failed);
}

#[tokio::test]
async fn what_is_neither_a_write_nor_known_is_a_request_all_the_same() {
    let store = TestStore::sqlite();
    let collector = Collector::start(Mood::Willing).await;
    let flags = ["--otlp-endpoint", &collector.url, "--authority", "store"];
    let server = Fencepost::with(&store, &flags).await;
    let client = server.client();
    for (trace, path, name) in [
        (TRACE, "/v1/resources/k", "GET /v1/resources/{key}"),
        (&TRACE.replace('0', "1"), "/v1/locks", "GET /v1/locks"),
        (&TRACE.replace('0', "2"), "/nowhere", "GET"),
    ] {
        let asked = client.get(path).header("traceparent", parent(trace, true));
        let status = answer(asked).await.status.to_string();
        let spans = collector.trace(trace, 1).await;
        assert_eq!(named(&spans, name).attribute("http.response.status_code"), status);
    }
}

#[tokio::test]
async fn the_caller_decides_what_is_traced_or_else_the_ratio_does() {
    let store = TestStore::sqlite();
    let collector = Collector::start(Mood::Willing).await;
    // By default nothing is, unless it is asked for.
    let server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
    let client = server.client();
    let unsampled = client.put("k", 9, "v").header("traceparent", parent(TRACE, false));
    let unsampled = answer(unsampled).await;
    assert!(unsampled.header("traceparent").expect("passed on").ends_with("-00"));
    assert_eq!(answer(client.put("k", 9, "v")).await.header("traceparent"), None);
    let sampled = TRACE.replace('0', "1");
    assert_eq!(traced(&client, "k", 9, &sampled).await.status, 200);
    collector.trace(&sampled, 5).await;
    assert!(collector.seen().iter().all(|span| span.trace == sampled), "{:?}", collector.seen());

    let flags = ["--otlp-endpoint", &collector.url, "--trace-ratio", "1"];
    let all = Fencepost::with(&store, &flags).await;
    let client = all.client();
    let unsampled = client.put("k", 9, "v").header("traceparent", parent(TRACE, false));
    assert_eq!(answer(unsampled).await.status, 200);
    // A trace that begins here can be found by its answer, and by the record of the rejection.
    let refused = answer(client.put("k", 7, "v")).await;
    let begun = refused.header("traceparent").expect("a trace of our own")[3..35].to_owned();
    let spans = collector.trace(&begun, 2).await;
    assert_eq!(named(&spans, "PUT /v1/resources/{key}").parent, "");
    assert_eq!(rejections(&client, "?limit=1").await[0]["trace"], json!(begun));
    assert!(collector.seen().iter().all(|span| span.trace != TRACE));
}

#[tokio::test]
async fn without_a_collector_there_is_nothing() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let written = traced(&server.client(), "k", 9, TRACE).await;
    assert!(written.header("traceparent").expect("passed on").starts_with(&format!("00-{TRACE}")));
    let scrape = Scrape::of(&server).await;
    assert!(!scrape.series().iter().any(|series| series.contains("spans")), "{scrape:?}");
}

#[test]
fn an_address_that_cannot_be_one_is_refused_at_the_start() {
    let serve = |flags: &[&str], standard: &str| {
        let output = run_with(
            &[&["serve", "--store", "sqlite:/nowhere/fencepost.db"], flags].concat(),
            |command| {
                command.env("OTEL_EXPORTER_OTLP_ENDPOINT", standard);
            },
        );
        assert_eq!(output.status.code(), Some(64));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for bad in ["collector:4317", "ftp://collector", "http://user:secret@collector", "http://c?d"] {
        let message = serve(&["--otlp-endpoint", bad], "");
        assert!(message.contains("--otlp-endpoint"), "{message}");
        assert!(!message.contains("cannot start"), "{message}");
    }
    let message = serve(&[], "collector:4317");
    assert!(message.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{message}");
    let message = serve(&["--trace-ratio", "2"], "");
    assert!(message.contains("from 0 to 1"), "{message}");
}
