//! A collector that is away, or slow, or about to miss the end: never in the way of a write.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use nix::sys::signal::Signal;

use super::{TRACE, traced};
use crate::harness::{
    PATIENCE,
    blocker::Blocker,
    collector::{Collector, Mood, Seen, named},
    eventually,
    fencepost::Fencepost,
    free_port,
    prometheus::Scrape,
    store::TestStore,
};

fn fate(scrape: &Scrape, fate: &str) -> f64 {
    scrape.get(&format!("fencepost_spans_total{{fate=\"{fate}\"}}"))
}

fn lines(server: &Fencepost, text: &str) -> usize {
    server.log().lines().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn a_dead_collector_costs_its_spans_and_one_line_of_the_log() {
    let store = TestStore::sqlite();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let mut server = Fencepost::with(&store, &["--otlp-endpoint", &nobody]).await;
    let client = server.client();
    for round in 1..=2 {
        assert!(traced(&client, "k", 9, TRACE).await.status < 300);
        let lost = async || fate(&Scrape::of(&server).await, "failed");
        eventually("they are counted", async || lost().await >= f64::from(round) * 5.0).await;
    }
    assert_eq!(lines(&server, "the collector takes no traces"), 1, "{}", server.log());
    assert!(fate(&Scrape::of(&server).await, "sent").abs() < 0.5);
    // It does not delay the end either.
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[tokio::test]
async fn a_collector_that_refuses_is_told_about_and_tried_again() {
    let store = TestStore::sqlite();
    let collector = Collector::start(Mood::Unwilling).await;
    let server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
    let client = server.client();
    assert_eq!(traced(&client, "k", 9, TRACE).await.status, 201);
    eventually("they are counted", async || fate(&Scrape::of(&server).await, "failed") >= 5.0)
        .await;
    eventually("it is told", || async { lines(&server, "status code: 400") == 1 }).await;

    collector.becomes(Mood::Willing);
    let later = TRACE.replace('0', "1");
    assert_eq!(traced(&client, "k", 9, &later).await.status, 200);
    collector.trace(&later, 5).await;
    let again = || lines(&server, "the collector takes traces again");
    eventually("that is told, too", || async { again() == 1 }).await;
    assert!((fate(&Scrape::of(&server).await, "sent") - 5.0).abs() < 0.5);
}

/// It takes a request and never answers. Writes go on, and memory does not grow.
#[tokio::test]
async fn a_silent_collector_delays_no_write_and_no_end() {
    const WRITES: u32 = 2000;
    let store = TestStore::sqlite();
    let collector = Collector::start(Mood::Silent).await;
    let mut server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
    let client = server.client();
    let writes = stream::iter(0..WRITES).map(|number| {
        let client = &client;
        async move { traced(client, &format!("k{number}"), 9, TRACE).await.status }
    });
    let answers: Vec<u16> = writes.buffer_unordered(64).collect().await;
    assert!(answers.iter().all(|status| *status == 201));
    // More than there is room for, by far; what is neither lost nor counted waits in the queue.
    let scrape = Scrape::of(&server).await;
    let gone = fate(&scrape, "dropped") + fate(&scrape, "failed");
    assert!(fate(&scrape, "dropped") > 0.0 && gone <= f64::from(WRITES) * 5.0, "{gone}");
    assert!(gone >= f64::from(WRITES) * 3.0 - 4096.0 - 512.0, "{gone}");

    server.signal(Signal::SIGTERM);
    let told = Instant::now();
    assert_eq!(server.wait().code(), Some(0));
    assert!(told.elapsed() < PATIENCE, "{:?}", told.elapsed());
}

#[tokio::test]
async fn the_last_spans_are_sent_before_the_end() {
    let store = TestStore::sqlite();
    let collector = Collector::start(Mood::Willing).await;
    let mut server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
    assert_eq!(traced(&server.client(), "k", 9, TRACE).await.status, 201);
    server.signal(Signal::SIGTERM);
    // The collector is on this thread, and must be able to answer meanwhile.
    while server.is_running() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.wait().code(), Some(0));
    named(&collector.trace(TRACE, 5).await, "statement");
}

/// The write goes on without its client, and so does its trace.
#[tokio::test]
async fn a_client_that_hangs_up_is_seen() {
    let store = TestStore::postgres().await;
    let collector = Collector::start(Mood::Willing).await;
    let server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
    let client = server.client();
    assert_eq!(traced(&client, "k", 9, &TRACE.replace('0', "1")).await.status, 201);
    let blocker = Blocker::on_row(&store.url, "k").await;
    let hasty = client.put("k", 9, "v").header("traceparent", super::parent(TRACE, true));
    let hasty = tokio::spawn(hasty.send());
    blocker.until_waiting(1).await;
    hasty.abort();
    let gone = |span: &Seen| {
        let error = span.attributes.get("error.type");
        span.trace == TRACE && error.is_some_and(|error| error == "client-gone")
    };
    eventually("its span arrives", || async { collector.seen().iter().any(gone) }).await;
    blocker.release().await;
    let settled = |span: &Seen| span.trace == TRACE && span.name == "statement" && !span.failed;
    eventually("the write stands", || async { collector.seen().iter().any(settled) }).await;
}
