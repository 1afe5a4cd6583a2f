//! Connections: how many, how long, in which version of HTTP, and what if they break.

use std::time::Duration;

use nix::sys::signal::Signal;
use reqwest::Version;
use serde_json::json;
use sqlx::Connection;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::harness::{
    PATIENCE, eventually,
    fencepost::Fencepost,
    http::{Answer, answer, read_answer, read_to_end, text},
    postgres,
    store::{TestStore, on_each_store},
};

async fn connect(server: &Fencepost) -> TcpStream {
    TcpStream::connect(&server.address).await.expect("it listens")
}

/// One request on a connection that stays open.
async fn ask(stream: &mut TcpStream, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    read_answer(stream).await
}

fn get() -> String {
    text("GET", "/v1/resources/k", &[], "")
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let mut stream = connect(&server).await;
    for token in 1..=20 {
        let header = format!("X-Fencing-Token: {token}");
        let request = text("PUT", "/v1/resources/k", &[&header], "v");
        let written = ask(&mut stream, &request).await;
        assert_eq!(written.json(), json!({"key": "k", "version": token, "token": token}));
        // A refusal is no reason to close, either.
        let request = text("PUT", "/v1/resources/k", &[], "v");
        assert_eq!(ask(&mut stream, &request).await.status, 428);
    }
}

#[tokio::test]
async fn requests_that_are_sent_ahead_are_answered_in_order() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let mut requests = String::new();
    for token in 1..=9 {
        let header = format!("X-Fencing-Token: {token}");
        requests += &text("PUT", "/v1/resources/k", &[&header], "v");
    }
    requests += &text("GET", "/v1/marks/k", &["Connection: close"], "");
    let mut stream = connect(&server).await;
    stream.write_all(requests.as_bytes()).await.expect("they are sent");
    let answers = read_to_end(&mut stream).await;
    let mut rest = answers.as_str();
    for version in 1..=9 {
        let place = rest.find(&format!("\"version\":{version},")).expect("an answer, in order");
        rest = &rest[place..];
    }
    assert!(rest.ends_with(r#"{"key":"k","token":9,"seq":0}"#), "{answers}");
}

#[tokio::test]
async fn one_connection_too_many_is_turned_away() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--max-connections", "2"]).await;
    let (mut first, mut second) = (connect(&server).await, connect(&server).await);
    for stream in [&mut first, &mut second] {
        assert_eq!(ask(stream, &get()).await.status, 404);
    }
    for _ in 0..20 {
        let third = answer(server.client().read("k")).await;
        assert_eq!((third.status, third.problem().as_str()), (429, "overloaded"));
        assert_eq!(third.json()["retryable"], true);
        assert_eq!(third.header("retry-after"), Some("1"));
        assert_eq!(third.header("connection"), Some("close"));
    }
    for stream in [&mut first, &mut second] {
        assert_eq!(ask(stream, &get()).await.status, 404);
    }
    drop(first);
    eventually("there is room again", || async {
        let answer = server.client().read("k").send().await;
        answer.is_ok_and(|answer| answer.status() == 404)
    })
    .await;
    assert_eq!(ask(&mut second, &get()).await.status, 404);
}

/// As after a restart. Whoever finds no place to wait in would be told nothing, and try again after a second.
#[tokio::test]
async fn many_may_come_at_once() {
    const THEY: usize = 250;
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    // It accepts nobody.
    server.signal(Signal::SIGSTOP);
    let mut waiting = Vec::new();
    for number in 0..THEY {
        // Without a place it would be tried again and again, and in vain while the server is stopped.
        let connected = tokio::time::timeout(PATIENCE, connect(&server)).await;
        waiting.push(connected.unwrap_or_else(|_| panic!("no place for the {number}th to wait")));
    }
    server.signal(Signal::SIGCONT);
    for stream in &mut waiting {
        assert_eq!(ask(stream, &get()).await.status, 404);
    }
}

on_each_store! {
    async fn http_2_is_spoken_in_clear_text(store: TestStore) {
        let server = Fencepost::with(&store, &["--max-connections", "1"]).await;
        let client = reqwest::Client::builder()
            .http2_prior_knowledge()
            .timeout(PATIENCE)
            .build()
            .expect("a client");
        let url = |number: usize| format!("http://{}/v1/resources/k{number}", server.address);

        // There is room for one connection only, so they all share it.
        let writes = (0..100).map(|number| {
            client.put(url(number)).header("X-Fencing-Token", 5).body(number.to_string()).send()
        });
        for written in futures_util::future::join_all(writes).await {
            let written = written.expect("an answer");
            assert_eq!((written.version(), written.status().as_u16()), (Version::HTTP_2, 201));
            assert_eq!(written.headers()["x-fencing-mark"], "5");
            assert_eq!(written.headers()["etag"], "\"1\"");
        }
        let read = answer(client.get(url(42))).await;
        assert_eq!((read.status, read.text().as_str()), (200, "42"));

        let stale = answer(client.put(url(42)).header("X-Fencing-Token", 4).body("x")).await;
        assert_eq!((stale.status, stale.problem().as_str()), (409, "stale-token"));
        let large = client.put(url(42)).header("X-Fencing-Token", 5).body(vec![0; (1 << 20) + 1]);
        assert_eq!(answer(large).await.problem(), "too-large");
        let unnamed = client.put(format!("http://{}/v1/resources/", server.address));
        assert_eq!(answer(unnamed).await.problem(), "invalid-key");
    }
}

on_each_store! {
    async fn a_client_that_hangs_up_half_way_writes_nothing(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let body = "v".repeat(40);
        let length = text("PUT", "/v1/resources/cut/000", &["X-Fencing-Token: 5"], &body).len();
        for cut in 0..length {
            let key = format!("/v1/resources/cut/{cut:03}");
            let request = text("PUT", &key, &["X-Fencing-Token: 5"], &body);
            let mut stream = connect(&server).await;
            if cut % 2 == 0 {
                // A reset, as from a process that was killed.
                stream.set_zero_linger().expect("a socket option");
            }
            stream.write_all(&request.as_bytes()[..cut]).await.expect("it is sent");
        }
        let client = server.client();
        assert_eq!(answer(client.put("whole", 5, "v")).await.status, 201);
        let listed = answer(client.get("/v1/resources?prefix=cut/")).await.json();
        assert_eq!(listed["resources"], json!([]));
        for cut in 0..length {
            assert_eq!(client.mark(&format!("cut/{cut:03}")).await, (0, 0));
        }
    }
}

on_each_store! {
    /// Repeating the write with the same seq tells what became of it; it is never there twice, or
    /// in part.
    async fn a_client_that_hangs_up_before_the_answer_can_find_out(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let body = "v".repeat(20_000);
        for number in 0..60 {
            let headers = ["X-Fencing-Token: 5", "X-Fencing-Seq: 1"];
            let request = text("PUT", &format!("/v1/resources/{number}"), &headers, &body);
            let mut stream = connect(&server).await;
            if number % 2 == 0 {
                stream.set_zero_linger().expect("a socket option");
            }
            stream.write_all(request.as_bytes()).await.expect("it is sent");
            // Somewhere between the first byte and the answer: time itself is under test.
            tokio::time::sleep(Duration::from_micros(number * 100)).await;
        }
        for number in 0..60 {
            let read = answer(client.read(&number.to_string())).await;
            assert!(read.status == 404 || read.text() == body, "{number} is there in part");
            let repeat = client
                .request(reqwest::Method::PUT, &format!("/v1/resources/{number}"))
                .header("X-Fencing-Token", 5)
                .header("X-Fencing-Seq", 1)
                .body(body.clone());
            let repeat = answer(repeat).await;
            assert_eq!((repeat.status, repeat.fencing()), (201, (Some("5"), Some("\"1\""))));
            assert_eq!(answer(client.read(&number.to_string())).await.text(), body);
        }
    }
}

/// The client is gone while its statement waits in Postgres. Nobody may cancel that half way, or
/// hand its connection to somebody else.
#[tokio::test]
async fn trap_9_a_write_whose_client_is_gone_runs_to_its_end() {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--store-connections", "1"]).await;
    let client = server.client();
    answer(client.put("k", 5, "old")).await;

    let blocker = postgres::lock_row(&store.url, "k").await;
    let mut stream = connect(&server).await;
    let request = text("PUT", "/v1/resources/k", &["X-Fencing-Token: 6"], "new");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    eventually("the write waits", || postgres::somebody_waits(&store.url)).await;
    drop(stream);
    // Another write for the only connection, which must not get in between.
    let next = tokio::spawn(answer(client.put("other", 7, "v")));
    blocker.close().await.expect("the row is free");

    assert_eq!(next.await.expect("an answer").status, 201);
    assert_eq!(answer(client.read("k")).await.text(), "new");
    assert_eq!(client.mark("k").await, (6, 0));
}
