//! What the record of rejections has left out. `rejections.rs` knows when each of these moves.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::labels::{ByWhere, Each, Where};

pub struct Dropped {
    family: Family<ByWhere, Counter>,
    each: Each<Where, Counter>,
}

impl Default for Dropped {
    fn default() -> Self {
        let family = Family::<ByWhere, Counter>::default();
        let each = Each::new(|r#where| family.get_or_create_owned(&ByWhere { r#where }));
        Self { family, each }
    }
}

impl Dropped {
    pub fn add(&self, r#where: Where, count: u64) {
        self.each[r#where].inc_by(count);
    }

    #[cfg(test)]
    pub fn count(&self, r#where: Where) -> u64 {
        self.each[r#where].get()
    }

    pub(super) fn register(&self, all: &mut Registry) {
        all.register(
            "rejections_dropped",
            "Refused writes that were left out of the record, a stream of it, or the audit table",
            self.family.clone(),
        );
    }
}
