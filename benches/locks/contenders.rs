//! Who takes part: etcd spoken to directly, and a fencepost in front of it.

use etcd_client::PutOptions;

use crate::wire::{Connection, Protocol, header};

/// Longer than the whole run: no lease ends by itself meanwhile.
const TTL_SECONDS: i64 = 3600;

#[derive(Clone)]
pub enum Contender {
    Direct(Direct),
    OverHttp(OverHttp),
}

#[derive(Clone)]
pub struct Direct {
    address: String,
}

#[derive(Clone)]
pub struct OverHttp {
    address: String,
}

impl Direct {
    pub fn new(url: &str) -> Self {
        Self { address: url.replace("etcd://", "http://") }
    }
}

impl OverHttp {
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned() }
    }
}

impl Contender {
    /// A client with a connection of its own, warm.
    pub async fn client(&self, number: usize) -> Client {
        match self {
            Self::Direct(Direct { address }) => {
                let etcd = etcd_client::Client::connect([address], None).await.expect("etcd");
                Client::Direct { etcd: Box::new(etcd), key: format!("direct/{number}") }
            }
            Self::OverHttp(OverHttp { address }) => {
                let http =
                    Connection::open(address, Protocol::AnyHttp).await.expect("a connection");
                Client::OverHttp { http, path: format!("/v1/locks/bench/{number}") }
            }
        }
    }
}

pub enum Client {
    Direct { etcd: Box<etcd_client::Client>, key: String },
    OverHttp { http: Connection, path: String },
}

impl Client {
    pub async fn acquire_and_release(&mut self) {
        match self {
            Self::Direct { etcd, key } => {
                let lease = etcd.lease_grant(TTL_SECONDS, None).await.expect("a lease").id();
                let with_lease = PutOptions::new().with_lease(lease);
                etcd.put(key.as_str(), "", Some(with_lease)).await.expect("a put");
                etcd.delete(key.as_str(), None).await.expect("a delete");
            }
            Self::OverHttp { http, path } => {
                let terms = format!("{{\"ttl_ms\":{}}}", TTL_SECONDS * 1000);
                let granted = ask(
                    http,
                    &format!(
                        "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
                         content-length: {}\r\n\r\n{terms}",
                        terms.len()
                    ),
                )
                .await;
                assert!(granted.starts_with("HTTP/1.1 201"), "a grant: {granted}");
                let token = header(granted, "x-fencing-token").expect("a token").to_owned();
                let released = ask(
                    http,
                    &format!(
                        "DELETE {path} HTTP/1.1\r\nhost: bench\r\nx-fencing-token: {token}\r\n\r\n"
                    ),
                )
                .await;
                assert!(released.starts_with("HTTP/1.1 204"), "a release: {released}");
            }
        }
    }
}

async fn ask<'a>(http: &'a mut Connection, request: &str) -> &'a str {
    let answer = http.exchange(request.as_bytes()).await.expect("an answer");
    std::str::from_utf8(answer).expect("text")
}
