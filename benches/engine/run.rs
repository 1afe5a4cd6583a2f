//! What one run of one contender has shown.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::cpu::Shares;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Answers a second.
    pub rate: f64,
    /// How many there should have been, where that was fixed.
    #[serde(default)]
    pub due: Option<f64>,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Processors kept busy.
    pub cpu: Shares,
    /// Other requests that were answered meanwhile, a second.
    #[serde(default)]
    pub beside: f64,
}

impl Run {
    pub fn new(latencies: &Latencies, measured: Duration, cpu: Shares) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a count of answers")]
        let rate = latencies.0.len() as f64 / measured.as_secs_f64();
        Self {
            rate,
            due: None,
            p50_us: latencies.us_at(0.5),
            p99_us: latencies.us_at(0.99),
            cpu,
            beside: 0.0,
        }
    }

    /// Microseconds of processor that one answer cost, everybody's together.
    pub fn cpu_us(&self) -> f64 {
        self.cpu.all() / self.rate * 1e6
    }

    /// Whether it could not keep up with the rate that was asked of it: its latencies then depend on
    /// how long it was asked.
    pub fn fell_behind(&self) -> bool {
        /// Arrivals are random, so that a few more or less mean nothing.
        const NEARLY: f64 = 0.95;
        self.due.is_some_and(|due| self.rate < NEARLY * due)
    }

    pub fn proxy_us(&self) -> f64 {
        self.cpu.proxy / self.rate * 1e6
    }
}

/// To a thousandth of each, up to a minute.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("valid bounds"))
    }

    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the same bounds");
    }

    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a minute at most")]
    fn us_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }
}
