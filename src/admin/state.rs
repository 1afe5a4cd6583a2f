//! `GET /page/state`: what the page shows besides the rejections themselves.
//!
//! However many people look, the store and the lock service are asked once a second at most.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::Serialize;
use tokio::{sync::Mutex, time::Instant};

use super::{
    Admin, Check,
    history::Chart,
    locks_now::{self, LocksNow},
};
use crate::{
    metrics::{AccessFile, Label},
    rejections::{Entry, Filter},
};

/// How long an answer is good for the next one who asks.
const FRESH: Duration = Duration::from_secs(1);

/// The most refused keys are told from these.
const COUNTED: usize = 5_000;
const COUNTED_FOR: Duration = Duration::from_mins(5);
const TOP: usize = 8;

/// The last answer, for everybody who looks. Whoever finds it old makes a new one, and the others
/// wait for that.
pub type Latest = Arc<Mutex<Option<(Instant, Bytes)>>>;

/// What does not change while the process runs.
#[derive(Serialize)]
pub struct About {
    pub version: &'static str,
    /// Without its password.
    pub store: String,
    pub authority: String,
    pub trust: &'static str,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    about: &'a About,
    checks: Vec<Check>,
    epoch: Option<u16>,
    queue: Queue,
    history: Chart,
    top: Top,
    /// Null where no locks are granted.
    locks: Option<LocksNow>,
}

#[derive(Serialize)]
struct Queue {
    depth: usize,
    limit: i64,
}

/// Which keys were refused most often, among the newest rejections.
#[derive(Serialize)]
struct Top {
    of: usize,
    keys: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    key: String,
    count: usize,
}

pub async fn get(State(admin): State<Admin>) -> Response {
    let mut latest = admin.latest.lock().await;
    let body = match &*latest {
        Some((at, body)) if at.elapsed() < FRESH => body.clone(),
        _ => {
            // Plain structs of strings and numbers.
            let body = Bytes::from(serde_json::to_vec(&look(&admin).await).unwrap_or_default());
            *latest = Some((Instant::now(), body.clone()));
            body
        }
    };
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn look(admin: &Admin) -> Document<'_> {
    let locks = async {
        match &admin.locks {
            // It may have a table in a store that has not been checked.
            Some(locks) if admin.engine.is_open() => Some(locks_now::look(locks).await),
            Some(_) => Some(LocksNow::unknown("the store has not been checked yet")),
            None => None,
        }
    };
    let (checks, locks) = tokio::join!(admin.checks(), locks);
    let mut checks = checks;
    let status = admin.locks.as_ref().map(|locks| locks.authority().status());
    if let Some(status) = status {
        checks.push(Check::new("authority", status.up, "it does not answer"));
    }
    let refused = &admin.engine.metrics().access.file_refused;
    for file in AccessFile::ALL.iter().filter(|file| refused[**file].get() != 0) {
        checks.push(Check::new(
            file.name(),
            false,
            "its newest version is refused; an older one is in force",
        ));
    }
    Document {
        about: &admin.about,
        checks,
        epoch: status.map(|status| status.epoch),
        queue: Queue {
            depth: admin.engine.queue_depth(),
            limit: admin.engine.metrics().queue_limit.get(),
        },
        history: admin.history.chart(),
        top: Top::of(&newest(admin)),
        locks,
    }
}

fn newest(admin: &Admin) -> Vec<Arc<Entry>> {
    let since = SystemTime::now().checked_sub(COUNTED_FOR);
    admin.engine.rejections().newest(&Filter { since, ..Filter::default() }, COUNTED)
}

impl Top {
    fn of(entries: &[Arc<Entry>]) -> Self {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for key in entries.iter().filter_map(|entry| entry.rejection.refused.key.as_ref()) {
            *counts.entry(key.as_str()).or_default() += 1;
        }
        let mut keys: Vec<(&str, usize)> = counts.into_iter().collect();
        // By name where they are equal, or they would change places with every look.
        keys.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        keys.truncate(TOP);
        let keys = keys.into_iter().map(|(key, count)| Refused { key: key.to_owned(), count });
        Self { of: entries.len(), keys: keys.collect() }
    }
}
