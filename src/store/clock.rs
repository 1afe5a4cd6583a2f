//! The database's clock, beside ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::finding::{Finding, Subject};

/// `now` is the database's clock in seconds since 1970; `asked`, ours before and after the question.
/// No verdict depends on a clock, but leases in the lock table and the times in a log do.
pub fn clock_finding(now: f64, asked: [SystemTime; 2]) -> Finding {
    const NOTICEABLE: Duration = Duration::from_secs(1);
    let Some(theirs) = seconds_since_1970(now) else {
        return Finding::doubtful(Subject::Clock, "the database's clock is off", "set it");
    };
    let [before, after] = asked;
    // Somewhere between the two they were asked.
    let apart = match (before.duration_since(theirs), theirs.duration_since(after)) {
        (Ok(behind), _) => behind,
        (_, Ok(ahead)) => ahead,
        _ => Duration::ZERO,
    };
    if apart < NOTICEABLE {
        return Finding::good(Subject::Clock, "ours and the store's agree to within a second");
    }
    let apart = humantime::format_duration(Duration::from_secs(apart.as_secs()));
    Finding::doubtful(
        Subject::Clock,
        format!("ours and the store's are {apart} apart"),
        "synchronise both; the fence does not mind, but whoever compares logs will",
    )
}

pub fn seconds_since_1970(seconds: f64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}
