//! What is said while a store cannot be reached, and when to try again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::StoreError;

/// The longest pause between two attempts is between one and two of these. It bounds how much later than the
/// database the service is back, so it stays short however long the outage lasts. An attempt is cheap, only one
/// is made at a time, and none without a request.
const LONGEST_PAUSE: Duration = Duration::from_millis(60);

/// During an outage most callers are answered at once, and one in a while finds out whether it is
/// over.
pub struct Outage {
    error: StoreError,
    retry_at: Instant,
    backoff: ExponentialBackoff,
}

impl Outage {
    pub fn after(earlier: Option<Self>, error: StoreError) -> Self {
        let mut backoff = earlier.map_or_else(
            || {
                ExponentialBuilder::default()
                    .with_min_delay(Duration::from_millis(20))
                    .with_max_delay(LONGEST_PAUSE)
                    .without_max_times()
                    .with_jitter()
                    .build()
            },
            |outage| outage.backoff,
        );
        let retry_at = Instant::now() + backoff.next().unwrap_or(LONGEST_PAUSE);
        Self { error, retry_at, backoff }
    }

    /// What to say without trying; `None` when it is time to try.
    pub fn answer(&self) -> Option<StoreError> {
        (Instant::now() < self.retry_at).then(|| self.error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paused_time::for_each_seed;

    /// How long whoever asks all the time is answered without an attempt.
    async fn until_the_next_attempt(outage: &Outage) -> Duration {
        let since = Instant::now();
        while let Some(error) = outage.answer() {
            assert_eq!(error.to_string(), StoreError::Busy.to_string());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        since.elapsed()
    }

    #[test]
    fn attempts_go_on_at_short_intervals_however_long_it_lasts() {
        for_each_seed(5, async |seed| {
            fastrand::seed(seed);
            let mut outage = None;
            let mut pauses = Vec::new();
            for _ in 0..100 {
                let next = Outage::after(outage.take(), StoreError::Busy);
                pauses.push(until_the_next_attempt(&next).await);
                outage = Some(next);
            }
            let milliseconds = |range: std::ops::RangeInclusive<u64>, pause: Duration| {
                range.contains(&u64::try_from(pause.as_millis()).unwrap())
            };
            // Each is spread by up to its own length, so that fenceposts do not come all at once.
            assert!(milliseconds(20..=41, pauses[0]), "{pauses:?}");
            assert!(milliseconds(40..=81, pauses[1]), "{pauses:?}");
            // Neither so often that a dead database is hammered, nor so rarely that its return goes unnoticed.
            assert!(pauses[2..].iter().all(|pause| milliseconds(60..=121, *pause)), "{pauses:?}");
        });
    }
}
