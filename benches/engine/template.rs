//! Requests that are written once, and differ only in the digits of their key. Filling those in is
//! all that is left to do for each request, so the generator stays out of the way.

use std::ops::Range;

use base64::{Engine, prelude::BASE64_STANDARD};

use super::wire::redis_command;

pub const TOKEN: i64 = 7;
const STALE_TOKEN: i64 = 1;
const VALUE_BYTES: usize = 200;

/// A key is this and nine digits: so many bytes that its digits stay apart in base64 as well.
const KEY: &str = "bench/";
const DIGITS: usize = 9;
const HOLE: &str = "#########";
const BASE64_HOLE: &str = "############";
/// Where a client's own number belongs.
const OWN_HOLE: &str = "@@@@";

#[derive(Clone)]
pub struct Template {
    bytes: Vec<u8>,
    /// Where the digits belong.
    holes: Vec<Range<usize>>,
    in_base64: bool,
}

impl Template {
    fn new(bytes: impl Into<Vec<u8>>, hole: &str) -> Self {
        let bytes = bytes.into();
        let windows = bytes.windows(hole.len()).enumerate();
        let holes = windows.filter(|(_, window)| *window == hole.as_bytes());
        let holes = holes.map(|(start, _)| start..start + hole.len()).collect();
        Self { bytes, holes, in_base64: hole == BASE64_HOLE }
    }

    pub fn put(address: &str) -> Self {
        Self::put_with(address, TOKEN)
    }

    /// Each client has a lock of its own, which guards whatever it writes.
    pub fn scoped_put(address: &str) -> Self {
        Self::put(address).with(&format!("x-fencing-scope: lock/{OWN_HOLE}"))
    }

    pub fn stale_put(address: &str) -> Self {
        Self::put_with(address, STALE_TOKEN)
    }

    /// With one more header.
    fn with(self, header: &str) -> Self {
        let text = String::from_utf8(self.bytes).expect("ASCII");
        Self::new(text.replacen("\r\n", &format!("\r\n{header}\r\n"), 1), HOLE)
    }

    /// As the client with this number sends it.
    pub fn of_client(&self, number: usize) -> Self {
        let mut own = self.clone();
        let hole = self.bytes.windows(OWN_HOLE.len()).position(|it| it == OWN_HOLE.as_bytes());
        if let Some(start) = hole {
            let number = format!("{:04}", number % 10_000);
            own.bytes[start..start + OWN_HOLE.len()].copy_from_slice(number.as_bytes());
        }
        own
    }

    /// The same, from somebody who proves who they are.
    pub fn stale_put_by(address: &str, bearer: &str) -> Self {
        Self::stale_put(address).with(&format!("authorization: Bearer {bearer}"))
    }

    /// The same bytes, to where nothing is.
    pub fn astray_put(address: &str) -> Self {
        let put = Self::stale_put(address);
        let text = String::from_utf8(put.bytes).expect("ASCII");
        Self::new(text.replacen("/v1/resources/", "/v1/elsewhere/", 1), HOLE)
    }

    fn put_with(address: &str, token: i64) -> Self {
        let request = format!(
            "PUT /v1/resources/{KEY}{HOLE} HTTP/1.1\r\nhost: {address}\r\nx-fencing-token: {token}\r\n\
             content-type: text/plain\r\ncontent-length: {VALUE_BYTES}\r\n\r\n{}",
            value()
        );
        Self::new(request, HOLE)
    }

    pub fn get(address: &str) -> Self {
        Self::new(
            format!("GET /v1/resources/{KEY}{HOLE} HTTP/1.1\r\nhost: {address}\r\n\r\n"),
            HOLE,
        )
    }

    /// Under the token that the key has seen last.
    pub fn fenced_get(address: &str) -> Self {
        Self::get(address).with(&format!("x-fencing-token: {TOKEN}"))
    }

    /// The same fenced write in one transaction, as etcd's JSON gateway takes it.
    pub fn etcd_json(address: &str) -> Self {
        let key = format!("{}{BASE64_HOLE}", BASE64_STANDARD.encode(KEY));
        let [bound, stored] = [etcd_bound(), etcd_value()].map(|it| BASE64_STANDARD.encode(it));
        let body = format!(
            r#"{{"compare":[{{"target":"VALUE","result":"LESS","key":"{key}","value":"{bound}"}}],"success":[{{"request_put":{{"key":"{key}","value":"{stored}"}}}}],"failure":[{{"request_range":{{"key":"{key}"}}}}]}}"#
        );
        let request = format!(
            "POST /v3/kv/txn HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Self::new(request, BASE64_HOLE)
    }

    /// `EVALSHA` of a script with one key, a token and a value.
    pub fn redis(script: &str) -> Self {
        let key = format!("{KEY}{HOLE}");
        let words = ["EVALSHA", script, "1", &key, &TOKEN.to_string(), &value()];
        Self::new(redis_command(&words), HOLE)
    }

    /// The request for one key.
    pub fn fill(&mut self, key: u64) -> &[u8] {
        let mut digits = [b'0'; DIGITS];
        let mut rest = key;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
        for hole in &self.holes {
            let place = &mut self.bytes[hole.clone()];
            if self.in_base64 {
                BASE64_STANDARD.encode_slice(digits, place).expect("the hole is as long as that");
            } else {
                place.copy_from_slice(&digits);
            }
        }
        &self.bytes
    }
}

pub fn value() -> String {
    "v".repeat(VALUE_BYTES)
}

pub fn key(number: u64) -> String {
    format!("{KEY}{number:09}")
}

/// In etcd the mark is the head of the value, so that one comparison judges it and one put raises
/// it: as cheap as etcd can have it.
pub fn etcd_value() -> Vec<u8> {
    [&TOKEN.to_be_bytes()[..], value().as_bytes()].concat()
}

/// What is stored under `TOKEN` or a lower one sorts below this.
pub fn etcd_bound() -> Vec<u8> {
    (TOKEN + 1).to_be_bytes().to_vec()
}
