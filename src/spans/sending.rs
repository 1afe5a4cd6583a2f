//! The task that brings finished spans to the collector.
//!
//! What a collector does not take is dropped and counted, never kept for later: while it is away,
//! the newest spans are worth more than the oldest, and memory is worth more than both.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};

use super::Spans;
use crate::metrics::Fate;

/// Spans that go in one request.
const MOST: usize = 512;

/// How long a span may wait for company.
const PAUSE: Duration = Duration::from_millis(500);

/// Beyond this, a collector is as good as dead. Its own retries are within it.
pub const PATIENCE: Duration = Duration::from_secs(5);

impl Spans {
    /// Sends for as long as the process lives.
    pub async fn keep_sending(self: Arc<Self>) {
        let delays = ExponentialBuilder::default()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(30))
            .without_max_times()
            .with_jitter();
        let mut outage = None;
        loop {
            self.gather().await;
            match self.send_some().await {
                Ok(_) => {
                    if outage.take().is_some() {
                        tracing::info!("the collector takes traces again");
                    }
                }
                Err(error) => {
                    if outage.is_none() {
                        tracing::warn!(error, "the collector takes no traces; they are dropped");
                    }
                    let delays = outage.get_or_insert_with(|| delays.build());
                    tokio::time::sleep(delays.next().unwrap_or(PATIENCE)).await;
                }
            }
        }
    }

    /// Returns when there is something to send.
    async fn gather(&self) {
        while self.finished.is_empty() {
            self.bell.notified().await;
        }
        let enough = async {
            while self.finished.len() < MOST {
                self.bell.notified().await;
            }
        };
        let _ = tokio::time::timeout(PAUSE, enough).await;
    }

    /// Sends what fits into one request; false if there was nothing.
    pub(super) async fn send_some(&self) -> Result<bool, String> {
        let exporter = self.exporter.lock().await;
        let spans: Vec<_> = (0..MOST).map_while(|_| self.finished.pop()).collect();
        let count = spans.len();
        if count == 0 {
            return Ok(false);
        }
        // Counted as lost until they have arrived: the task may be dropped on the way.
        let mut unsent = Unsent { spans: self, count };
        match tokio::time::timeout(PATIENCE, exporter.send(spans)).await {
            Ok(Ok(())) => {
                unsent.count = 0;
                self.counts.add(Fate::Sent, count as u64);
                Ok(true)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err("no answer in time".into()),
        }
    }
}

struct Unsent<'a> {
    spans: &'a Spans,
    count: usize,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.spans.counts.add(Fate::Failed, self.count as u64);
        }
    }
}
