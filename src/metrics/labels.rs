//! The labels, and every value that each of them can have.

use std::{fmt::Write, hash::Hash, marker::PhantomData, ops::Index};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

use crate::{
    fence::Refusal,
    store::Unit,
    write::{Change, Write as FencedWrite},
};

/// A closed set of label values.
pub trait Label: Copy + std::fmt::Debug + Eq + Hash + Send + Sync + 'static {
    const ALL: &'static [Self];
    fn name(self) -> &'static str;
    /// Its place in [`Self::ALL`].
    fn place(self) -> usize;
}

/// A label's enum, with the value that each variant has in a series.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($variant),+ }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $value),+ }
            }

            fn place(self) -> usize {
                self as usize
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
                encoder.write_str(self.name())
            }
        }
    };
}

label!(Op { Put = "put", Delete = "delete", Claim = "claim", Batch = "batch" });

label!(WriteOutcome {
    Accepted = "accepted",
    Replayed = "replayed",
    Rejected = "rejected",
    Failed = "failed",
});

label!(ReadOutcome { Answered = "answered", Rejected = "rejected", Failed = "failed" });

label!(
    /// What became of a step of a trace.
    Fate { Sent = "sent", Failed = "failed", Dropped = "dropped" }
);

label!(DecidedBy { Cache = "cache", Store = "store", Input = "input" });

label!(
    /// Who has raised a mark: a grant, or a client's own write.
    RaisedBy { Grant = "grant", Client = "client" }
);

label!(
    /// Where a rejection was left out of the record.
    Where { Record = "record", Stream = "stream", Audit = "audit" }
);

label!(
    /// What there may be too much of at a time.
    Limited {
        Requests = "requests",
        Connections = "connections",
        Locks = "locks",
        Waiters = "waiters",
        Streams = "streams",
        Bodies = "bodies",
    }
);

label!(
    /// Whose limit it is.
    Whose { Total = "total", Identity = "identity", Strangers = "strangers" }
);

label!(
    /// What stops a write before the fence sees it.
    BadInput {
        InvalidToken = "invalid-token",
        InvalidSeq = "invalid-seq",
        InvalidKey = "invalid-key",
        InvalidRequest = "invalid-request",
        TokenRequired = "token-required",
        TooLarge = "too-large",
        RequestTimeout = "request-timeout",
        UnsupportedMediaType = "unsupported-media-type",
    }
);

label!(
    /// Why a request was turned away, whatever it asked for.
    TurnedAway { Unauthenticated = "unauthenticated", Forbidden = "forbidden" }
);

label!(
    /// What access depends on, and may change at any time.
    AccessFile { Tls = "tls", Tokens = "tokens", Jwks = "jwks", Policy = "policy" }
);

impl Label for Refusal {
    const ALL: &'static [Self] =
        &[Self::Stale, Self::OutOfOrder, Self::SeqReused, Self::VersionMismatch, Self::Unissued];

    fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale-token",
            Self::OutOfOrder => "out-of-order",
            Self::SeqReused => "seq-reused",
            Self::VersionMismatch => "version-mismatch",
            Self::Unissued => "unissued-token",
        }
    }

    fn place(self) -> usize {
        self as usize
    }
}

impl Op {
    pub fn of(unit: &Unit) -> Self {
        match unit.writes() {
            [FencedWrite { change, .. }] if !unit.is_batch() => match change {
                Change::Put(_) => Self::Put,
                Change::Delete => Self::Delete,
                Change::Claim => Self::Claim,
            },
            _ => Self::Batch,
        }
    }
}

/// Why a write was refused, by the type of the problem it was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Fence(Refusal),
    Input(BadInput),
}

impl Reason {
    pub fn all() -> impl Iterator<Item = Self> {
        let fence = Refusal::ALL.iter().copied().map(Self::Fence);
        fence.chain(BadInput::ALL.iter().copied().map(Self::Input))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Fence(refusal) => refusal.name(),
            Self::Input(input) => input.name(),
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|reason| reason.name() == name)
    }
}

impl EncodeLabelValue for Reason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OpAndOutcome {
    pub op: Op,
    pub outcome: WriteOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonAndJudge {
    pub reason: Reason,
    pub decided_by: DecidedBy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByRaiser {
    pub by: RaisedBy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByWhere {
    pub r#where: Where,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByLimit {
    pub limit: Limited,
    pub whose: Whose,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByTurnedAway {
    pub reason: TurnedAway,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByFile {
    pub file: AccessFile,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByFate {
    pub fate: Fate,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildInfo {
    pub version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ByOutcome<L> {
    pub outcome: L,
}

// The derived one does not know generics.
impl<L: Label> EncodeLabelSet for ByOutcome<L> {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>,
    ) -> std::fmt::Result {
        [("outcome", self.outcome.name())].encode(encoder)
    }
}

/// One metric for each value of a label, found without a lock.
pub struct Each<L, M> {
    metrics: Vec<M>,
    label: PhantomData<L>,
}

impl<L: Label, M> Each<L, M> {
    pub fn new(metric: impl FnMut(L) -> M) -> Self {
        Self { metrics: L::ALL.iter().copied().map(metric).collect(), label: PhantomData }
    }
}

impl<L: Label, M> Index<L> for Each<L, M> {
    type Output = M;

    fn index(&self, value: L) -> &M {
        &self.metrics[value.place()]
    }
}
