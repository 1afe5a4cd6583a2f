//! Whether a connection brings anybody who is welcome.
//!
//! An answer that says `Connection: close` ends its connection, over HTTP/1.1. HTTP/2 has no such
//! word, and one connection may carry the requests of many: it is ended once so many answers have said
//! it, unless somebody has come in by then.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio_util::sync::CancellationToken;

/// Answers, all of which were to end the connection.
const PATIENCE: u32 = 16;

/// Those who use one connection.
#[derive(Default)]
pub struct Guest {
    welcome: AtomicBool,
    turned_away: AtomicU32,
    leave: CancellationToken,
}

impl Guest {
    pub fn was_welcome(&self) {
        self.welcome.store(true, Ordering::Relaxed);
    }

    pub fn was_turned_away(&self) {
        let times = self.turned_away.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if times >= PATIENCE && !self.welcome.load(Ordering::Relaxed) {
            self.leave.cancel();
        }
    }

    /// Returns when the connection is to end.
    pub async fn must_leave(&self) {
        self.leave.cancelled().await;
    }
}
