//! How many writes were accepted and refused in each of the last seconds, for the page's chart.
//!
//! It is read off the counters once a second, so writes pay nothing for it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::metrics::{Metrics, Totals};

/// Five minutes.
const SLOTS: usize = 300;

#[derive(Default)]
pub struct History {
    seconds: Mutex<VecDeque<Totals>>,
}

/// Oldest first.
#[derive(Serialize)]
pub struct Chart {
    slots: usize,
    accepted: Vec<u64>,
    rejected: Vec<u64>,
    failed: Vec<u64>,
}

impl History {
    /// Takes a sample every second, for as long as the process lives.
    pub async fn keep(self: Arc<Self>, metrics: Arc<Metrics>) {
        let mut ticks = interval(Duration::from_secs(1));
        // After a pause one sample stands for all that was missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = Totals::default();
        loop {
            ticks.tick().await;
            let now = metrics.writes.totals();
            self.note(now.since(before));
            before = now;
        }
    }

    pub fn chart(&self) -> Chart {
        let seconds = self.seconds();
        let each = |read: fn(&Totals) -> u64| seconds.iter().map(read).collect();
        Chart {
            slots: SLOTS,
            accepted: each(|second| second.accepted),
            rejected: each(|second| second.rejected),
            failed: each(|second| second.failed),
        }
    }

    fn note(&self, second: Totals) {
        let mut seconds = self.seconds();
        if seconds.len() == SLOTS {
            seconds.pop_front();
        }
        seconds.push_back(second);
    }

    fn seconds(&self) -> MutexGuard<'_, VecDeque<Totals>> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_second_makes_room() {
        let history = History::default();
        for accepted in 0..SLOTS as u64 + 5 {
            history.note(Totals { accepted, rejected: 1, failed: 0 });
        }
        let chart = history.chart();
        assert_eq!(chart.accepted.len(), SLOTS);
        assert_eq!(chart.accepted.first(), Some(&5));
        assert_eq!(chart.accepted.last(), Some(&(SLOTS as u64 + 4)));
    }
}
