//! What there is at one moment.

use crate::{
    rule::{Bits, Mark, Row, Token, Verdict, Write},
    scene::{Faults, Scene},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub lock_service: LockService,
    /// The lock service as it was when a snapshot was taken.
    pub saved: LockService,
    pub holders: Vec<Holder>,
    pub proxies: Vec<Proxy>,
    pub database: Database,
    /// Requests on their way, sorted: they may arrive in any order, at any proxy.
    pub network: Vec<Request>,
    /// What may still go wrong.
    pub left: Faults,
    pub witness: Witness,
}

/// etcd: a queue of entries, of which the oldest holds the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockService {
    pub revision: u8,
    pub queue: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub holder: u8,
    pub created: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// How often it has taken the lock.
    pub terms: u8,
    pub phase: Phase,
    /// The token of its last grant.
    pub last: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    /// A proxy has read what is remembered of the lock service, and will enter the queue.
    RowRead(Memory),
    /// It is in the queue, and what the lock service showed tells whether it has gone backwards.
    Entered {
        created: u8,
        row: Memory,
        shown: u8,
    },
    /// It is in the queue behind others, or has to look again.
    Waiting {
        created: u8,
    },
    /// What is remembered was read again, before the lock service is asked for its place.
    RowReadAgain {
        created: u8,
        row: Memory,
    },
    /// The grant is being claimed, by way of this proxy.
    Claiming {
        created: u8,
        token: Token,
        proxy: u8,
    },
    /// It believes that it holds the lock, and may be right.
    Holding {
        token: Token,
        step: u8,
        known: Bits,
        waits: bool,
    },
    /// It has been told to stop.
    FencedOff,
}

/// A write or a claim on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    pub by: u8,
    pub key: Key,
    pub scope: Option<Key>,
    pub write: Write,
    pub kind: Kind,
    /// The contribution that this write brings in for the first time, if any.
    pub adds: Bits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Claims a grant's key, within a proxy.
    Grant,
    /// A fenced read.
    Read,
    /// A read without a token.
    BareRead,
    Write,
    Forged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Data,
    Lock,
}

pub const KEYS: usize = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Proxy {
    /// The mark cache; 0 where nothing is known.
    pub cache: [Token; KEYS],
    pub queue: Vec<Job>,
    pub flight: Option<Flight>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    pub request: Request,
    /// Somebody has judged it before the database did. Only traps do so.
    pub judged: bool,
}

/// A batch on its way through the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flight {
    Sent(Vec<Job>),
    Committed { answers: Vec<(Request, Answer)>, position: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    pub verdict: Verdict,
    /// The key's mark and its scope's after the request.
    pub mark: Token,
    pub scope_mark: Token,
    pub value: Bits,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Database {
    pub primary: Stored,
    pub standby: Stored,
    /// Transactions whose proxy has gone. They may still commit.
    pub orphans: Vec<Vec<Job>>,
    /// After a failover, until the floor has risen.
    pub unguarded: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stored {
    pub rows: [Row; KEYS],
    pub floor: Token,
    pub memory: Memory,
    /// How much has been committed.
    pub position: u8,
}

/// How far the lock service has been seen to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    pub epoch: u8,
    pub seen: u8,
}

/// What an observer who sees everything has seen: no part of the system, only of its proof.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// The highest token that anything was accepted with.
    pub newest_accepted: Token,
    /// The highest mark that each key has had.
    pub marks: [Mark; KEYS],
    /// The token of the last claim of a grant.
    pub last_claimed: Token,
    /// The tokens of all grants that were handed out, as bits.
    pub granted: u64,
    /// Contributions that were acknowledged, deleted, or reported as not applied.
    pub acknowledged: Bits,
    pub deleted: Bits,
    pub called_failed: Bits,
    /// After a restore or a failover some refusals have reasons that no proxy can see.
    pub disturbed: bool,
    /// What has gone wrong, and what has been seen at all.
    pub wrongs: Wrongs,
    pub sights: Sights,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own")]
pub struct Wrongs {
    pub stale_accepted: bool,
    pub token_repeated: bool,
    pub refused_wrongly_by_cache: bool,
    pub live_holder_refused: bool,
}

/// Things that must happen in some run, or the check would prove nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own")]
pub struct Sights {
    pub refused_by_cache: bool,
    pub refused_by_store: bool,
    pub replayed: bool,
    pub gathered: bool,
    pub orphan_committed: bool,
    pub epoch_moved: bool,
    pub lost_by_failover: bool,
}

impl World {
    pub fn new(scene: &Scene) -> Self {
        let holder = Holder { terms: 0, phase: Phase::Idle, last: 0 };
        Self {
            lock_service: LockService::default(),
            saved: LockService::default(),
            holders: vec![holder; scene.holders.into()],
            proxies: vec![Proxy::default(); scene.proxies.into()],
            database: Database::default(),
            network: Vec::new(),
            left: scene.faults,
            witness: Witness::default(),
        }
    }

    pub fn holder(&mut self, holder: u8) -> &mut Holder {
        &mut self.holders[usize::from(holder)]
    }

    pub fn proxy(&mut self, proxy: u8) -> &mut Proxy {
        &mut self.proxies[usize::from(proxy)]
    }

    pub fn send(&mut self, request: Request) {
        let place = self.network.partition_point(|other| *other < request);
        self.network.insert(place, request);
    }
}
