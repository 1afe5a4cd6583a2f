//! The second listener, for those who run the process:
//!
//! | route | answers |
//! |---|---|
//! | `/livez` | 200 while the process runs; it asks nobody else |
//! | `/readyz` | 200 if the store answers and has the right schema; `?verbose` lists each check |
//! | `/startupz` | 200 once the store has been found fit to use |
//! | `/metrics` | what `metrics.rs` counts, as Prometheus reads it |
//! | `/v1/check` | what `fencepost check` finds, with the settings of this server |
//! | `/` | the page, with what it needs at `/page/state` and `/v1/rejections` |
//!
//! Probes and metrics are for machines, and tell nobody's keys. The page is for operators
//! (`operators.rs`), and does.

mod check;
mod history;
mod host;
mod locks_now;
mod operators;
mod page;
mod state;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;

pub use self::{
    check::Diagnosis,
    history::History,
    state::{About, Latest},
};
use crate::{
    api::{self, Api},
    auth::gate::SharedGate,
    engine::{Engine, EngineError},
    limits::Limits,
    locks::Locks,
    metrics::Format,
    server::Drain,
    store::{DiskTrouble, StoreError},
};

/// A probe must be answered before its caller gives up.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub struct Admin {
    pub engine: Arc<Engine>,
    /// Where there is an authority.
    pub locks: Option<Locks>,
    pub limits: Arc<Limits>,
    pub drain: Drain,
    pub history: Arc<History>,
    pub about: Arc<About>,
    /// Under which names, besides addresses, the operators' area answers.
    pub hosts: Arc<[String]>,
    pub latest: Latest,
    /// Who may see the operators' area from elsewhere; only where they can prove it over TLS.
    pub gate: SharedGate,
    /// Somebody has accepted that everybody may, under the names in `hosts`.
    pub insecure: bool,
    /// Examines this server, when an operator asks.
    pub diagnosis: Diagnosis,
}

/// Something that must be so for the process to be of use.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    /// What is wrong, if it is not so.
    detail: &'static str,
}

impl Check {
    fn new(name: &'static str, ok: bool, detail: &'static str) -> Self {
        Self { name, ok, detail: if ok { "" } else { detail } }
    }
}

pub fn router(admin: Admin, api: Api) -> Router {
    probes(admin.clone())
        .merge(operators::router(admin, api))
        .fallback(api::no_such_route)
        .method_not_allowed_fallback(api::no_such_method)
}

fn probes(admin: Admin) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/startupz", get(startupz))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

async fn startupz(State(admin): State<Admin>) -> Response {
    if admin.engine.is_open() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "starting: the store has not been checked yet\n")
        .into_response()
}

async fn readyz(State(admin): State<Admin>, uri: Uri) -> Response {
    let verbose = uri.query().is_some_and(|query| query.split('&').any(|part| part == "verbose"));
    let checks = admin.checks().await;
    let failed = checks.iter().find(|check| !check.ok);
    let status = if failed.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let mut lines: Vec<String> = Vec::new();
    if verbose {
        lines.extend(checks.iter().map(|Check { name, ok, detail }| match ok {
            true => format!("[+] {name}"),
            false => format!("[-] {name}: {detail}"),
        }));
    }
    lines.push(match failed {
        Some(Check { name, detail, .. }) => format!("not ready: {name}: {detail}"),
        None => "ok".into(),
    });
    let text = lines.join("\n") + "\n";
    (status, text).into_response()
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    admin.read_gauges().await;
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted_by(accept);
    let text = admin.engine.metrics().render(format);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

impl Admin {
    /// What it takes to be ready.
    async fn checks(&self) -> Vec<Check> {
        let store = ping(&self.engine).await;
        let mut checks = vec![
            Check::new("started", self.engine.is_open(), "the store has not been checked yet"),
            Check::new("serving", !self.drain.has_begun(), "shutting down"),
            Check::new("store", store.is_ok(), store.err().unwrap_or_default()),
        ];
        if self.engine.is_foreign() {
            checks.insert(0, Check::new("authority", false, OTHER_AUTHORITY));
        }
        checks
    }

    /// What is a state and not an event is looked at when somebody asks.
    async fn read_gauges(&self) {
        let metrics = self.engine.metrics();
        metrics.queue_depth.set(i64::try_from(self.engine.queue_depth()).unwrap_or(i64::MAX));
        metrics.body_bytes.set(i64::try_from(self.limits.body_bytes()).unwrap_or(i64::MAX));
        match tokio::time::timeout(PATIENCE, self.engine.ping()).await {
            Ok(Ok(())) => metrics.store_up.set(1),
            // It was not asked: there is no place left in the queue. That is another alarm.
            Ok(Err(EngineError::Overloaded)) => metrics.store_up.get(),
            Ok(Err(_)) | Err(_) => metrics.store_up.set(0),
        };
        if let (Some(locks), Some(metrics)) = (&self.locks, &metrics.authority) {
            locks.look();
            let status = locks.authority().status();
            metrics.up.set(status.up.into());
            metrics.epoch.set(status.epoch.into());
        }
    }
}

/// Only where tokens come from elsewhere: with a lock service, fenced writes go on.
const OTHER_AUTHORITY: &str = "the store belongs to another authority; see `fencepost check`";

async fn ping(engine: &Engine) -> Result<(), &'static str> {
    match tokio::time::timeout(PATIENCE, engine.ping()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(EngineError::Store(StoreError::Disk(DiskTrouble::Full, _)))) => {
            Err("its disk is full: nothing can be written until there is room")
        }
        Ok(Err(EngineError::Store(StoreError::Disk(DiskTrouble::ReadOnly, _)))) => {
            Err("it is read-only: nothing can be written")
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "the store did not answer a probe");
            Err("it does not answer as it should; see the log")
        }
        Err(_) => Err("it did not answer in time"),
    }
}
