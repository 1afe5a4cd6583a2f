//! One refused write: what it was, who sent it, why it was refused and by whom.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use crate::{
    auth::Identity,
    fence::{Judgement, Refusal},
    metrics::{DecidedBy, Reason},
    spans::Step,
    token::{Key, Seq, Token},
    trace::TraceId,
    write::Write,
};

/// As it leaves the request's path: nothing is formatted, and next to nothing copied.
#[derive(Clone, Debug)]
pub struct Rejection {
    pub at: SystemTime,
    pub reason: Reason,
    pub decided_by: DecidedBy,
    pub refused: Refused,
    /// The mark that the token was held against.
    pub mark: Option<i64>,
    /// Whether that is the floor, which no grant has raised.
    pub by_floor: bool,
    pub caller: Arc<Caller>,
}

/// As much as is known of a write that was refused: of a malformed one, perhaps nothing.
#[derive(Clone, Debug, Default)]
pub struct Refused {
    pub key: Option<Key>,
    pub scope: Option<Key>,
    pub token: Option<Token>,
    pub seq: Option<Seq>,
}

/// Who asked.
#[derive(Debug, Default)]
pub struct Caller {
    /// In their own words.
    pub client: Option<Box<str>>,
    pub peer: Option<SocketAddr>,
    pub trace: Option<TraceId>,
    /// As they have proved it, where that is asked for.
    pub identity: Option<Identity>,
    /// Where its steps are collected.
    pub step: Option<Step>,
}

impl Caller {
    pub const MAX_CLIENT_BYTES: usize = 256;
}

/// A rejection in the record.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: Id,
    pub rejection: Rejection,
    /// The owner of the grant that overtook it, where that is known.
    pub overtaken_by: Option<Arc<str>>,
}

/// Which rejection it is: the fenceposts on one store number their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Drawn at random when the process starts.
    pub fencepost: u64,
    /// From 1 on.
    pub number: u64,
}

impl Rejection {
    /// The store, or a mark that was learned from it, refused a write.
    pub fn by_fence(
        write: &Write,
        refusal: Refusal,
        judgement: &Judgement,
        decided_by: DecidedBy,
        caller: Arc<Caller>,
    ) -> Self {
        Self {
            at: SystemTime::now(),
            reason: Reason::Fence(refusal),
            decided_by,
            refused: Refused {
                key: Some(write.key.clone()),
                scope: write.scope.clone(),
                token: Some(write.token),
                seq: write.seq,
            },
            mark: Some(judgement.held_against()),
            by_floor: judgement.by_floor,
            caller,
        }
    }

    /// How far the token is behind the mark; `None` where it is not.
    pub fn lag(&self) -> Option<i64> {
        let lag = self.mark?.saturating_sub(self.refused.token?.get());
        (lag > 0).then_some(lag)
    }
}

impl Rejection {
    /// The token of the grant that has overtaken it; `None` if that is not why it was refused.
    pub fn overtaken_at(&self) -> Option<i64> {
        let stale = self.reason == Reason::Fence(Refusal::Stale) && self.lag().is_some();
        self.mark.filter(|_| stale && !self.by_floor)
    }
}

impl Entry {
    /// What it takes in memory, roughly.
    pub fn bytes(&self) -> usize {
        // Counters of what is shared, and what an allocator adds to every piece.
        const OVERHEAD: usize = 96;
        let Rejection { refused, caller, .. } = &self.rejection;
        let keys = refused.key.iter().chain(&refused.scope).map(|key| key.as_str().len());
        let client = caller.client.as_deref().map_or(0, str::len);
        let identity = caller.identity.as_ref().map_or(0, |identity| identity.as_str().len());
        let both = size_of::<Self>() + size_of::<Caller>();
        both + OVERHEAD + keys.sum::<usize>() + client + identity
    }
}

/// `9f86d081884c7d65-42`
impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.fencepost, self.number)
    }
}

impl std::str::FromStr for Id {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (fencepost, number) = text.split_once('-').ok_or(())?;
        if fencepost.len() != 16 {
            return Err(());
        }
        let fencepost = u64::from_str_radix(fencepost, 16).map_err(drop)?;
        Ok(Self { fencepost, number: number.parse().map_err(drop)? })
    }
}
