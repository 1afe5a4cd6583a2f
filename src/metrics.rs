//! Every metric, once: its name, what it says, and the handles by which it is counted.
//!
//! No label has a value that a client can choose, and every series is there from the start, at 0:
//! so the number of series is fixed, `rate()` sees the first event, and an alert on a series that
//! has never moved is not an alert on nothing. `docs/metrics.md` says what to do about each.
//!
//! Counting is an atomic addition or a short lock on a handle that was looked up at the start.

mod access;
mod dropped;
mod exposition;
mod labels;
mod limits;
mod locks;
mod spans;
mod writes;

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::{Metric, Registry, Unit},
};

pub use self::{
    access::AccessMetrics,
    dropped::Dropped,
    exposition::Format,
    labels::{
        AccessFile, BadInput, DecidedBy, Fate, Label, Limited, Op, RaisedBy, ReadOutcome, Reason,
        TurnedAway, Where, Whose, WriteOutcome,
    },
    limits::OverLimits,
    locks::LockMetrics,
    spans::SpanCounts,
    writes::{Begun, Totals, Writes},
};
use self::{
    labels::{BuildInfo, ByOutcome, ByRaiser, Each, OpAndOutcome, ReasonAndJudge},
    writes::Rejected,
};
use crate::{fence::Refusal, rejections::Rejections, spans::Spans};

/// Fine around a millisecond, where a write usually is; coarse up to the longest that one may wait.
const SECONDS: [f64; 27] = [
    0.000_1, 0.000_2, 0.000_3, 0.000_4, 0.000_5, 0.000_6, 0.000_7, 0.000_8, 0.000_9, 0.001,
    0.001_25, 0.001_5, 0.002, 0.002_5, 0.003, 0.004, 0.005, 0.007_5, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0, 5.0, 15.0,
];

/// How long somebody may wait for a lock: up to ten minutes.
const WAIT_SECONDS: [f64; 16] = [
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0,
    600.0,
];

/// Tokens rise by one at best, and by anything at worst. The last bound is the largest distance
/// within one epoch, so whatever is above it comes from an earlier one.
const TOKENS: [f64; 12] =
    [0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 100.0, 1e3, 1e4, 1e6, 1e9, 281_474_976_710_655.0];

const BATCH: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

pub struct Metrics {
    registry: Registry,
    pub writes: Writes,
    pub read_duration: Each<ReadOutcome, Histogram>,
    batch_writes: Histogram,
    store_duration: Histogram,
    pub queue_depth: Gauge,
    pub queue_limit: Gauge,
    pub body_bytes: Gauge,
    pub store_up: Gauge,
    /// Where there is an authority.
    pub authority: Option<AuthorityMetrics>,
    pub locks: LockMetrics,
    over_limits: OverLimits,
    pub access: AccessMetrics,
    /// Where traces are collected.
    pub spans: Option<Arc<Spans>>,
}

pub struct AuthorityMetrics {
    pub up: Gauge,
    pub epoch: Gauge,
}

impl Metrics {
    /// What does not exist is not measured: an authority that nobody has set up is not down.
    pub fn new(with_authority: bool, rejections: Arc<Rejections>) -> Self {
        let mut all = Registry::with_prefix("fencepost");
        build_info(&mut all);
        let writes = writes(&mut all, rejections);
        let read_duration = durations(
            &mut all,
            "read_duration",
            "Time from the head of a read to its answer, by what became of it",
        );
        let batch_writes = histogram(
            &mut all,
            "batch_writes",
            "Writes that were settled by the store in one go",
            None,
            &BATCH,
        );
        let store_duration = histogram(
            &mut all,
            "store_duration",
            "Time that the store took to settle one batch of writes, its commit included",
            Some(Unit::Seconds),
            &SECONDS,
        );
        let queue_depth =
            gauge(&mut all, "queue_depth", "Requests that wait for a connection to the store");
        let queue_limit = gauge(
            &mut all,
            "queue_limit",
            "Requests that may wait for one connection to the store",
        );
        let body_bytes = gauge(
            &mut all,
            "body_bytes",
            "Memory that bodies of requests and answers count for, of what --max-bodies allows",
        );
        let store_up = gauge(
            &mut all,
            "store_up",
            "1 if the store answers and has the right schema, asked at the time of the scrape",
        );
        let authority = with_authority.then(|| AuthorityMetrics {
            up: gauge(&mut all, "authority_up", "1 if the lock service answers"),
            epoch: gauge(
                &mut all,
                "authority_epoch",
                "How often the lock service was found to have lost its memory",
            ),
        });
        let locks = locks(&mut all);
        let over_limits = OverLimits::new(&mut all);
        let access = AccessMetrics::new(&mut all);
        Self {
            registry: all,
            writes,
            read_duration,
            batch_writes,
            store_duration,
            queue_depth,
            queue_limit,
            body_bytes,
            store_up,
            authority,
            locks,
            over_limits,
            access,
            spans: None,
        }
    }

    /// The same, with a collector of traces: where a write is counted, its steps are known too.
    #[must_use]
    pub fn with_spans(mut self, spans: Option<Arc<Spans>>) -> Self {
        if let Some(spans) = &spans {
            spans.register(&mut self.registry);
        }
        self.spans = spans;
        self
    }

    /// For those who are turned away before they could ask.
    pub fn turned_away_connections(&self) -> Counter {
        self.over_limits.counter(Limited::Connections, Whose::Total).clone()
    }

    /// Somebody was turned away for this reason.
    pub fn over_limit(&self, limit: Limited, whose: Whose) {
        self.over_limits.counter(limit, whose).inc();
    }

    /// The store was asked once for all of these.
    pub fn settled_together(&self, writes: usize, took: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "there are never that many")]
        self.batch_writes.observe(writes as f64);
        self.store_duration.observe(took.as_secs_f64());
    }

    pub fn render(&self, format: Format) -> String {
        exposition::render(&self.registry, format)
    }
}

fn writes(all: &mut Registry, rejections: Arc<Rejections>) -> Writes {
    let total = Family::<OpAndOutcome, Counter>::default();
    all.register("writes", "Writes by what they do and what became of them", total.clone());
    let rejected = Family::<ReasonAndJudge, Counter>::default();
    all.register(
        "rejected_writes",
        "Refused writes by the type of the problem, and by who refused them",
        rejected.clone(),
    );
    let raised = Family::<ByRaiser, Counter>::default();
    all.register(
        "marks_raised",
        "Marks that were seen to rise, by a grant of this fencepost or by a client's own write",
        raised.clone(),
    );
    rejections.dropped().register(all);
    let rejection =
        |reason, decided_by| rejected.get_or_create_owned(&ReasonAndJudge { reason, decided_by });
    Writes {
        total: Each::new(|op| {
            Each::new(|outcome| total.get_or_create_owned(&OpAndOutcome { op, outcome }))
        }),
        rejected: Rejected {
            cache: rejection(Reason::Fence(Refusal::Stale), DecidedBy::Cache),
            store: Each::new(|refusal| rejection(Reason::Fence(refusal), DecidedBy::Store)),
            input: Each::new(|input| rejection(Reason::Input(input), DecidedBy::Input)),
        },
        rejected_token_lag: histogram(
            all,
            "rejected_token_lag",
            "How far behind the mark the token of a stale write was",
            None,
            &TOKENS,
        ),
        duration: durations(
            all,
            "write_duration",
            "Time from a well-formed write to its verdict, by what became of it",
        ),
        marks_raised: Each::new(|by| raised.get_or_create_owned(&ByRaiser { by })),
        rejections,
    }
}

fn locks(all: &mut Registry) -> LockMetrics {
    let held = gauge(all, "locks_held", "Locks granted or renewed here whose lease goes on");
    let waiters = gauge(all, "lock_waiters", "Requests for a lock that have not been answered yet");
    let wait = histogram(
        all,
        "lock_wait",
        "Time from asking for a lock to its grant, claim included; for those who got it",
        Some(Unit::Seconds),
        &WAIT_SECONDS,
    );
    let grants = counter(all, "lock_grants", "Locks granted");
    let lost = counter(all, "locks_lost", "Locks whose lease ended before they were released");
    LockMetrics { held, waiters, wait, grants, lost }
}

fn build_info(all: &mut Registry) {
    let family = Family::<BuildInfo, Gauge>::default();
    family.get_or_create(&BuildInfo { version: env!("CARGO_PKG_VERSION") }).set(1);
    all.register("build_info", "Always 1; the version of this fencepost is its label", family);
}

fn durations<L: Label>(all: &mut Registry, name: &str, help: &str) -> Each<L, Histogram> {
    let family = Family::<ByOutcome<L>, Histogram, _>::new_with_constructor(Seconds);
    all.register_with_unit(name, help, Unit::Seconds, family.clone());
    Each::new(|outcome| family.get_or_create_owned(&ByOutcome { outcome }))
}

#[derive(Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(SECONDS)
    }
}

fn histogram(
    all: &mut Registry,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    buckets: &[f64],
) -> Histogram {
    let histogram = Histogram::new(buckets.iter().copied());
    match unit {
        Some(unit) => all.register_with_unit(name, help, unit, histogram.clone()),
        None => all.register(name, help, histogram.clone()),
    }
    histogram
}

fn gauge(all: &mut Registry, name: &str, help: &str) -> Gauge {
    registered(all, name, help)
}

fn counter(all: &mut Registry, name: &str, help: &str) -> Counter {
    registered(all, name, help)
}

fn registered<M: Metric + Clone + Default>(all: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    all.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests;
