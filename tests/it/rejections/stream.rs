//! Rejections as they happen.

use std::time::Instant;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{flood::flood, one_stale_write, rejections};
use crate::harness::{
    PATIENCE, eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    locks::Events,
    prometheus::Scrape,
    store::TestStore,
};

async fn follow(client: &Client, query: &str) -> Events {
    let request = client.get(&format!("/v1/rejections{query}"));
    Events::of(request.header("Accept", "text/event-stream")).await
}

#[tokio::test]
async fn each_is_told_as_it_happens_to_those_it_concerns() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    one_stale_write(&client, "before").await;
    let mut all = follow(&client, "").await;
    let mut only_b = follow(&client, "?key=b&reason=stale-token").await;
    one_stale_write(&client, "a").await;
    one_stale_write(&client, "b").await;
    assert_eq!(all.expect("rejection").await["key"], "a");
    assert_eq!(all.expect("rejection").await["key"], "b");
    let told = only_b.expect("rejection").await;
    assert_eq!(told, rejections(&client, "?key=b").await[0]);
}

#[tokio::test]
async fn a_stream_goes_on_where_another_has_ended() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    let mut first = follow(&client, "").await;
    one_stale_write(&client, "a").await;
    let last = first.expect("rejection").await["id"].as_str().expect("an id").to_owned();
    drop(first);
    one_stale_write(&client, "b").await;
    let request = client.get("/v1/rejections").header("Accept", "text/event-stream");
    let mut second = Events::of(request.header("Last-Event-ID", &last)).await;
    assert_eq!(second.expect("rejection").await["key"], "b");
}

/// The ring holds a few dozen here, so whoever does not read soon misses some.
#[tokio::test]
async fn a_reader_that_is_too_slow_hears_how_many_it_has_missed() {
    let store = TestStore::sqlite();
    let flags = ["--rejections-memory", "8KiB", "--rejections-keep", "0"];
    let server = Fencepost::with(&store, &flags).await;
    let client = server.client();
    one_stale_write(&client, "k").await;
    let mut slow = TcpStream::connect(&server.address).await.expect("a connection");
    let request = format!(
        "GET /v1/rejections HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n",
        server.address
    );
    slow.write_all(request.as_bytes()).await.expect("sent");
    let mut told = Vec::new();
    slow.read_buf(&mut told).await.expect("the head");
    assert!(told.starts_with(b"HTTP/1.1 200"));
    let deadline = Instant::now() + PATIENCE;
    let all = loop {
        // Nobody waits for it.
        flood(server.address.clone()).await;
        slow.read_buf(&mut told).await.expect("events");
        let all = String::from_utf8_lossy(&told).into_owned();
        if all.contains("event: dropped\ndata: {\"count\":") {
            break all;
        }
        assert!(Instant::now() < deadline, "{all}");
    };
    assert!(all.contains("event: rejection"), "{all}");
    assert!(rejections(&client, "?limit=1000").await.len() < 100);
    let scrape = Scrape::of(&server).await;
    assert!(scrape.get("fencepost_rejections_dropped_total{where=\"stream\"}") >= 1.0);
}

#[tokio::test]
async fn a_stream_ends_with_the_server_and_does_not_hold_it_up() {
    let store = TestStore::sqlite();
    let mut server = Fencepost::with(&store, &["--drain", "30s"]).await;
    let mut events = follow(&server.client(), "").await;
    server.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(events.next().await, None);
    assert!(server.wait().success());
}

#[tokio::test]
async fn there_are_only_so_many_places_to_follow_from() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    let mut places = Vec::new();
    for _ in 0..64 {
        places.push(follow(&client, "").await);
    }
    let request = || client.get("/v1/rejections").header("Accept", "text/event-stream");
    assert_eq!(answer(request()).await.problem(), "overloaded");
    // Whoever looks after the server is not kept out by it.
    let operator = follow(&server.admin_client(), "").await;
    drop(operator);
    places.pop();
    eventually("a place is free again", || async {
        request().send().await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    assert_eq!(rejections(&client, "").await, Vec::<serde_json::Value>::new());
}
