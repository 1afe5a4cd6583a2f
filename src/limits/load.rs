//! Bytes of bodies that are in memory: of requests while they arrive and until they are settled, of
//! values from before they are fetched, and of answers until their clients have taken them.
//!
//! A body counts for as much as it takes up at its widest, in all the forms that it has at once: see
//! [`STORED`] and [`BATCHED`]. What counts is what has arrived, not what was announced, so no client takes
//! room by promising.

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

/// Smaller bodies are not counted: the request around one takes up more than that. The queues in front
/// of the store bound how many of them can wait.
pub const SMALL: u64 = 1 << 10;

/// A body that is received counts so many times: as it came, and as the copy that goes to the store.
pub const STORED: u64 = 2;

/// A batch counts so many times: as it came, as the values that were taken out of it, and as their copy
/// that goes to the store.
pub const BATCHED: u64 = 3;

/// What each write of a batch counts for besides: its key, its type, its verdict, its place in the arrays
/// that go to the store. A body of short writes takes up many times its length.
pub const BATCHED_WRITE: u64 = 1 << 10;

/// What each row of a listing counts for until the listing is rendered: it is in memory as the store gave
/// it, with a key and a few short texts.
pub const LISTED_ROW: u64 = 4 << 10;

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
        self.taken() > 0
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
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
    /// How many bytes of bodies count at this moment.
    pub fn body_bytes(&self) -> u64 {
        self.total.bodies.taken()
    }

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
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// For what cannot be refused any more.
    pub fn grow_anyway(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.bytes);
        for account in self.own.iter().chain([&self.total]) {
            account.bodies.take_anyway(more);
        }
        self.bytes += more;
    }

    /// So many bytes are left of it.
    pub fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        for account in self.own.iter().chain([&self.total]) {
            account.bodies.give_back(less);
        }
        self.bytes -= less;
    }

    /// Another one of the same identity. Nothing is in it yet.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { own: self.own.clone(), total: self.total.clone(), bytes: 0 }
    }

    /// It then counts for as long as these bytes are in memory, wherever they are.
    pub fn of(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Loaded { bytes, _load: self })
    }

    /// For bytes that are in memory in several parts.
    pub fn shared(self) -> SharedLoad {
        SharedLoad { _load: Arc::new(self) }
    }
}

/// Counts until the last part that it belongs to is gone.
#[derive(Clone)]
pub struct SharedLoad {
    _load: Arc<Load>,
}

impl SharedLoad {
    /// One of the parts.
    pub fn of(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Loaded { bytes, _load: self.clone() })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for account in self.own.iter().chain([&self.total]) {
            account.bodies.give_back(self.bytes);
        }
    }
}

struct Loaded<L> {
    bytes: Bytes,
    _load: L,
}

impl<L> AsRef<[u8]> for Loaded<L> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
