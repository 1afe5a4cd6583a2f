//! Requests that were turned away because there was too much of something.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::labels::{ByLimit, Each, Limited, Whose};

pub struct OverLimits(Each<Limited, Each<Whose, Counter>>);

impl OverLimits {
    pub(super) fn new(all: &mut Registry) -> Self {
        let family = Family::<ByLimit, Counter>::default();
        all.register(
            "over_limit",
            "Requests turned away with 429, by the limit they met, and whether it was their identity's \
             own, that of all together, or that of all who have not proved who they are",
            family.clone(),
        );
        Self(Each::new(|limit| {
            Each::new(|whose| family.get_or_create_owned(&ByLimit { limit, whose }))
        }))
    }

    pub fn counter(&self, limit: Limited, whose: Whose) -> &Counter {
        &self.0[limit][whose]
    }
}
