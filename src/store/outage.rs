//! What is said while a store cannot be reached, and when to try again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::StoreError;

/// During an outage most callers are answered at once, and one in a while finds out whether it is
/// over.
pub struct Outage {
    error: StoreError,
    retry_at: Instant,
    backoff: ExponentialBackoff,
}

impl Outage {
    pub fn after(earlier: Option<Self>, error: StoreError) -> Self {
        const LONGEST: Duration = Duration::from_secs(1);
        let mut backoff = earlier.map_or_else(
            || {
                ExponentialBuilder::default()
                    .with_min_delay(Duration::from_millis(20))
                    .with_max_delay(LONGEST)
                    .without_max_times()
                    .with_jitter()
                    .build()
            },
            |outage| outage.backoff,
        );
        let retry_at = Instant::now() + backoff.next().unwrap_or(LONGEST);
        Self { error, retry_at, backoff }
    }

    /// What to say without trying; `None` when it is time to try.
    pub fn answer(&self) -> Option<StoreError> {
        (Instant::now() < self.retry_at).then(|| self.error.clone())
    }
}
