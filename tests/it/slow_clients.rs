//! Clients that keep a connection and do nothing with it: each is closed at a deadline.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use crate::harness::{
    PATIENCE, eventually,
    fencepost::Fencepost,
    http::{Answer, read_answer, read_to_end, text},
    store::TestStore,
};

const IMPATIENT: &[&str] =
    &["--header-timeout", "300ms", "--body-timeout", "300ms", "--write-timeout", "300ms"];

/// Far above the deadlines under test, and far below those that a server of the tests has otherwise.
const SOON: Duration = PATIENCE;

async fn impatient(store: &TestStore) -> Fencepost {
    Fencepost::with(store, IMPATIENT).await
}

async fn connect(server: &Fencepost) -> TcpStream {
    TcpStream::connect(&server.address).await.expect("it listens")
}

/// Everything that still comes until the server closes, which must be soon.
async fn rest(stream: &mut TcpStream) -> String {
    let start = Instant::now();
    let rest = read_to_end(stream).await;
    assert!(start.elapsed() < SOON, "closed after {:?}", start.elapsed());
    rest
}

/// Sends a byte now and then for as long as the server takes them.
async fn dribble(stream: &mut TcpStream, byte: u8) {
    let start = Instant::now();
    while stream.write_all(&[byte]).await.is_ok() {
        assert!(start.elapsed() < SOON, "still open");
        // A slow client is what is under test.
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn half_a_request_is_closed_at_a_deadline() {
    let store = TestStore::sqlite();
    let server = impatient(&store).await;
    for part in [
        "",
        "P",
        "PRI",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "GET ",
        "GET /v1/resources/k HTTP/1.1\r\n",
        "GET /v1/resources/k HTTP/1.1\r\nHost: test\r\nX: y\r\n",
    ] {
        let mut stream = connect(&server).await;
        stream.write_all(part.as_bytes()).await.expect("it is sent");
        let rest = rest(&mut stream).await;
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 4"), "{part:?}: {rest:?}");
    }
}

#[tokio::test]
async fn http_2_without_a_request_is_closed_at_a_deadline() {
    let store = TestStore::sqlite();
    let server = impatient(&store).await;
    let mut stream = connect(&server).await;
    // The preface, and an empty SETTINGS frame.
    let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(greeting).await.expect("it is sent");
    rest(&mut stream).await;
}

/// Its pings are answered, and still it is idle.
#[tokio::test]
async fn an_idle_http_2_connection_gives_its_place_up() {
    let store = TestStore::sqlite();
    let flags = ["--header-timeout", "300ms", "--max-connections", "1"];
    let server = Fencepost::with(&store, &flags).await;
    let http_2 = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    let url = format!("http://{}/v1/marks/k", server.address);
    assert_eq!(http_2.get(&url).send().await.expect("an answer").status(), 200);
    eventually("there is a place for another", || async {
        let another = server.client().get("/v1/marks/k").send().await;
        another.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
}

#[tokio::test]
async fn a_dribbled_head_is_closed_at_a_deadline() {
    let store = TestStore::sqlite();
    let server = impatient(&store).await;
    let mut stream = connect(&server).await;
    stream.write_all(b"GET / HTTP/1.1\r\nX: ").await.expect("it is sent");
    dribble(&mut stream, b'y').await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_at_a_deadline() {
    let store = TestStore::sqlite();
    let server = impatient(&store).await;
    let mut stream = connect(&server).await;
    let request = text("GET", "/v1/resources/k", &[], "");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    assert_eq!(read_answer(&mut stream).await.status, 404);
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_refused_at_a_deadline() {
    let store = TestStore::sqlite();
    let server = impatient(&store).await;
    for (target, framing) in [
        ("PUT /v1/resources/k", "Content-Length: 100"),
        ("PUT /v1/resources/k", "Transfer-Encoding: chunked"),
        ("POST /v1/batch", "Content-Type: application/json\r\nContent-Length: 100"),
    ] {
        let head =
            format!("{target} HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 5\r\n{framing}\r\n\r\n2");
        let mut stream = connect(&server).await;
        stream.write_all(head.as_bytes()).await.expect("it is sent");
        let answer = rest(&mut stream).await;
        let answer = Answer::parse(answer.as_bytes()).expect("a whole answer");
        assert_eq!((answer.status, answer.problem().as_str()), (408, "request-timeout"));
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert_eq!(server.client().mark("k").await, (0, 0));
}

#[tokio::test]
async fn a_dribbled_body_is_refused_at_a_deadline() {
    let store = TestStore::sqlite();
    let server = impatient(&store).await;
    let mut stream = connect(&server).await;
    let request = text("PUT", "/v1/resources/k", &["X-Fencing-Token: 5"], &"x".repeat(100_000));
    let head = request.trim_end_matches('x');
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    dribble(&mut stream, b'x').await;
    assert_eq!(server.client().mark("k").await, (0, 0));
}

/// A body that nobody reads must not keep the connection open.
#[tokio::test]
async fn half_a_body_on_a_read_is_no_reason_to_wait() {
    let store = TestStore::sqlite();
    let server = impatient(&store).await;
    let mut stream = connect(&server).await;
    let head = "GET /v1/resources/k HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nx";
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    assert_eq!(read_answer(&mut stream).await.status, 404);
    rest(&mut stream).await;
}

/// Asks for a large value and takes no more of it than the first line. `None` if there was no room.
async fn lazy_reader(server: &Fencepost) -> Option<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let address = server.address.parse().expect("an address");
    let mut stream = socket.connect(address).await.expect("it listens");
    let request = text("GET", "/v1/resources/large", &[], "");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.ok()?;
    (&first == b"HTTP/1.1 200 OK").then_some(stream)
}

/// There is room for one connection: that somebody else gets in shows that it was closed.
#[tokio::test]
async fn a_reader_that_never_reads_is_closed_at_a_deadline() {
    // More than the buffers of two sockets can hold.
    const LENGTH: usize = 32 << 20;
    let store = TestStore::sqlite();
    // Sending that much may take its time.
    let impatient = ["--header-timeout", "300ms", "--write-timeout", "300ms"];
    let flags = [&impatient[..], &["--max-connections", "1", "--max-body", "32MiB"]].concat();
    let server = Fencepost::with(&store, &flags).await;
    let large = server.client().request(reqwest::Method::PUT, "/v1/resources/large");
    let large = large.header("X-Fencing-Token", 5).body(vec![b'x'; LENGTH]);
    assert_eq!(large.send().await.expect("an answer").status(), 201);

    let mut lazy = None;
    while lazy.is_none() {
        // The connection of the put may still be there.
        lazy = tokio::time::timeout(SOON, lazy_reader(&server)).await.expect("an answer");
    }
    let start = Instant::now();
    eventually("the lazy reader is closed", || async {
        let other = server.client().read("none").send().await;
        other.is_ok_and(|answer| answer.status() == 404)
    })
    .await;
    assert!(start.elapsed() < SOON);
    let rest = read_to_end(&mut lazy.expect("a reader")).await;
    assert!(rest.len() < LENGTH, "it was given everything");
}
