//! A grant on its way to the one who asked for it, who may have gone meanwhile.

use tokio::time::Instant;

use super::{Keeper, Locks};
use crate::authority::Grant;

/// Dropped before it has been taken, the grant is released.
pub struct Handover {
    locks: Locks,
    grant: Option<Grant>,
}

impl Handover {
    pub(super) fn new(locks: Locks, grant: Grant) -> Self {
        Self { locks, grant: Some(grant) }
    }

    /// Its lease was renewed on the way.
    pub(super) fn renewed_at(mut self, moment: Instant) -> Self {
        if let Some(grant) = &mut self.grant {
            grant.renewed = moment;
        }
        self
    }

    /// From here on it is the client's to renew and to release.
    pub fn take(mut self) -> Grant {
        self.taken()
    }

    /// From here on it is renewed, until the keeper is dropped.
    pub fn keep(mut self) -> Keeper {
        let grant = self.taken();
        Keeper::start(self.locks.clone(), grant)
    }

    fn taken(&mut self) -> Grant {
        self.grant.take().expect("it is there until it is taken, which ends the handover")
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.locks.give_back(grant);
        }
    }
}
