//! A lock over HTTP: asked for, kept and given back. What `lock`, `renew`, `unlock` and `run`
//! share.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use clap::Args;
use nix::unistd;
use reqwest::{Method, RequestBuilder, header};
use serde_json::{Value, json};

use super::{Address, http};
use crate::{
    api,
    cli::{exit::Failure, output},
    settings::{Time, some_time},
};

pub const PATH: &str = "/v1/locks/";

/// How soon a server that is away is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How a lock is wanted.
#[derive(Args)]
pub struct Terms {
    /// How long the lock is held after each renewal, 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    pub ttl: Time,

    /// How long to wait for it if somebody else holds it, up to 10m
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub wait: Time,

    /// Who holds it, for people who look at `fencepost locks` [default: USER@HOST:PID]
    #[arg(long, value_name = "TEXT")]
    pub owner: Option<String>,
}

impl Terms {
    pub fn new(ttl: &str, wait: &str, owner: &str) -> Result<Self, Failure> {
        let time = |text: &str| text.parse().map_err(Failure::Settings);
        Ok(Self { ttl: time(ttl)?, wait: time(wait)?, owner: Some(owner.into()) })
    }

    /// The request, to wait for as long as `wait`.
    pub fn request(
        &self,
        address: &Address,
        name: &str,
        wait: Duration,
    ) -> Result<RequestBuilder, Failure> {
        let wish = json!({
            "ttl_ms": milliseconds(self.ttl.0),
            "wait_ms": milliseconds(wait),
            "owner": self.owner.clone().unwrap_or_else(whoever_this_is),
        });
        let request = address.request(Method::POST, PATH, name)?;
        let request = request.header(header::CONTENT_TYPE, "application/json");
        Ok(request.body(wish.to_string()).timeout(wait + http::PATIENCE))
    }

    /// The grant, once it is had. Whoever is ready to wait for a lock waits for its server, too.
    pub async fn acquire(&self, address: &Address, name: &str) -> Result<Value, Failure> {
        let until = Instant::now() + self.wait.0;
        let mut told = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let attempt = http::send(self.request(address, name, left)?).await;
            match attempt {
                Ok(answer) => return http::json(answer).await,
                Err(failure) if failure.passes() && left > ASK_AGAIN => {
                    if !told {
                        let message = output::printable(&failure.message());
                        let _ = writeln!(std::io::stderr(), "waiting: {message}");
                        told = true;
                    }
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

pub async fn renew(request: RequestBuilder, token: &str) -> Result<Value, Failure> {
    http::json(http::send(request.header(api::FENCING_TOKEN, token)).await?).await
}

pub async fn release(request: RequestBuilder, token: &str) -> Result<(), Failure> {
    http::send(request.header(api::FENCING_TOKEN, token)).await.map(drop)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Enough for an operator to find the process that holds a lock.
fn whoever_this_is() -> String {
    let user = unistd::User::from_uid(unistd::geteuid()).ok().flatten();
    let user = user.map_or_else(|| unistd::geteuid().to_string(), |user| user.name);
    let host = unistd::gethostname().unwrap_or_default();
    format!("{user}@{}:{}", host.to_string_lossy(), std::process::id())
}
