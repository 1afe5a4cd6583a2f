//! One line in the log for an outage, and not one for each request that it fails.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Between two lines.
const PERIOD: Duration = Duration::from_secs(10);

/// For the lines of one place in the code.
pub struct SparseLog(Mutex<Lines>);

struct Lines {
    last: Option<Instant>,
    left_out: u64,
}

impl SparseLog {
    pub const fn new() -> Self {
        Self(Mutex::new(Lines { last: None, left_out: 0 }))
    }

    /// Calls `line` if it is time for one, with how many were left out since the last one.
    pub fn write(&self, line: impl FnOnce(Option<u64>)) {
        if let Some(left_out) = self.due(Instant::now()) {
            line((left_out > 0).then_some(left_out));
        }
    }

    fn due(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.last.is_some_and(|last| now.duration_since(last) < PERIOD) {
            lines.left_out += 1;
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_gets_a_line_and_a_count() {
        let (log, now) = (SparseLog::new(), Instant::now());
        assert_eq!(log.due(now), Some(0));
        assert_eq!((log.due(now), log.due(now + PERIOD / 2)), (None, None));
        assert_eq!(log.due(now + PERIOD), Some(2));
        assert_eq!(log.due(now + PERIOD * 3), Some(0));
    }
}
