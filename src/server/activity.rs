//! How busy a listener or a connection is: what tells whether anybody still needs it.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::in_flight::InFlight;

pub struct Activity {
    in_flight: InFlight,
    /// Ends are told in nanoseconds after it.
    since: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        Self { in_flight: InFlight::new(), since: Instant::now() }
    }
}

/// One request that is being answered.
pub struct Answering(Arc<Activity>);

impl Activity {
    pub fn request(self: &Arc<Self>) -> Answering {
        self.in_flight.begin();
        Answering(self.clone())
    }

    /// Whether no request has been in flight for at least `period`.
    pub fn quiet_for(&self, period: Duration) -> bool {
        self.in_flight.quiet_since().is_some_and(|ended| self.still_needed(ended, period).is_zero())
    }

    /// Returns when no request has been in flight for `period`, counted from now at the earliest.
    pub async fn quiet(&self, period: Duration) {
        let mut wait = period;
        while !wait.is_zero() {
            tokio::time::sleep(wait).await;
            let quiet_since = self.in_flight.quiet_since();
            wait = quiet_since.map_or(period, |ended| self.still_needed(ended, period));
        }
    }

    /// What is left of `period` after the last request ended; nothing if there was none.
    fn still_needed(&self, ended: u64, period: Duration) -> Duration {
        if ended == 0 {
            return Duration::ZERO;
        }
        let rested = self.since.elapsed().saturating_sub(Duration::from_nanos(ended));
        period.saturating_sub(rested)
    }
}

/// Also when the client hung up and the answer was dropped half way.
impl Drop for Answering {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.in_flight.end(now.max(1));
    }
}
