//! Tens of thousands of refusals: nothing is lost without being counted, and writes go on.

use std::time::Instant;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::rejections;
use crate::harness::{
    PATIENCE,
    fencepost::Fencepost,
    http::answer,
    prometheus::Scrape,
    store::{TestStore, on_each_store},
};

const CONNECTIONS: usize = 20;
const EACH: usize = 1000;

/// All requests at once, then all answers.
pub async fn flood(address: String) -> usize {
    let mut stream = TcpStream::connect(&address).await.expect("a connection");
    let request = format!(
        "PUT /v1/resources/k HTTP/1.1\r\nHost: {address}\r\nX-Fencing-Token: 7\r\n\
         X-Fencing-Client: zombie\r\nContent-Length: 3\r\n\r\nold"
    );
    let (mut reader, mut writer) = stream.split();
    let send = async {
        for _ in 0..EACH {
            writer.write_all(request.as_bytes()).await.expect("sent");
        }
    };
    let receive = async {
        let mut answers = Vec::new();
        let refusal = b"HTTP/1.1 409";
        let mut refused = 0;
        while refused < EACH {
            assert!(reader.read_buf(&mut answers).await.expect("answers") > 0, "{refused}");
            refused += answers.windows(refusal.len()).filter(|text| text == refusal).count();
            let rest = answers.len().saturating_sub(refusal.len() - 1);
            answers.drain(..rest);
        }
        refused
    };
    tokio::join!(send, receive).1
}

on_each_store! {
    async fn what_is_refused_is_recorded_or_counted_and_writes_go_on(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", 9, "new")).await.status, 201);
        let floods: Vec<_> =
            (0..CONNECTIONS).map(|_| tokio::spawn(flood(server.address.clone()))).collect();
        // The holder does not notice.
        let mut written = 0;
        while !floods.iter().all(tokio::task::JoinHandle::is_finished) || written < 10 {
            assert_eq!(answer(client.put("k", 9, "more")).await.status, 200);
            written += 1;
        }
        let mut refused = 0;
        for flood in floods {
            refused += flood.await.expect("no panic");
        }
        assert_eq!(refused, CONNECTIONS * EACH);
        // Each accepted write has made a version, and none is lost.
        let etag = format!("\"{}\"", written + 1);
        assert_eq!(answer(client.read("k")).await.header("etag"), Some(etag.as_str()));

        let newest = rejections(&client, "?limit=1").await.remove(0);
        let id = newest["id"].as_str().expect("an id");
        let recorded: f64 = id.rsplit('-').next().expect("a number").parse().expect("digits");
        let scrape = Scrape::of(&server).await;
        let dropped = scrape.get("fencepost_rejections_dropped_total{where=\"record\"}");
        #[allow(clippy::cast_precision_loss, reason = "there are twenty thousand")]
        let refused = refused as f64;
        assert!((scrape.rejected("stale-token", "cache") - refused).abs() < 0.5);
        assert!((recorded + dropped - refused).abs() < 0.5, "{recorded} + {dropped}");
        // The log has a few lines, and says how many there are not.
        let lines = server.log().lines().filter(|line| line.contains("a write was refused")).count();
        assert!(lines > 0 && lines < 5000, "{lines}");
        assert!(server.log().contains("more writes were refused than are logged"));
    }
}

on_each_store! {
    /// Memory stays what it may be, the table gets what it can take, and whoever reads too slowly is
    /// told how many went by. All that is left out is counted.
    async fn a_flood_is_bounded_wherever_it_flows(store: TestStore) {
        // Room for some two hundred.
        let server = Fencepost::with(&store, &["--rejections-memory", "64KiB"]).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", 9, "new")).await.status, 201);
        let follow = client.get("/v1/rejections").header("Accept", "text/event-stream");
        let mut follower = follow.send().await.expect("a stream");
        let begun = Instant::now();
        let floods = (0..CONNECTIONS).map(|_| tokio::spawn(flood(server.address.clone())));
        let floods: Vec<_> = floods.collect();
        for flood in floods {
            flood.await.expect("no panic");
        }
        let took = begun.elapsed();
        let newest = rejections(&client, "?limit=1").await.remove(0);
        let id = newest["id"].as_str().expect("an id");
        let recorded: u64 = id.rsplit('-').next().expect("a number").parse().expect("digits");

        // Only now does it read: what it gets and what it is told it missed is all that there was.
        let (mut got, mut missed, mut text) = (0, 0, String::new());
        while got + missed < recorded {
            let chunk = tokio::time::timeout(PATIENCE, follower.chunk()).await;
            let chunk = chunk.expect("in time").expect("a stream").expect("more");
            text += std::str::from_utf8(&chunk).expect("ASCII, as all keys here are");
            while let Some((event, rest)) = text.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let data: Value = serde_json::from_str(data.unwrap_or("null")).expect("JSON");
                got += u64::from(event.contains("event: rejection"));
                missed += data["count"].as_u64().unwrap_or(0);
                text = rest.to_owned();
            }
        }
        assert_eq!(got + missed, recorded);
        assert!(missed > 0, "{got} of {recorded}");

        let scrape = Scrape::of(&server).await;
        let dropped =
            |place: &str| scrape.get(&format!("fencepost_rejections_dropped_total{{where=\"{place}\"}}"));
        // A thousand rows a second go into the table, and four thousand can wait. On a busy machine the flood may have
        // been a trickle, and what was dropped before it was recorded never came to the table.
        let room = 6000 + 1000 * took.as_secs();
        assert!(dropped("audit") > 0.0 || room > recorded, "{recorded} in {took:?}");
        #[allow(clippy::cast_precision_loss, reason = "there are twenty thousand")]
        let missed = missed as f64;
        assert!((dropped("stream") - missed).abs() < 0.5, "{}", dropped("stream"));
    }
}

#[tokio::test]
async fn memory_holds_no_more_than_it_may() {
    let store = TestStore::sqlite();
    let flags = ["--rejections-memory", "64KiB", "--rejections-keep", "0"];
    let server = Fencepost::with(&store, &flags).await;
    let client = server.client();
    assert_eq!(answer(client.put("k", 9, "new")).await.status, 201);
    assert_eq!(flood(server.address.clone()).await, EACH);
    let found = rejections(&client, "?limit=1000").await.len();
    assert!(found > 50 && found < 500, "{found}");
}
