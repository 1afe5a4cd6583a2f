//! How many requests are in flight, and when the last of them ended.
//!
//! Every request counts here, on whichever processor, so there is no lock. Whoever ends a request says
//! when *before* the count falls; whoever sees that nothing is in flight looks *after* that for the end.
//! So a request that is seen to be over has left its end behind. `model/tests/loom.rs` tries every order.

use crate::atomics::{AtomicU64, AtomicUsize, Ordering};

pub struct InFlight {
    count: AtomicUsize,
    last_ended: AtomicU64,
}

impl InFlight {
    pub fn new() -> Self {
        Self { count: AtomicUsize::new(0), last_ended: AtomicU64::new(0) }
    }

    pub fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// `now` rises from moment to moment, and is never 0.
    pub fn end(&self, now: u64) {
        self.last_ended.fetch_max(now, Ordering::Release);
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// When the last request ended; 0 if there was none yet. `None`: one is in flight.
    pub fn quiet_since(&self) -> Option<u64> {
        let busy = self.count.load(Ordering::Acquire) > 0;
        (!busy).then(|| self.last_ended.load(Ordering::Acquire))
    }
}
