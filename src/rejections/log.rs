//! Rejections in the log: a line for each, until there are too many; then a few, and how many were
//! left out.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::field;

use super::{Entry, Rejection};
use crate::{
    auth::Identity,
    metrics::Label,
    token::{Key, Seq, Token},
};

/// Lines in one [`PERIOD`].
const LINES: u32 = 10;

pub const PERIOD: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Log {
    period: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// What is to be logged, once nobody is kept waiting by it.
#[derive(Default)]
pub struct Lines {
    /// Left out since the last line.
    left_out: u64,
    entries: Vec<Arc<Entry>>,
}

impl Log {
    /// Which of `entries` get a line.
    pub fn choose(&mut self, entries: impl IntoIterator<Item = Arc<Entry>>) -> Lines {
        let now = Instant::now();
        let mut lines = Lines::default();
        if self.period.is_none_or(|began| now.duration_since(began) >= PERIOD) {
            self.period = Some(now);
            self.lines = 0;
            lines.left_out = std::mem::take(&mut self.left_out);
        }
        for entry in entries {
            if self.lines < LINES {
                self.lines += 1;
                lines.entries.push(entry);
            } else {
                self.left_out += 1;
            }
        }
        lines
    }

    /// Whether there is still something to be said when the period is over.
    pub fn owes_a_line(&self) -> bool {
        self.left_out > 0
    }
}

impl Lines {
    pub fn write(self) {
        if self.left_out > 0 {
            tracing::warn!(left_out = self.left_out, "more writes were refused than are logged");
        }
        for entry in self.entries {
            line(&entry);
        }
    }
}

/// What a client has chosen is recorded as a string: both formats of the log escape those (`cli/logging.rs`), so that it
/// cannot forge a line or steer a terminal.
fn line(entry: &Entry) {
    let Rejection { reason, decided_by, refused, mark, by_floor, caller, .. } = &entry.rejection;
    tracing::warn!(
        reason = reason.name(),
        key = refused.key.as_ref().map(Key::as_str),
        scope = refused.scope.as_ref().map(Key::as_str),
        token = refused.token.map(Token::get),
        mark = mark,
        floor = by_floor.then_some(true),
        lag = entry.rejection.lag(),
        seq = refused.seq.map(Seq::get),
        client = caller.client.as_deref(),
        identity = caller.identity.as_ref().map(Identity::as_str),
        peer = caller.peer.map(field::display),
        trace = caller.trace.map(field::display),
        decided_by = decided_by.name(),
        overtaken_by = entry.overtaken_by.as_deref(),
        id = %entry.id,
        "a write was refused"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rejections::ring::tests::some_entry;

    #[test]
    fn a_flood_gets_a_few_lines_and_a_count() {
        let mut log = Log::default();
        let first = log.choose((0..25).map(|_| some_entry()));
        assert_eq!((first.entries.len(), first.left_out), (10, 0));
        assert!(log.owes_a_line());
        let same_period = log.choose([some_entry()]);
        assert_eq!((same_period.entries.len(), same_period.left_out), (0, 0));
        log.period = Instant::now().checked_sub(PERIOD);
        let next_period = log.choose([some_entry()]);
        assert_eq!((next_period.entries.len(), next_period.left_out), (1, 16));
        assert!(!log.owes_a_line());
    }
}
