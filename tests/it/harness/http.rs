//! Requests as a client library would send them, and raw ones as it never would.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::PATIENCE;

#[derive(Clone)]
pub struct Client {
    scheme: &'static str,
    address: String,
    http: reqwest::Client,
    bearer: Option<String>,
}

/// Its time limits are for each read: a stream may go on for as long as there is something to read.
impl Client {
    pub fn new(address: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().read_timeout(PATIENCE).build().expect("a client");
        Self { scheme: "http", address: address.to_owned(), http, bearer: None }
    }

    /// Over TLS, as `prepare` has it.
    pub fn over_tls(
        address: &str,
        prepare: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
    ) -> Self {
        let plain = Self::new(address);
        let http = prepare(reqwest::Client::builder().read_timeout(PATIENCE));
        Self { scheme: "https", http: http.build().expect("a client"), ..plain }
    }

    /// The same, with a bearer token in every request.
    pub fn bearing(&self, token: &str) -> Self {
        Self { bearer: Some(token.into()), ..self.clone() }
    }

    /// One that asks everything over one HTTP/2 connection.
    pub fn over_http_2(address: &str) -> Self {
        let http = reqwest::Client::builder().read_timeout(PATIENCE).http2_prior_knowledge();
        Self { http: http.build().expect("a client"), ..Self::new(address) }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request =
            self.http.request(method, format!("{}://{}{path}", self.scheme, self.address));
        match &self.bearer {
            Some(bearer) => request.bearer_auth(bearer),
            None => request,
        }
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    /// A put of `body` to a resource, under `token`.
    pub fn put(&self, key: &str, token: i64, body: &'static str) -> RequestBuilder {
        self.request(Method::PUT, &format!("/v1/resources/{key}"))
            .header("X-Fencing-Token", token)
            .body(body)
    }

    pub fn delete(&self, key: &str, token: i64) -> RequestBuilder {
        self.request(Method::DELETE, &format!("/v1/resources/{key}"))
            .header("X-Fencing-Token", token)
    }

    pub fn claim(&self, key: &str, token: i64) -> RequestBuilder {
        self.request(Method::PUT, &format!("/v1/marks/{key}")).header("X-Fencing-Token", token)
    }

    pub fn read(&self, key: &str) -> RequestBuilder {
        self.get(&format!("/v1/resources/{key}"))
    }

    pub fn batch(&self, document: &Value) -> RequestBuilder {
        self.request(Method::POST, "/v1/batch")
            .header("Content-Type", "application/json")
            .body(document.to_string())
    }

    /// The mark of a key, as (token, seq).
    pub async fn mark(&self, key: &str) -> (i64, i64) {
        let answer = answer(self.get(&format!("/v1/marks/{key}"))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mark = answer.json();
        (mark["token"].as_i64().expect("a token"), mark["seq"].as_i64().expect("a seq"))
    }
}

/// A whole answer, taken apart.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    headers: reqwest::header::HeaderMap,
    pub body: Vec<u8>,
}

pub async fn answer(request: RequestBuilder) -> Answer {
    Answer::of(request.send().await.expect("an answer")).await
}

/// As a client would: again, for as long as it is told that nothing was changed.
pub async fn insist(request: RequestBuilder) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = answer(request.try_clone().expect("a body in memory")).await;
        if answer.status != 503 || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Answer {
    pub async fn of(response: Response) -> Self {
        Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await.expect("the whole body").to_vec(),
        }
    }

    /// Takes apart the bytes of an HTTP/1.1 answer; `None` while some of them are missing.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).expect("a head is ASCII");
        let mut headers = reqwest::header::HeaderMap::new();
        for line in head.lines().skip(1) {
            let (name, value) = line.split_once(": ").expect("a header");
            let name = reqwest::header::HeaderName::try_from(name).expect("a header's name");
            headers.append(name, value.parse().expect("a header's value"));
        }
        let length =
            headers.get("content-length").map_or("0", |value| value.to_str().expect("digits"));
        let body = bytes[end + 4..].get(..length.parse().expect("a length"))?.to_vec();
        Some(Self { status: status(head), headers, body })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    /// The name of the problem this is. Panics if it is not a well-formed one.
    pub fn problem(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.text()
        );
        let document = self.json();
        assert_eq!(document["status"], self.status, "{document}");
        for member in ["title", "detail"] {
            assert!(document[member].is_string(), "{document}");
        }
        assert!(document["retryable"].is_boolean(), "{document}");
        let kind = document["type"].as_str().expect("a type");
        kind.strip_prefix("urn:fencepost:").expect("a type of ours").to_owned()
    }

    /// A problem without its prose, which is for people.
    pub fn members(&self) -> Value {
        self.problem();
        let mut document = self.json();
        let members = document.as_object_mut().expect("an object");
        members.remove("title");
        members.remove("detail");
        document
    }

    /// `X-Fencing-Mark` and `ETag`.
    pub fn fencing(&self) -> (Option<&str>, Option<&str>) {
        (self.header("x-fencing-mark"), self.header("etag"))
    }
}

/// A request as text, complete and correct; a test may then spoil it.
pub fn text(method: &str, target: &str, headers: &[&str], body: &str) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n");
    for header in headers {
        head += header;
        head += "\r\n";
    }
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The same, on a connection of its own.
pub async fn send(
    address: &str,
    method: &str,
    target: &str,
    headers: &[&str],
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = text(method, target, headers, body);
    stream.write_all(request.as_bytes()).await.expect("the request is sent");
    read_answer(&mut stream).await
}

/// One answer off a connection that stays open.
pub async fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    loop {
        if let Some(answer) = Answer::parse(&bytes) {
            return answer;
        }
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut bytes)).await;
        let count = read.expect("an answer in time").expect("an answer");
        assert!(count > 0, "closed in mid-answer: {:?}", String::from_utf8_lossy(&bytes));
    }
}

/// Sends bytes as they are, and returns what comes back until the other side closes.
pub async fn raw(address: &str, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_ref()).await.expect("the request is sent");
    read_to_end(&mut stream).await
}

/// What comes back until the other side closes; a reset counts as the end.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(count)) => bytes.extend_from_slice(&buffer[..count]),
            Err(elapsed) => panic!("still open, {elapsed}: {}", String::from_utf8_lossy(&bytes)),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The status of a raw answer.
pub fn status(answer: &str) -> u16 {
    answer
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .unwrap_or_else(|| panic!("not an answer: {answer:?}"))
}

/// How long a test lets a server wait before it must have given up on a client.
pub const SHORT: Duration = Duration::from_millis(500);
