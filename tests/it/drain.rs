//! The way out: on SIGTERM it turns unready, goes on serving, finishes, and ends in time.

use nix::sys::signal::Signal;
use sqlx::Connection;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::harness::{
    eventually,
    fencepost::Fencepost,
    http::{answer, read_answer, text},
    postgres,
    store::TestStore,
};

async fn connect(server: &Fencepost, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).await.expect("it listens");
    stream.write_all(bytes.as_bytes()).await.expect("it is sent");
    stream
}

/// A put of `key` whose last byte, an `x`, is still to come.
async fn unfinished_put(server: &Fencepost, key: &str) -> TcpStream {
    let target = format!("/v1/resources/{key}");
    let headers = ["X-Fencing-Token: 5", "Expect: 100-continue"];
    let request = text("PUT", &target, &headers, "xxx");
    let mut stream = connect(server, &request[..request.len() - 3]).await;
    // Being asked for the body shows that the request has arrived.
    assert_eq!(read_answer(&mut stream).await.status, 100);
    stream.write_all(b"xx").await.expect("it is sent");
    stream
}

async fn is_unready(server: &Fencepost) -> bool {
    let probe = server.admin_client().get("/readyz").send().await;
    probe.is_ok_and(|answer| answer.status() == 503)
}

async fn terminate(server: &Fencepost) {
    server.signal(Signal::SIGTERM);
    eventually("it is unready", || is_unready(server)).await;
}

/// Waits without blocking the other tasks of the test, for less than an hour's drain: the exit code.
async fn end(server: &mut Fencepost) -> Option<i32> {
    eventually("it ends", || {
        let running = server.is_running();
        async move { !running }
    })
    .await;
    server.wait().code()
}

#[tokio::test]
async fn it_turns_unready_and_goes_on_serving() {
    let store = TestStore::sqlite();
    let mut server = Fencepost::with(&store, &["--drain", "1h"]).await;
    let old = server.client();
    answer(old.put("k", 1, "v")).await;
    // For as long as this one is under way, nobody can think that the server is not needed.
    let mut pending = unfinished_put(&server, "pending").await;

    terminate(&server).await;
    let verbose = answer(server.admin_client().get("/readyz?verbose")).await;
    assert!(verbose.text().contains("[-] serving: shutting down"), "{}", verbose.text());
    assert_eq!(answer(server.admin_client().get("/livez")).await.status, 200);
    for token in 2..20 {
        let done = answer(old.put("k", token, "v")).await;
        // It is told not to send another on a connection that is about to go.
        assert_eq!((done.status, done.header("connection")), (200, Some("close")));
        // Every client has connections of its own.
        assert_eq!(answer(server.client().put("k", token, "v")).await.status, 200);
    }

    pending.write_all(b"x").await.expect("it is sent");
    assert_eq!(read_answer(&mut pending).await.status, 201);
    let code = end(&mut server).await;
    assert_eq!(code, Some(0));
    let again = Fencepost::on(&store).await;
    assert_eq!(answer(again.client().read("pending")).await.text(), "xxx");
}

#[tokio::test]
async fn an_idle_server_ends_quickly() {
    let store = TestStore::sqlite();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Fencepost::with(&store, &["--drain", "1h"]).await;
        // Connections that are open and idle are no reason to stay.
        let client = server.client();
        answer(client.read("k")).await;
        let http_2 = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
        let url = format!("http://{}/v1/resources/k", server.address);
        answer(http_2.get(url)).await;
        let _silent = connect(&server, "").await;
        let _half_a_head = connect(&server, "GET /v1/lo").await;

        server.signal(signal);
        let code = end(&mut server).await;
        assert_eq!(code, Some(0));
    }
}

#[tokio::test]
async fn it_ends_in_time_however_much_is_asked_of_it() {
    let store = TestStore::sqlite();
    let mut server = Fencepost::with(&store, &["--drain", "1s"]).await;
    let _half_a_head = connect(&server, "PUT /v1/resources/k HTTP/1.1\r\nHost: te").await;
    let _half_a_body = unfinished_put(&server, "half").await;
    let (client, other) = (server.client(), server.client());
    let busy = tokio::spawn(async move {
        let mut answered = 0;
        while let (Ok(_), Ok(_)) = (
            client.put("busy", 5, "v").send().await,
            other.read("busy").header("Connection", "close").send().await,
        ) {
            answered += 1;
        }
        answered
    });

    server.signal(Signal::SIGTERM);
    let code = end(&mut server).await;
    assert_eq!(code, Some(0));
    assert!(busy.await.expect("a count") > 0);
    let again = Fencepost::on(&store).await;
    assert_eq!(again.client().mark("half").await, (0, 0));
}

#[tokio::test]
async fn what_waits_for_the_database_is_finished_too() {
    let store = TestStore::postgres().await;
    let mut server = Fencepost::with(&store, &["--drain", "1h"]).await;
    let client = server.client();
    answer(client.put("k", 5, "old")).await;
    let blocker = postgres::lock_row(&store.url, "k").await;
    let waiting = tokio::spawn(answer(client.put("k", 6, "new")));
    eventually("the write waits", || postgres::somebody_waits(&store.url)).await;

    terminate(&server).await;
    blocker.close().await.expect("the row is free");
    let written = waiting.await.expect("an answer");
    assert_eq!((written.status, written.fencing()), (200, (Some("6"), Some("\"2\""))));
    assert_eq!(end(&mut server).await, Some(0));
}

#[tokio::test]
async fn being_asked_twice_ends_it_at_once() {
    let store = TestStore::sqlite();
    let mut server = Fencepost::with(&store, &["--drain", "1h"]).await;
    let _pending = unfinished_put(&server, "k").await;
    terminate(&server).await;
    assert!(server.is_running());
    server.signal(Signal::SIGTERM);
    let code = end(&mut server).await;
    assert!(code.is_some(), "it was killed by the signal");
}

#[tokio::test]
async fn it_can_be_stopped_before_its_database_is_there() {
    let nowhere = format!("postgres://nobody@127.0.0.1:{}/none", crate::harness::free_port());
    let mut server = Fencepost::start(&nowhere, &["--drain", "1h"]);
    server.signal(Signal::SIGTERM);
    let code = end(&mut server).await;
    assert_eq!(code, Some(0));
}
