//! What a request needs a [`Permit`] for. The fields are nobody's but this file's: so no handler can
//! reach the engine or the locks without having asked whether it may.

use std::sync::Arc;

use super::problem::{Kind, Problem};
use crate::{
    auth::{Denied, Permit},
    engine::Engine,
    locks::Locks,
};

#[derive(Clone)]
pub struct Guarded {
    engine: Arc<Engine>,
    /// Where there is an authority.
    locks: Option<Locks>,
}

impl Guarded {
    pub fn new(engine: Arc<Engine>, locks: Option<Locks>) -> Self {
        Self { engine, locks }
    }

    pub fn engine(&self, _permit: Permit) -> &Arc<Engine> {
        &self.engine
    }

    pub fn locks(&self, _permit: Permit) -> Result<&Locks, Problem> {
        let locks = self.locks.as_ref().ok_or_else(|| {
            let detail = "this server grants no locks: it was started with --authority none; set \
                          --authority to store or etcd://HOST:PORT";
            Problem::new(Kind::NotFound, detail)
        })?;
        if !self.engine.is_open() {
            // No grant could be claimed, and the lock table may not be there.
            let detail = "nothing was changed: the store has not been checked yet; try again";
            return Err(Problem::new(Kind::StoreUnavailable, detail));
        }
        Ok(locks)
    }
}

/// The same for every key, whether it is there or not.
impl From<Denied> for Problem {
    fn from(Denied: Denied) -> Self {
        Self::new(Kind::Forbidden, "the policy does not allow you this; ask whoever keeps it")
    }
}
