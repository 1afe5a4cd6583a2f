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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found if the database says so many milliseconds after 1970, asked between these.
    fn found(theirs: u64, before: u64, after: u64) -> String {
        let ours = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let theirs = Duration::from_millis(theirs).as_secs_f64();
        let finding = clock_finding(theirs, [ours(before), ours(after)]);
        format!("{finding:?}")
    }

    #[test]
    fn clocks_that_are_a_second_apart_are_noticed_on_both_sides() {
        for (theirs, noticed) in
            [(5000, false), (4001, false), (4000, true), (7999, false), (8000, true), (6500, false)]
        {
            assert_eq!(found(theirs, 5000, 7000).contains("apart"), noticed, "{theirs}");
        }
        assert!(found(67_000, 5000, 7000).contains("1m apart"));
        assert!(found(1000, 64_000, 65_000).contains("1m 3s apart"));
    }

    #[test]
    fn a_time_that_cannot_be_is_no_time() {
        assert_eq!(seconds_since_1970(1.5), Some(UNIX_EPOCH + Duration::from_millis(1500)));
        for odd in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(seconds_since_1970(odd), None, "{odd}");
        }
    }
}
