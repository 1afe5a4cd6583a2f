//! Answers: JSON bodies and the headers that every resource answer carries.

use std::io;

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Serialize;

use super::FENCING_MARK;
use crate::{fence::Standing, token::Version};

/// Enough for most answers, so that what holds them need not grow.
const HEADERS: usize = 8;
const BODY_BYTES: usize = 512;

/// Beyond this, what a body has reserved and does not use is given back.
const LARGE_BODY_BYTES: usize = 16 << 10;

pub fn headers() -> HeaderMap {
    HeaderMap::with_capacity(HEADERS)
}

pub fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let mut headers = headers();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    json_with(status, headers, document)
}

/// How many bytes a document takes up as JSON, without rendering it.
pub fn json_length(document: &impl Serialize) -> u64 {
    struct Count(u64);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What fails to serialize is rendered as nothing.
    serde_json::to_writer(&mut count, document).map_or(0, |()| count.0)
}

/// A body of a length that is known: it does not grow while it is written.
pub fn json_bytes(length: u64, document: &impl Serialize) -> Vec<u8> {
    let mut body = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    if serde_json::to_writer(&mut body, document).is_err() {
        body.clear();
    }
    body
}

pub fn json_with(status: StatusCode, headers: HeaderMap, document: &impl Serialize) -> Response {
    let mut body = Vec::with_capacity(BODY_BYTES);
    // Plain structs of strings and numbers: there is nothing in them that could fail to serialize.
    if serde_json::to_writer(&mut body, document).is_err() {
        body.clear();
    }
    // It may have grown to twice its length.
    if body.len() > LARGE_BODY_BYTES {
        body.shrink_to_fit();
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// For a HEAD: what a GET would have, but for its body. hyper leaves it out by itself over HTTP/1.1 only.
pub fn without_body(answer: Response) -> Response {
    let length = answer.body().size_hint().exact();
    let mut answer = answer.map(|_| Body::empty());
    let has_none = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&answer.status());
    if let Some(length) = length.filter(|_| !has_none) {
        answer.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    answer
}

/// `X-Fencing-Mark`, and `ETag` where there is a value.
pub fn fencing_headers(headers: &mut HeaderMap, standing: &Standing) {
    headers.reserve(HEADERS);
    headers.insert(FENCING_MARK, HeaderValue::from(standing.mark.token));
    if standing.present {
        headers.insert(header::ETAG, etag(standing.version));
    }
}

/// Every answer has one, and the ways of `format!` would be a third of what its headers cost.
fn etag(version: Version) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(version.get()).as_bytes();
    // No number of 64 bits has more than 20 places.
    let mut quoted = [b'"'; 22];
    quoted[1..=digits.len()].copy_from_slice(digits);
    HeaderValue::from_bytes(&quoted[..digits.len() + 2])
        .expect("digits between quotes are a valid header value")
}
