//! Keeps a grant for as long as somebody wants it kept: a task renews it, tells when it is lost, and
//! releases it as soon as the [`Keeper`] is dropped.
//!
//! A lease is taken to run from before its last renewal was asked for. So it is over here no later
//! than it is for the authority, and whoever relies on it hears of its end in time, unless this
//! process itself was paused. That is what the fence is for.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Locks;
use crate::authority::Grant;

pub struct Keeper {
    grant: Grant,
    lease: watch::Receiver<Lease>,
    _released_when_dropped: DropGuard,
}

#[derive(Clone, Copy, Debug)]
enum Lease {
    Until(Instant),
    Lost(Loss),
}

/// Why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The lock service says that this grant no longer holds the lock.
    Ended,
    /// The lease could not be renewed before it ran out.
    NotRenewed,
    /// This server is about to end, and has released the lock.
    ShuttingDown,
}

impl Loss {
    /// As a holder is told it, and the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::NotRenewed => "not-renewed",
            Self::ShuttingDown => "shutting-down",
        }
    }
}

impl Keeper {
    pub(super) fn start(locks: Locks, grant: Grant) -> Self {
        let (news, lease) = watch::channel(Lease::Until(grant.renewed + grant.ttl));
        let unwanted = CancellationToken::new();
        let keeping = keep(locks.clone(), grant.clone(), news, unwanted.clone());
        locks.tasks.spawn(keeping);
        Self { grant, lease, _released_when_dropped: unwanted.drop_guard() }
    }

    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// What is surely left of the lease.
    pub fn remaining(&self) -> Duration {
        match *self.lease.borrow() {
            Lease::Until(end) => end.saturating_duration_since(Instant::now()),
            Lease::Lost(_) => Duration::ZERO,
        }
    }

    /// Returns when the lock is lost.
    pub async fn lost(&mut self) -> Loss {
        match self.lease.wait_for(|lease| matches!(lease, Lease::Lost(_))).await.map(|lease| *lease)
        {
            Ok(Lease::Lost(loss)) => loss,
            // The task has died, so nobody renews.
            Ok(Lease::Until(_)) | Err(_) => Loss::NotRenewed,
        }
    }
}

async fn keep(locks: Locks, grant: Grant, news: watch::Sender<Lease>, unwanted: CancellationToken) {
    let loss = tokio::select! {
        loss = renew_until_lost(&locks, &grant, &news) => Some(loss),
        () = locks.closing.cancelled() => Some(Loss::ShuttingDown),
        () = unwanted.cancelled() => None,
    };
    if let Some(loss) = loss {
        let (name, token) = (grant.name.as_str(), grant.token.get());
        tracing::info!(name, token, reason = loss.name(), "a lock was lost");
        // The holder hears of it before anybody else can get the lock.
        news.send_replace(Lease::Lost(loss));
    }
    if loss != Some(Loss::Ended) {
        locks.release_or_leave(&grant).await;
    }
}

/// However long the lease: a lock that was taken away is noticed by a renewal.
const RENEWED_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

async fn renew_until_lost(locks: &Locks, grant: &Grant, news: &watch::Sender<Lease>) -> Loss {
    let ttl = grant.ttl;
    let pause = (ttl / 3).min(RENEWED_AT_LEAST_EVERY);
    let mut renewed = grant.renewed;
    let mut next = renewed + pause;
    loop {
        sleep_until(next).await;
        let asked = Instant::now();
        let renewal = locks.renew(grant.name.clone(), grant.token);
        match timeout_at(renewed + ttl, renewal).await {
            Ok(Ok(Some(_))) => {
                renewed = asked;
                next = asked + pause;
                news.send_replace(Lease::Until(renewed + ttl));
            }
            Ok(Ok(None)) => return Loss::Ended,
            Ok(Err(error)) => {
                let name = grant.name.as_str();
                tracing::debug!(%error, name, "a lock could not be renewed yet");
                // Several more attempts fit into what is left.
                next = Instant::now() + pause / 5;
                if next >= renewed + ttl {
                    sleep_until(renewed + ttl).await;
                    return Loss::NotRenewed;
                }
            }
            Err(_) => return Loss::NotRenewed,
        }
    }
}
