//! Clients that ask over HTTP/2 and take nothing of the answers: the socket stays free, and still they
//! come to an end. And what they keep in memory until then is bounded.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use crate::harness::{
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    http2::Connection,
    store::TestStore,
};

/// Nothing else ends a connection in time.
const IMPATIENT: &[&str] = &["--write-timeout", "300ms", "--header-timeout", "10m"];

async fn put_large(client: &Client, key: &str, bytes: usize) -> u16 {
    let request = client.request(Method::PUT, &format!("/v1/resources/{key}"));
    let request = request.header("X-Fencing-Token", 5).body(vec![b'x'; bytes]);
    answer(request).await.status
}

#[tokio::test]
async fn who_grants_no_room_for_an_answer_is_closed_at_a_deadline() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, IMPATIENT).await;
    assert_eq!(put_large(&server.client(), "large", 1 << 20).await, 201);
    for room in [0, 1, 100_000] {
        let mut lazy = Connection::open(&server.address, room).await;
        let (status, _body) = lazy.get("/v1/resources/large", &[]).await.expect("an answer");
        assert_eq!(status, 200);
        lazy.until_closed().await;
    }
}

/// A byte now and then is no progress.
#[tokio::test]
async fn who_grants_a_byte_at_a_time_is_closed_as_well() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, IMPATIENT).await;
    assert_eq!(put_large(&server.client(), "small", 1000).await, 201);
    let mut lazy = Connection::open(&server.address, 1).await;
    let (status, mut body) = lazy.get("/v1/resources/small", &[]).await.expect("an answer");
    assert_eq!(status, 200);
    let mut taken = 0;
    while let Some(Ok(part)) = body.data().await {
        taken += part.len();
        sleep(Duration::from_millis(50)).await;
        if body.flow_control().release_capacity(part.len()).is_err() {
            break;
        }
    }
    assert!((1..1000).contains(&taken), "{taken}");
    lazy.until_closed().await;
}

/// A small answer is with the protocol as a whole at once; and something else keeps the connection.
#[tokio::test]
async fn nor_does_a_stream_beside_it_help() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(
        &store,
        &[IMPATIENT, &["--authority", "store", "--trust", "open"]].concat(),
    )
    .await;
    assert_eq!(put_large(&server.client(), "small", 1000).await, 201);
    let mut lazy = Connection::open(&server.address, 500).await;
    let watched = lazy.get("/v1/locks/l", &[("Accept", "text/event-stream")]).await;
    let (status, _events) = watched.expect("events");
    assert_eq!(status, 200);
    let (status, _body) = lazy.get("/v1/resources/small", &[]).await.expect("an answer");
    assert_eq!(status, 200);
    lazy.until_closed().await;
}

#[tokio::test]
async fn a_stream_with_nothing_to_say_goes_on() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &[IMPATIENT, &["--authority", "store"]].concat()).await;
    let mut patient = Connection::open(&server.address, 65_535).await;
    let watched = patient.get("/v1/locks/l", &[("Accept", "text/event-stream")]).await;
    let (status, mut events) = watched.expect("events");
    assert_eq!(status, 200);
    // Many deadlines long.
    sleep(Duration::from_secs(2)).await;
    server.client().lock("l", Duration::from_mins(5)).await;
    let mut seen = String::new();
    while !seen.contains("granted") {
        let part = events.data().await.expect("it goes on").expect("an event");
        events.flow_control().release_capacity(part.len()).expect("some room");
        seen += &String::from_utf8_lossy(&part);
    }
    assert!(patient.is_open());
}

#[tokio::test]
async fn what_nobody_takes_is_bounded() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--max-bodies", "1MiB"]).await;
    let client = server.client();
    assert_eq!(put_large(&client, "large", 600 << 10).await, 201);
    let mut lazy = Connection::open(&server.address, 0).await;
    let (status, body) = lazy.get("/v1/resources/large", &[]).await.expect("an answer");
    assert_eq!(status, 200);
    let refused = answer(client.read("large")).await;
    assert_eq!((refused.status, refused.problem().as_str()), (429, "overloaded"));
    assert_eq!(refused.json()["limit"], json!("bodies"));
    assert!(refused.header("retry-after").is_some());
    let fenced = answer(client.read("large").header("X-Fencing-Token", 6)).await;
    assert_eq!((fenced.status, fenced.json()["limit"].as_str()), (429, Some("bodies")));
    assert!(fenced.text().contains("the token has been seen"), "{}", fenced.text());
    assert_eq!(client.mark("large").await, (6, 0), "as it says");
    // A body in memory is one, whichever way it goes.
    assert_eq!(put_large(&client, "other", 600 << 10).await, 429);
    assert_eq!(answer(client.put("small", 5, "v")).await.status, 201);
    assert_eq!(answer(client.read("small")).await.status, 200);
    drop((lazy, body));
    eventually("there is room again", || {
        let request = client.read("large");
        async { answer(request).await.status == 200 }
    })
    .await;
}
