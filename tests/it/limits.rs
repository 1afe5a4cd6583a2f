//! How much may be asked for at a time: beyond that, 429 with `Retry-After` and the limit's name.

use std::time::Duration;

use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::harness::{
    access::Access,
    eventually,
    fencepost::Fencepost,
    http::{Answer, Client, answer, send},
    store::{TestStore, on_each_store},
};

const LONG: Duration = Duration::from_mins(10);

#[track_caller]
fn assert_over_limit(refused: &Answer, limit: &str) {
    assert_eq!((refused.status, refused.problem().as_str()), (429, "overloaded"));
    let document = refused.json();
    assert_eq!((&document["limit"], &document["retryable"]), (&json!(limit), &json!(true)));
    let seconds: u64 = refused.header("retry-after").expect("when").parse().expect("seconds");
    assert!((1..=60).contains(&seconds), "{seconds}");
}

async fn turned_away(server: &Fencepost, limit: &str) -> f64 {
    let scraped = answer(server.admin_client().get("/metrics")).await.text();
    let series = format!("fencepost_over_limit_total{{limit=\"{limit}\",whose=\"total\"}} ");
    let value = scraped.lines().find_map(|line| line.strip_prefix(&series));
    value.expect("a series").parse().expect("a number")
}

/// Sends so many at once, and tells how many were refused, each in the right way.
async fn flood(client: &Client, requests: usize) -> usize {
    let answers = (0..requests).map(|_| tokio::spawn(answer(client.put("k", 1, "v"))));
    let mut refused = 0;
    for answered in answers.collect::<Vec<_>>() {
        let answered = answered.await.expect("an answer");
        if answered.status == 429 {
            assert_over_limit(&answered, "requests");
            refused += 1;
        } else {
            assert!([200, 201].contains(&answered.status), "{}", answered.text());
        }
    }
    refused
}

#[tokio::test]
async fn requests_by_the_second() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--max-requests-per-second", "2"]).await;
    let client = server.client();
    eventually("a flood is turned away", || {
        let flood = flood(&client, 50);
        async { flood.await > 0 }
    })
    .await;
    assert!(turned_away(&server, "requests").await >= 1.0);
    // Whoever looks after the server is not kept out by it.
    for _ in 0..20 {
        assert_eq!(answer(server.admin_client().get("/readyz")).await.status, 200);
    }
    // What was not judged is no rejection: a flood would hide those that matter.
    let rejections = answer(server.admin_client().get("/v1/rejections")).await.json();
    assert_eq!(rejections["rejections"], json!([]));
    eventually("a patient client is served", || {
        let request = client.put("k", 1, "v");
        async { answer(request).await.status == 200 }
    })
    .await;
}

on_each_store! {
    async fn locks_that_are_held(store: TestStore) {
        let flags = ["--authority", "store", "--max-locks", "2"];
        let server = Fencepost::with(&store, &flags).await;
        let client = server.client();
        let first = client.lock("a", LONG).await;
        client.lock("b", Duration::from_secs(15)).await;
        let refused = answer(client.acquire("c", &json!({}))).await;
        assert_over_limit(&refused, "locks");
        assert!(turned_away(&server, "locks").await >= 1.0);
        assert_eq!(answer(client.renew("a", first)).await.status, 200, "that is not one more");
        assert_eq!(answer(client.put("a", first, "v")).await.status, 201, "nor is a write");
        assert_eq!(answer(client.release("a", first)).await.status, 204);
        // One is released, and the other runs out.
        for name in ["c", "d"] {
            eventually("there is room again", || {
                let request = client.acquire(name, &json!({"ttl_ms": 600_000}));
                async { answer(request).await.status == 201 }
            })
            .await;
        }
        assert_over_limit(&answer(client.acquire("e", &json!({}))).await, "locks");
    }
}

/// Somebody else's lock takes no place of those who do not get it.
#[tokio::test]
async fn a_lock_that_was_not_granted_takes_no_place() {
    let flags = ["--authority", "store", "--max-locks", "2"];
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &flags).await;
    let client = server.client();
    client.lock("a", LONG).await;
    for _ in 0..5 {
        assert_eq!(answer(client.acquire("a", &json!({}))).await.status, 423);
    }
    client.lock("b", LONG).await;
}

#[tokio::test]
async fn a_head_that_is_too_large() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--max-head", "16KiB"]).await;
    let padded = |bytes: usize| format!("X-Padding: {}", "x".repeat(bytes));
    let fits = send(&server.address, "GET", "/v1/resources/k", &[&padded(8 << 10)], "").await;
    assert_eq!(fits.status, 404);
    let refused = send(&server.address, "GET", "/v1/resources/k", &[&padded(64 << 10)], "").await;
    assert_eq!(refused.status, 431);
}

/// Of two identities one has used up what is its own; the other does not notice.
#[tokio::test]
async fn each_identity_has_its_own() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let (greedy, modest) = (access.token("greedy"), access.token("modest"));
    let tokens = access.path("tokens");
    let flags = ["--tokens-file", &tokens, "--authority", "store", "--identity-locks", "1"];
    let flags = [&flags[..], &["--identity-streams", "1", "--identity-waiters", "1"]].concat();
    let server = Fencepost::with(&store, &flags).await;
    let greedy = server.client().bearing(&greedy);
    let modest = server.client().bearing(&modest);
    greedy.lock("a", LONG).await;
    assert_over_limit(&answer(greedy.acquire("b", &json!({}))).await, "locks");
    modest.lock("b", LONG).await;
    let watch =
        |client: &Client| client.get("/v1/locks/a").header("Accept", "text/event-stream").send();
    let watched = watch(&greedy).await.expect("events");
    assert_eq!(watched.status(), 200);
    assert_over_limit(&Answer::of(watch(&greedy).await.expect("an answer")).await, "streams");
    let also = watch(&modest).await.expect("events");
    assert_eq!(also.status(), 200);
    let scraped = answer(server.admin_client().get("/metrics")).await.text();
    let series = "fencepost_over_limit_total{limit=\"locks\",whose=\"identity\"} 1";
    assert!(scraped.contains(series), "{scraped}");
}

#[tokio::test]
async fn each_identity_has_its_own_connections_and_requests() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let (greedy, modest) = (access.token("greedy"), access.token("modest"));
    let tokens = access.path("tokens");
    let flags = ["--tokens-file", &tokens, "--identity-connections", "1"];
    let flags = [&flags[..], &["--identity-requests-per-second", "1"]].concat();
    let server = Fencepost::with(&store, &flags).await;
    // Each has connections of its own.
    let first = server.client().bearing(&greedy);
    let second = Client::new(&server.address).bearing(&greedy);
    assert_eq!(answer(first.read("k")).await.status, 404);
    let refused = answer(second.read("k")).await;
    assert_over_limit(&refused, "connections");
    assert_eq!(refused.header("connection"), Some("close"));
    eventually("it asks for too much", || {
        let request = first.read("k");
        async { answer(request).await.status == 429 }
    })
    .await;
    let other = Client::new(&server.address).bearing(&modest);
    assert_eq!(answer(other.read("k")).await.status, 404);
}

/// What strangers send is turned away, and takes nothing from those who are known.
#[tokio::test]
async fn strangers_have_requests_of_their_own() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let token = access.token("orders");
    let tokens = access.path("tokens");
    let flags = ["--tokens-file", &tokens, "--max-requests-per-second", "2"];
    let server = Fencepost::with(&store, &flags).await;
    let (stranger, known) = (server.client(), server.client().bearing(&token));
    eventually("a flood of strangers is turned away", || {
        let request = stranger.read("k");
        async {
            let answer = answer(request).await;
            assert_eq!(answer.header("connection"), Some("close"));
            if answer.status == 429 {
                assert_over_limit(&answer, "requests");
            }
            answer.status == 429
        }
    })
    .await;
    assert_eq!(answer(known.read("k")).await.status, 404);
    let scraped = answer(server.admin_client().get("/metrics")).await.text();
    let series = "fencepost_over_limit_total{limit=\"requests\",whose=\"strangers\"} 1";
    assert!(scraped.contains(series), "{scraped}");
}

/// Sends the head of a put, and half of its body.
async fn half_a_body(server: &Fencepost, bearer: &str, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).await.expect("it listens");
    let head = format!(
        "PUT /v1/resources/half HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 5\r\n\
         Authorization: Bearer {bearer}\r\nContent-Length: {}\r\n\r\n",
        2 * bytes
    );
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    stream.write_all(&vec![b'x'; bytes]).await.expect("it is sent");
    stream
}

#[tokio::test]
async fn bytes_of_bodies_that_are_being_received() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let (greedy, modest) = (access.token("greedy"), access.token("modest"));
    let tokens = access.path("tokens");
    let flags = ["--tokens-file", &tokens, "--identity-bodies", "1MiB", "--max-bodies", "3MiB"];
    let server = Fencepost::with(&store, &flags).await;
    let put = |bearer: &str, kib: usize| {
        let client = server.client().bearing(bearer);
        let request = client.request(reqwest::Method::PUT, "/v1/resources/k");
        request.header("X-Fencing-Token", 5).body(vec![b'x'; kib << 10])
    };
    assert_eq!(answer(put(&greedy, 900)).await.status, 201);
    // What counts is what has come, not what was announced; and it counts twice.
    let half = half_a_body(&server, &greedy, 200 << 10).await;
    eventually("what is left of the room is not enough", || {
        let request = put(&greedy, 900);
        async {
            let answer = answer(request).await;
            if answer.status == 429 {
                assert_over_limit(&answer, "bodies");
            }
            answer.status == 429
        }
    })
    .await;
    assert_eq!(answer(put(&greedy, 300)).await.status, 200, "there is some room left");
    assert_eq!(answer(put(&greedy, 4)).await.status, 200, "small ones always pass");
    assert_eq!(answer(put(&modest, 900)).await.status, 200, "nor does anybody else notice");
    drop(half);
    eventually("there is room again", || {
        let request = put(&greedy, 900);
        async { answer(request).await.status == 200 }
    })
    .await;
}
