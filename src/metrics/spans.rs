//! What became of the finished steps of traces. `spans.rs` knows when each of these moves.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::labels::{ByFate, Each, Fate};

pub struct SpanCounts {
    family: Family<ByFate, Counter>,
    each: Each<Fate, Counter>,
}

impl Default for SpanCounts {
    fn default() -> Self {
        let family = Family::<ByFate, Counter>::default();
        let each = Each::new(|fate| family.get_or_create_owned(&ByFate { fate }));
        Self { family, each }
    }
}

impl SpanCounts {
    pub fn add(&self, fate: Fate, count: u64) {
        self.each[fate].inc_by(count);
    }

    pub fn register(&self, all: &mut Registry) {
        all.register(
            "spans",
            "Steps of traces: sent to the collector, not taken by it, or dropped on the way there",
            self.family.clone(),
        );
    }
}
