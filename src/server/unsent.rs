//! What a client has not taken yet of its answers.
//!
//! Over HTTP/1.1 an answer that nobody takes blocks the socket, and the socket has a deadline. Over
//! HTTP/2 each answer waits for room that its client grants, and the socket stays free: a client that
//! grants none would keep its answers, and its connection, for ever.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Of one connection.
#[derive(Default)]
pub struct Unsent(Mutex<Pieces>);

#[derive(Default)]
struct Pieces {
    next: u64,
    /// When some of it was last taken.
    waiting: HashMap<u64, Instant>,
}

/// One piece of an answer, until all of it was taken.
pub struct Waiting {
    unsent: Arc<Unsent>,
    number: u64,
}

impl Unsent {
    pub fn one_more(self: &Arc<Self>) -> Waiting {
        let mut pieces = self.pieces();
        let number = pieces.next;
        pieces.next += 1;
        pieces.waiting.insert(number, Instant::now());
        Waiting { unsent: self.clone(), number }
    }

    /// Returns when nothing has been taken of some piece for `period`, or for twice that at most.
    pub async fn stalled(&self, period: Duration) {
        loop {
            let oldest = self.pieces().waiting.values().min().copied();
            let waited = oldest.map_or(Duration::ZERO, |since| since.elapsed());
            if waited >= period {
                return;
            }
            tokio::time::sleep(period.saturating_sub(waited)).await;
        }
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    pub fn some_was_taken(&self) {
        self.unsent.pieces().waiting.insert(self.number, Instant::now());
    }
}

/// Also when the stream was reset.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.unsent.pieces().waiting.remove(&self.number);
    }
}
