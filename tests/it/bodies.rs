//! How large a body may be, and what happens to one that is larger.

use reqwest::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::harness::{
    fencepost::Fencepost,
    http::{answer, raw, read_answer, status},
    store::TestStore,
};

const MIB: usize = 1 << 20;

fn head(framing: &str) -> String {
    format!("PUT /v1/resources/k HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 5\r\n{framing}\r\n\r\n")
}

async fn connect(server: &Fencepost, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    stream
}

#[tokio::test]
async fn a_body_has_one_mebibyte_at_most() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    let put = |length| {
        client
            .request(Method::PUT, "/v1/resources/k")
            .header("X-Fencing-Token", 5)
            .body(vec![b'x'; length])
    };
    assert_eq!(answer(put(MIB)).await.status, 201);
    let refused = answer(put(MIB + 1)).await;
    assert_eq!((refused.status, refused.problem().as_str()), (413, "too-large"));
    assert_eq!(answer(client.read("k")).await.body.len(), MIB);
    assert_eq!(answer(client.read("k")).await.header("etag"), Some("\"1\""));
}

#[tokio::test]
async fn chunks_are_counted_too() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--max-body", "1KiB"]).await;
    let chunk = format!("200\r\n{}\r\n", "x".repeat(512));
    for (chunks, expected) in [(2, 201), (3, 413)] {
        let head = head("Transfer-Encoding: chunked\r\nConnection: close");
        let request = format!("{head}{}0\r\n\r\n", chunk.repeat(chunks));
        assert_eq!(status(&raw(&server.address, request).await), expected);
    }
    assert_eq!(answer(server.client().read("k")).await.body.len(), 1024);
}

/// The length alone is reason enough. The client has sent nothing of the body, and never will.
#[tokio::test]
async fn a_length_above_the_limit_is_refused_before_the_body_arrives() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let mut stream = connect(&server, &head("Content-Length: 1000000000000")).await;
    let refused = read_answer(&mut stream).await;
    assert_eq!((refused.status, refused.problem().as_str()), (413, "too-large"));
}

/// Without a length, somebody could send for ever.
#[tokio::test]
async fn an_endless_body_is_cut_off() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let mut stream = connect(&server, &head("Transfer-Encoding: chunked")).await;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let mut sent = 0;
    while stream.write_all(chunk.as_bytes()).await.is_ok() {
        sent += 0x10000;
        assert!(sent < 128 * MIB, "it goes on reading");
    }
    assert_eq!(server.client().mark("k").await, (0, 0));
}

#[tokio::test]
async fn who_asks_before_sending_is_told_to_go_on() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let request = head("Expect: 100-continue\r\nContent-Length: 4");
    let mut stream = connect(&server, &request).await;
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.expect("an interim answer");
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.expect("it is sent");
    assert_eq!(read_answer(&mut stream).await.status, 201);
    assert_eq!(answer(server.client().read("k")).await.text(), "body");
}

#[tokio::test]
async fn who_asks_before_sending_too_much_is_told_not_to() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let request = head(&format!("Expect: 100-continue\r\nContent-Length: {}", MIB + 1));
    let mut stream = connect(&server, &request).await;
    // The first answer is the last: no `100 Continue` comes before it.
    let refused = read_answer(&mut stream).await;
    assert_eq!((refused.status, refused.problem().as_str()), (413, "too-large"));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.expect("it is closed in good order");
    assert_eq!(rest, b"");
}
