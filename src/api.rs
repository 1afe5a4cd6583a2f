//! The public HTTP contract, version 1. The status says what the client should do; the problem's
//! type says why. This module and [`crate::admin`] are the only ones that know HTTP statuses.
//!
//! | route | file |
//! |---|---|
//! | `/v1/resources`, `/v1/resources/{key}` | `resources.rs`, `listing.rs` |
//! | `/v1/marks/{key}` | `marks.rs` |
//! | `/v1/batch` | `batch.rs` |
//! | `/v1/locks`, `/v1/locks/{name}` | `locks.rs` |
//! | `/v1/rejections` | `rejections.rs` |
//! | `/openapi.json` | `openapi.rs` |

mod accept;
pub mod batch;
mod body;
mod browsers;
mod caller;
mod content_type;
mod door;
mod events;
pub mod extract;
mod guarded;
pub mod host;
pub mod listing;
pub mod locks;
pub mod marks;
mod measure;
mod misnamed;
pub mod named;
pub mod openapi;
mod outcome;
pub mod problem;
mod query;
pub mod rejections;
mod render;
pub mod resources;
mod route;
mod visit;
mod weighed;

use std::{ops::Deref, sync::Arc, time::Duration};

use axum::{
    extract::Request,
    http::{Extensions, HeaderName, Version, header},
    response::Response,
};
use bytesize::ByteSize;
use tokio_util::sync::CancellationToken;

pub(crate) use self::route::{no_such_method, no_such_route};
pub use self::{door::Door, guarded::Guarded, route::Route};
use self::{
    named::{Name, Named},
    problem::{Kind, Problem},
};
use crate::{
    auth::{Access, gate::SharedGate},
    limits::Limits,
    metrics::Metrics,
    server::Answers,
    write::Rule,
};

pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("x-fencing-token");
pub const FENCING_SEQ: HeaderName = HeaderName::from_static("x-fencing-seq");
pub const FENCING_SCOPE: HeaderName = HeaderName::from_static("x-fencing-scope");
pub const FENCING_RULE: HeaderName = HeaderName::from_static("x-fencing-rule");
pub const FENCING_CLIENT: HeaderName = HeaderName::from_static("x-fencing-client");
pub const FENCING_MARK: HeaderName = HeaderName::from_static("x-fencing-mark");
pub const FENCING_REPLAY: HeaderName = HeaderName::from_static("x-fencing-replay");

/// What the handlers share. Every request has it handed over a few times, so that must cost nothing.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

pub struct Shared {
    /// The engine and the locks, for those who may.
    pub guarded: Guarded,
    /// Where authentication is on.
    pub gate: SharedGate,
    pub limits: Arc<Limits>,
    /// Whether nobody but this machine can ask.
    pub on_loopback: bool,
    /// The rule for writes that name none.
    pub rule: Rule,
    pub max_body: ByteSize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// Cancelled when the process is about to end: streams end with it.
    pub closing: CancellationToken,
}

impl From<Shared> for Api {
    fn from(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

impl Deref for Api {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Api {
    /// What a request may do; a handler's first question.
    pub fn access(&self, extensions: &Extensions) -> Access {
        Access::of(&self.gate, extensions)
    }
}

/// Whatever comes to the public listener.
#[derive(Clone)]
pub struct Public {
    api: Api,
    door: Arc<Door>,
}

impl Public {
    pub fn new(api: Api, metrics: Arc<Metrics>) -> Self {
        let (gate, limits) = (api.gate.clone(), api.limits.clone());
        let door = Door { metrics, gate, limits, on_loopback: api.on_loopback };
        Self { api, door: Arc::new(door) }
    }
}

impl Answers for Public {
    async fn answer(&self, request: Request) -> Response {
        measure::measure(&self.door, &self.api, request).await
    }
}

/// What some proxy on the way may read differently is refused before anybody acts on it.
fn refuse_ambiguity(request: &Request, named: Named) -> Result<(), Problem> {
    let one_host = match request.version() {
        Version::HTTP_11 => named.hosts == 1,
        _ => named.hosts <= 1,
    };
    if !one_host {
        let detail = "an HTTP/1.1 request must have exactly one Host header";
        return Err(Problem::new(Kind::InvalidRequest, detail).and_close());
    }
    if !named.has(Name::TransferEncoding) {
        return Ok(());
    }
    // hyper would take `gzip, chunked` apart as chunks, and leave the gzip in the value.
    let mut encodings = request.headers().get_all(header::TRANSFER_ENCODING).iter();
    if !encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        let detail = "the only Transfer-Encoding that is supported is chunked";
        return Err(Problem::new(Kind::InvalidRequest, detail).and_close());
    }
    Ok(())
}
