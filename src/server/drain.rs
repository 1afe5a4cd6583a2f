//! The way out: unready at once, but serving on.
//!
//! Whoever is asked to stop may still be needed: an application beside it is draining too, and a
//! load balancer has not noticed yet. So new connections go on being taken until nobody has asked
//! for anything for a while; then what is in flight is finished, and all of it within a deadline.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// With no request for this long, nobody needs the server any more.
const QUIET: Duration = Duration::from_secs(1);

/// Between two looks at whether that is so.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The share of the drain that is kept for finishing what is in flight.
const LAST_PART: f64 = 0.2;

#[derive(Clone)]
pub struct Drain {
    period: Duration,
    began: watch::Receiver<Option<Instant>>,
    closing: CancellationToken,
}

/// Begins the drain. Kept by whoever listens to signals.
pub struct Starter(watch::Sender<Option<Instant>>);

impl Starter {
    pub fn begin(&self) {
        self.0.send_replace(Some(Instant::now()));
    }
}

impl Drain {
    pub fn new(period: Duration) -> (Starter, Self) {
        let (starter, began) = watch::channel(None);
        (Starter(starter), Self { period, began, closing: CancellationToken::new() })
    }

    /// For a listener that is needed to the very end.
    pub fn never() -> Self {
        Self::new(Duration::ZERO).1
    }

    pub fn has_begun(&self) -> bool {
        self.began.borrow().is_some()
    }

    /// Cancelled when no more connections are taken: what waits, or goes on without an end, is to
    /// come to one.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Returns when the drain has begun and the listener is no longer needed, or time is short.
    pub(super) async fn stop_accepting(&self, activity: &Arc<Activity>) {
        let mut began = self.began.clone();
        // If the starter is gone, so is every reason to stop early.
        if began.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        let quiet_since = Instant::now();
        loop {
            let left = self.remaining().saturating_sub(self.period.mul_f64(LAST_PART));
            let long_enough = quiet_since.elapsed() >= QUIET && activity.quiet_for(QUIET);
            if long_enough || left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(BETWEEN_LOOKS)).await;
        }
    }

    /// What is left of the drain; all of it before it has begun.
    pub fn remaining(&self) -> Duration {
        self.began.borrow().map_or(self.period, |began| self.period.saturating_sub(began.elapsed()))
    }
}

#[cfg(test)]
mod tests;
