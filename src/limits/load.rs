//! Bytes of bodies that are in memory: of requests while they arrive and until they are settled, and
//! of answers until their clients have taken them.
//!
//! What counts is what has arrived, not what was announced, so nobody takes room by promising.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;

use super::{Account, Limits, OverLimit, account::SOON};
use crate::{
    auth::Identity,
    metrics::{Limited, Whose},
};

/// Smaller bodies are not counted. There are not more of them than requests, whose heads are larger.
pub const SMALL: u64 = 8 << 10;

/// How much room there is, and how much of it is taken. 0 is no limit.
pub struct Room {
    most: u64,
    taken: AtomicU64,
}

impl Room {
    pub fn new(most: u64) -> Self {
        Self { most, taken: AtomicU64::new(0) }
    }

    pub fn is_in_use(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > 0
    }

    /// Somebody has `own` already, and wants `more`. Whoever is alone gets it: what is larger than all the
    /// room would never find any.
    fn take(&self, own: u64, more: u64) -> bool {
        let fits = |taken: u64| {
            let then = taken.saturating_add(more);
            (self.most == 0 || then <= self.most || taken <= own).then_some(then)
        };
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn take_anyway(&self, more: u64) {
        self.taken.fetch_add(more, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What is in memory for one request or answer. Counts for as long as it lives.
pub struct Load {
    own: Option<Arc<Account>>,
    total: Arc<Account>,
    bytes: u64,
}

impl Limits {
    pub fn load(&self, who: Option<&Identity>) -> Load {
        Load { own: self.account_of(who), total: self.total.clone(), bytes: 0 }
    }

    /// That it be so many bytes in all.
    pub fn grow(&self, load: &mut Load, bytes: u64) -> Result<(), OverLimit> {
        let more = bytes.saturating_sub(load.bytes);
        if load.own.as_ref().is_some_and(|own| !own.bodies.take(load.bytes, more)) {
            return Err(self.refusal(Limited::Bodies, Whose::Identity, SOON));
        }
        if !load.total.bodies.take(load.bytes, more) {
            if let Some(own) = &load.own {
                own.bodies.give_back(more);
            }
            return Err(self.refusal(Limited::Bodies, Whose::Total, SOON));
        }
        load.bytes += more;
        Ok(())
    }
}

impl Load {
    /// For what cannot be refused any more.
    pub fn grow_anyway(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.bytes);
        for account in self.own.iter().chain([&self.total]) {
            account.bodies.take_anyway(more);
        }
        self.bytes += more;
    }

    /// It then counts for as long as these bytes are in memory, whoever has them.
    pub fn of(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Loaded { bytes, _load: self })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for account in self.own.iter().chain([&self.total]) {
            account.bodies.give_back(self.bytes);
        }
    }
}

struct Loaded {
    bytes: Bytes,
    _load: Load,
}

impl AsRef<[u8]> for Loaded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
