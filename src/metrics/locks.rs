//! What becomes of locks. `locks/held.rs` knows when each of these moves.

use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

pub struct LockMetrics {
    pub held: Gauge,
    pub waiters: Gauge,
    pub wait: Histogram,
    pub grants: Counter,
    pub lost: Counter,
}
