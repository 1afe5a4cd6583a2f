//! How busy a listener or a connection is: what tells whether anybody still needs it.
//!
//! Every request of a listener counts here, on whichever processor, so there is no lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

#[derive(Debug)]
pub struct Activity {
    in_flight: AtomicUsize,
    since: Instant,
    /// When the last request ended, in nanoseconds after `since`; 0 if none has.
    last_ended: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            since: Instant::now(),
            last_ended: AtomicU64::new(0),
        }
    }
}

/// One request that is being answered.
pub struct Answering(Arc<Activity>);

impl Activity {
    pub fn request(self: &Arc<Self>) -> Answering {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }

    /// Whether no request has been in flight for at least `period`.
    pub fn quiet_for(&self, period: Duration) -> bool {
        !self.is_busy() && self.rested().is_none_or(|rested| rested >= period)
    }

    /// Returns when no request has been in flight for `period`, counted from now at the earliest.
    pub async fn quiet(&self, period: Duration) {
        let mut wait = period;
        loop {
            tokio::time::sleep(wait).await;
            wait = if self.is_busy() {
                period
            } else {
                self.rested().map_or(Duration::ZERO, |rested| period.saturating_sub(rested))
            };
            if wait.is_zero() {
                return;
            }
        }
    }

    /// Seen before [`Self::rested`]: a request that is seen to be over has left its end behind.
    fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// The time since the last request ended, if one has.
    fn rested(&self) -> Option<Duration> {
        match self.last_ended.load(Ordering::Acquire) {
            0 => None,
            ended => Some(self.since.elapsed().saturating_sub(Duration::from_nanos(ended))),
        }
    }
}

/// Also when the client hung up and the answer was dropped half way.
impl Drop for Answering {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.last_ended.fetch_max(now.max(1), Ordering::Release);
        self.0.in_flight.fetch_sub(1, Ordering::Release);
    }
}
