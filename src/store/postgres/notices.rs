//! The one thing that Postgres says only as a warning, and that changes what an answer means.
//!
//! A commit waits for its synchronous standby. If that wait is cancelled, Postgres reports success all the
//! same, with a warning that the commit may not have been replicated. `sqlx` passes warnings on to the log
//! and nowhere else, so this listens there. Whoever had a commit under way meanwhile calls its outcome
//! unknown: too many rather than too few.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, filter::Targets, layer::Context, registry::LookupSpan};

/// Where `sqlx` writes them.
const TARGET: &str = "sqlx::postgres::notice";

/// In the language of `lc_messages = 'C'` and of every English locale.
const CANCELLED: &str = "canceling wait for synchronous replication";

static CANCELLED_WAITS: AtomicU64 = AtomicU64::new(0);

/// How many waits for a standby have been cancelled.
pub fn cancelled_waits() -> u64 {
    CANCELLED_WAITS.load(Ordering::Acquire)
}

/// Listens, whatever else is logged.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    Listener.with_filter(Targets::new().with_target(TARGET, Level::WARN))
}

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Message);
    }
}

struct Message;

impl Visit for Message {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        consider(&format!("{value:?}"));
    }

    fn record_str(&mut self, _: &Field, value: &str) {
        consider(value);
    }
}

fn consider(text: &str) {
    if text.contains(CANCELLED) {
        CANCELLED_WAITS.fetch_add(1, Ordering::AcqRel);
    }
}
