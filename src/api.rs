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
pub mod openapi;
mod outcome;
pub mod problem;
mod query;
pub mod rejections;
mod render;
pub mod resources;
mod visit;
mod weighed;

use std::{ops::Deref, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{Extensions, HeaderName, Method, Uri, Version, header},
    middleware::from_fn_with_state,
    routing::{MethodRouter, get, post},
};
use bytesize::ByteSize;
use tokio_util::sync::CancellationToken;

use self::problem::{Kind, Problem};
pub use self::{door::Door, guarded::Guarded};
use crate::{
    auth::{Access, gate::SharedGate},
    limits::Limits,
    metrics::Metrics,
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

pub fn router(api: Api, metrics: Arc<Metrics>) -> Router {
    let (gate, limits) = (api.gate.clone(), api.limits.clone());
    let door = Arc::new(Door { metrics, gate, limits, on_loopback: api.on_loopback });
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        // One layer for both: each costs every request an allocation or two.
        .layer(from_fn_with_state(door, measure::measure))
        .with_state(api)
}

/// Every route. The OpenAPI document is held to this list.
pub fn routes() -> Vec<(&'static str, MethodRouter<Api>)> {
    let resource = get(resources::get).put(resources::put).delete(resources::delete);
    let mark = get(marks::get).put(marks::put);
    let lock = get(locks::inspect::get)
        .post(locks::acquire::post)
        .put(locks::holder::renew)
        .delete(locks::holder::release);
    vec![
        ("/v1/resources", get(listing::list)),
        // An empty key is refused by its handler, not by the router.
        ("/v1/resources/", resource.clone()),
        ("/v1/resources/{*key}", resource),
        ("/v1/marks/", mark.clone()),
        ("/v1/marks/{*key}", mark),
        ("/v1/batch", post(batch::post)),
        ("/v1/locks", get(locks::list::get)),
        ("/v1/locks/", lock.clone()),
        ("/v1/locks/{*name}", lock),
        ("/v1/rejections", get(rejections::get)),
        ("/openapi.json", get(openapi::get)),
    ]
}

pub(crate) async fn no_such_route(uri: Uri) -> Problem {
    Problem::new(Kind::NotFound, format!("there is nothing at {}", uri.path()))
}

pub(crate) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{method} is not possible at {}; Allow says what is", uri.path());
    Problem::new(Kind::MethodNotAllowed, detail)
}

/// What some proxy on the way may read differently is refused before anybody acts on it.
fn refuse_ambiguity(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let hosts = headers.get_all(header::HOST).iter().count();
    let one_host = match request.version() {
        Version::HTTP_11 => hosts == 1,
        _ => hosts <= 1,
    };
    if !one_host {
        let detail = "an HTTP/1.1 request must have exactly one Host header";
        return Err(Problem::new(Kind::InvalidRequest, detail).and_close());
    }
    // hyper would take `gzip, chunked` apart as chunks, and leave the gzip in the value.
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if !encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        let detail = "the only Transfer-Encoding that is supported is chunked";
        return Err(Problem::new(Kind::InvalidRequest, detail).and_close());
    }
    Ok(())
}
