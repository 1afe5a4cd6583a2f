//! The locks that are held, for the page: a few of them, each with those who wait for it.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::Serialize;

use crate::{
    authority::Holder,
    locks::{LockError, Locks},
    store::Page,
    token::{Key, Token},
};

/// As many as somebody would read. The lock service is asked about each.
const SHOWN: u32 = 30;

/// Questions to the lock service at once.
const AT_ONCE: usize = 8;

/// A page that comes late is of no use.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
pub struct LocksNow {
    held: Vec<Lock>,
    /// Whether there are others besides.
    more: bool,
    /// Why they are not known.
    problem: Option<&'static str>,
}

#[derive(Serialize)]
struct Lock {
    name: Key,
    token: Token,
    owner: String,
    ttl_ms: u64,
    waiters: u64,
}

impl LocksNow {
    pub fn unknown(problem: &'static str) -> Self {
        Self { held: Vec::new(), more: false, problem: Some(problem) }
    }
}

pub async fn look(locks: &Locks) -> LocksNow {
    match tokio::time::timeout(PATIENCE, list(locks)).await {
        Ok(Ok(now)) => now,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the page cannot show the locks");
            LocksNow::unknown("the lock service does not answer as it should; see the log")
        }
        Err(_) => LocksNow::unknown("the lock service did not answer in time"),
    }
}

async fn list(locks: &Locks) -> Result<LocksNow, LockError> {
    let mut holders = locks.list(Page::first(SHOWN + 1, "")).await?;
    let more = holders.len() > SHOWN as usize;
    holders.truncate(SHOWN as usize);
    let held = stream::iter(holders).map(|holder| with_waiters(locks, holder)).buffered(AT_ONCE);
    let held: Vec<Result<Lock, LockError>> = held.collect().await;
    Ok(LocksNow { held: held.into_iter().collect::<Result<_, _>>()?, more, problem: None })
}

async fn with_waiters(locks: &Locks, holder: Holder) -> Result<Lock, LockError> {
    let state = locks.inspect(holder.name.clone()).await?;
    // It may have passed on meanwhile.
    let holder = state.holder.unwrap_or(holder);
    Ok(Lock {
        ttl_ms: u64::try_from(holder.remaining.as_millis()).unwrap_or(u64::MAX),
        name: holder.name,
        token: holder.token,
        owner: holder.owner,
        waiters: state.waiters,
    })
}
