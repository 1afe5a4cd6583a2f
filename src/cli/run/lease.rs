//! When to renew, when to stop, and when to kill: decisions without I/O.
//!
//! Time is counted from before the last successful renewal was sent, so the lease that is reckoned
//! with here never ends later than the true one, as far as clocks run at the same pace.

use std::time::Duration;

use nix::time::ClockId;

/// A point in time, as what has passed since the machine was started.
pub type Moment = Duration;

/// Time in which the machine sleeps counts, too: leases go on ending elsewhere.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

pub fn now() -> Moment {
    CLOCK.now().expect("a clock that every kernel has").into()
}

/// Long enough for most programs, and it leaves most of the lease for renewals.
pub fn usual_grace(ttl: Duration) -> Duration {
    (ttl / 4).min(Duration::from_secs(10))
}

#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// When the last successful renewal was sent.
    pub renewed: Moment,
    pub ttl: Duration,
    /// How long the child may take to end.
    pub grace: Duration,
}

impl Lease {
    pub fn renew_at(&self) -> Moment {
        self.renewed + self.ttl / 3
    }

    /// How soon a renewal that failed is tried again.
    pub fn pace(&self) -> Duration {
        self.ttl / 15
    }

    /// How long an attempt to renew may take before another one is made as well.
    pub fn patience(&self) -> Duration {
        self.ttl / 5
    }

    /// If it is not renewed by then, the child must be told to end, or its grace would outlast the
    /// lease.
    pub fn stop_at(&self) -> Moment {
        self.kill_at().saturating_sub(self.grace)
    }

    /// When a child that is told to end now must be dead.
    pub fn grace_ends(&self, now: Moment) -> Moment {
        (now + self.grace).min(self.kill_at())
    }

    /// Early enough for the kill to have happened when the lease ends.
    fn kill_at(&self) -> Moment {
        let margin = (self.ttl / 10).min(Duration::from_secs(1));
        self.renewed + self.ttl.saturating_sub(margin)
    }

    /// Whether it need not be renewed yet.
    pub fn is_fresh(&self) -> bool {
        now() < self.renew_at()
    }

    pub fn is_over(&self) -> bool {
        now() >= self.renewed + self.ttl
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lease(ttl_ms: u64, grace_ms: u64) -> Lease {
        Lease {
            renewed: Duration::from_secs(100),
            ttl: Duration::from_millis(ttl_ms),
            grace: Duration::from_millis(grace_ms),
        }
    }

    #[test]
    fn half_a_minute_is_renewed_after_ten_seconds_and_given_up_in_time_for_the_grace() {
        let lease = lease(30_000, 10_000);
        assert_eq!(lease.renew_at(), Duration::from_secs(110));
        assert_eq!(lease.stop_at(), Duration::from_secs(119));
        assert_eq!(lease.grace_ends(lease.stop_at()), Duration::from_secs(129));
        // Told of the loss at once: the grace is what was asked for.
        assert_eq!(lease.grace_ends(Duration::from_secs(111)), Duration::from_secs(121));
    }

    #[test]
    fn a_child_has_no_grace_once_the_lease_is_over() {
        let lease = lease(1000, 300);
        let frozen_until = Duration::from_secs(200);
        assert!(frozen_until >= lease.stop_at());
        assert!(lease.grace_ends(frozen_until) <= frozen_until);
    }

    proptest! {
        #[test]
        fn the_child_is_killed_within_the_lease_and_there_is_time_for_a_second_renewal(
            ttl in 1000_u64..=3_600_000,
            share in 0_u32..=50,
            told_after in 0_u64..7_200_000,
        ) {
            let lease = lease(ttl, ttl * u64::from(share) / 100);
            let end = lease.renewed + lease.ttl;
            prop_assert!(lease.renew_at() + lease.pace() <= lease.stop_at());
            prop_assert!(lease.stop_at() + lease.grace <= end);
            let told = lease.renewed + Duration::from_millis(told_after);
            prop_assert!(lease.grace_ends(told) < end);
            prop_assert!(lease.grace_ends(told) <= told + lease.grace);
        }
    }

    #[test]
    fn the_clock_goes_on() {
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now() >= before + Duration::from_millis(2));
    }
}
