//! What a traced request goes through, step by step, for whoever collects traces.
//!
//! A finished step goes into a bounded queue, and a task of its own sends them (`sending.rs`). Nothing
//! here ever waits for the collector: what finds no place is dropped and counted. Without
//! `--otlp-endpoint` there is no [`Spans`] at all, and a request pays nothing.
//!
//! Only `otlp.rs` knows OpenTelemetry.

mod batch;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "spans/without_otlp.rs"]
mod otlp;
mod sending;
mod span;

use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use prometheus_client::registry::Registry;
use tokio::sync::{Mutex, Notify};

pub use self::{
    batch::Batch,
    span::{Attribute, Context, Kind, Span, Step},
};
use self::{otlp::Exporter, span::now};
use crate::{
    metrics::{Fate, SpanCounts},
    rejections::Caller,
    trace::{SpanId, TraceId, TraceParent},
};

/// Finished spans that may wait to be sent.
const QUEUE: usize = 4096;

/// What the collector is told of this process, and when it is told anything.
pub struct Options<'a> {
    /// `http://collector:4318`
    pub endpoint: &'a str,
    /// The share of requests to trace among those whose caller leaves it open.
    pub ratio: f64,
    /// By its name in OpenTelemetry's conventions.
    pub database: &'static str,
    /// Tells this process from the others on the store.
    pub instance: String,
}

pub struct Spans {
    finished: ArrayQueue<Span>,
    bell: Notify,
    ratio: f64,
    database: &'static str,
    counts: SpanCounts,
    /// One request at a time goes to the collector.
    exporter: Mutex<Exporter>,
}

impl Spans {
    /// The error says what to mend.
    pub fn open(options: Options<'_>) -> Result<Self, String> {
        let exporter = Exporter::open(options.endpoint, options.instance)?;
        Ok(Self {
            finished: ArrayQueue::new(QUEUE),
            bell: Notify::new(),
            ratio: options.ratio,
            database: options.database,
            counts: SpanCounts::default(),
            exporter: Mutex::new(exporter),
        })
    }

    pub fn register(&self, all: &mut Registry) {
        self.counts.register(all);
    }

    /// The step of a request that is to be traced. Whether it is, the caller has decided, or we do
    /// if the caller has not.
    pub fn begin(&self, parent: Option<TraceParent>) -> Option<Step> {
        let sampled = parent.map_or_else(|| fastrand::f64() < self.ratio, |parent| parent.sampled);
        let trace = parent.map_or_else(TraceId::random, |parent| parent.trace);
        sampled.then(|| Step { context: Context { trace, span: SpanId::random() }, since: now() })
    }

    /// The request has been understood, or it cannot be.
    pub fn parsed(&self, caller: &Caller) {
        if let Some(step) = caller.step {
            self.record(Span::inside(step.context, "parse", step.since));
        }
    }

    /// Never waits. What finds no place is counted.
    pub fn record(&self, span: Span) {
        if self.finished.push(span).is_err() {
            self.counts.add(Fate::Dropped, 1);
        }
        self.bell.notify_one();
    }

    /// Sends what is left, for as long as `time` allows and the collector takes it.
    pub async fn finish(&self, time: Duration) {
        let all_sent = async { while self.send_some().await == Ok(true) {} };
        let _ = tokio::time::timeout(time, all_sent).await;
    }
}
