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

/// Less than this is no progress: a client could grant a byte at a time, and stay for days.
const ENOUGH_BYTES: usize = 4 << 10;

/// Of one connection.
#[derive(Default)]
pub struct Unsent(Mutex<Pieces>);

#[derive(Default)]
struct Pieces {
    next: u64,
    waiting: HashMap<u64, Piece>,
}

struct Piece {
    /// When enough of it was last taken.
    since: Instant,
    /// The bytes that were taken since.
    taken: usize,
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
        pieces.waiting.insert(number, Piece { since: Instant::now(), taken: 0 });
        Waiting { unsent: self.clone(), number }
    }

    /// Returns when too little has been taken of some piece for `period`, or for twice that at most.
    pub async fn stalled(&self, period: Duration) {
        loop {
            let oldest = self.pieces().waiting.values().map(|piece| piece.since).min();
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
    pub fn some_was_taken(&self, bytes: usize) {
        if let Some(piece) = self.unsent.pieces().waiting.get_mut(&self.number) {
            piece.taken += bytes;
            if piece.taken >= ENOUGH_BYTES {
                *piece = Piece { since: Instant::now(), taken: 0 };
            }
        }
    }
}

/// Also when the stream was reset.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.unsent.pieces().waiting.remove(&self.number);
    }
}
