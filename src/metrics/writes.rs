//! What becomes of writes.
//!
//! A write that reached the engine is counted where its fate is decided, not where it is answered:
//! a client that hangs up does not take its write out of the numbers.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use super::labels::{BadInput, DecidedBy, Each, Label, Op, RaisedBy, Reason, WriteOutcome};
use crate::{
    fence::{Judgement, Refusal, Verdict},
    rejections::{Caller, Refused, Rejection, Rejections},
    store::{Settled, Unit},
    token::Token,
};

pub struct Writes {
    pub(super) total: Each<Op, Each<WriteOutcome, Counter>>,
    pub(super) rejected: Rejected,
    pub(super) rejected_token_lag: Histogram,
    pub(super) duration: Each<WriteOutcome, Histogram>,
    pub(super) marks_raised: Each<RaisedBy, Counter>,
    /// What is counted as rejected is recorded there.
    pub(super) rejections: Arc<Rejections>,
}

/// Who can refuse what.
pub struct Rejected {
    /// A cached mark only ever says that a token is stale.
    pub cache: Counter,
    pub store: Each<Refusal, Counter>,
    pub input: Each<BadInput, Counter>,
}

/// A well-formed write on its way to a verdict.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    op: Op,
    since: Instant,
    by: RaisedBy,
}

impl Begun {
    pub fn now(unit: &Unit) -> Self {
        Self { op: Op::of(unit), since: Instant::now(), by: RaisedBy::Client }
    }

    /// The claim by which a grant raises the mark of its lock.
    pub fn grant(claim: &Unit) -> Self {
        Self { by: RaisedBy::Grant, ..Self::now(claim) }
    }
}

/// How many writes there have been, whatever they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Replays among them.
    pub accepted: u64,
    pub rejected: u64,
    pub failed: u64,
}

impl Totals {
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            accepted: self.accepted.saturating_sub(before.accepted),
            rejected: self.rejected.saturating_sub(before.rejected),
            failed: self.failed.saturating_sub(before.failed),
        }
    }
}

impl Writes {
    pub fn rejections(&self) -> &Arc<Rejections> {
        &self.rejections
    }

    pub fn totals(&self) -> Totals {
        let sum = |outcome| Op::ALL.iter().map(|op| self.total[*op][outcome].get()).sum::<u64>();
        Totals {
            accepted: sum(WriteOutcome::Accepted) + sum(WriteOutcome::Replayed),
            rejected: sum(WriteOutcome::Rejected),
            failed: sum(WriteOutcome::Failed),
        }
    }

    /// The parser refused it.
    pub fn malformed(&self, op: Op, reason: BadInput, refused: Refused, caller: Arc<Caller>) {
        self.total[op][WriteOutcome::Rejected].inc();
        self.rejected.input[reason].inc();
        self.rejections.record(Rejection {
            at: SystemTime::now(),
            reason: Reason::Input(reason),
            decided_by: DecidedBy::Input,
            refused,
            mark: None,
            by_floor: false,
            caller,
        });
    }

    /// A cached mark refused it.
    pub fn stale_by_cache(&self, begun: Begun, unit: &Unit, settled: &Settled) {
        self.rejected.cache.inc();
        self.settled(begun, unit, settled, DecidedBy::Cache);
    }

    /// The store settled it, or trust refused it after a look at the store.
    pub fn settled_by_store(&self, begun: Begun, unit: &Unit, settled: &Settled) {
        if let Settled::Refused { judgement, .. } = settled
            && let Some(refusal) = judgement.refusal()
        {
            self.rejected.store[refusal].inc();
        }
        self.settled(begun, unit, settled, DecidedBy::Store);
    }

    /// So many marks that guard a write were seen to rise with it.
    pub fn raised(&self, begun: Begun, marks: usize) {
        self.marks_raised[begun.by].inc_by(marks as u64);
    }

    /// No verdict was reached, or it is not known.
    pub fn failed(&self, begun: Begun) {
        self.count(begun, WriteOutcome::Failed);
    }

    fn settled(&self, begun: Begun, unit: &Unit, settled: &Settled, decided_by: DecidedBy) {
        self.count(begun, outcome_of(settled));
        let Settled::Refused { index, judgement } = settled else { return };
        let Some(refusal) = judgement.refusal() else { return };
        let write = &unit.writes()[*index];
        if refusal == Refusal::Stale {
            self.rejected_token_lag.observe(lag(write.token, judgement));
        }
        let caller = unit.caller().clone();
        self.rejections.record(Rejection::by_fence(write, refusal, judgement, decided_by, caller));
    }

    fn count(&self, begun: Begun, outcome: WriteOutcome) {
        self.total[begun.op][outcome].inc();
        self.duration[outcome].observe(begun.since.elapsed().as_secs_f64());
    }
}

fn outcome_of(settled: &Settled) -> WriteOutcome {
    match settled {
        Settled::Refused { .. } => WriteOutcome::Rejected,
        Settled::Applied { judgements, .. }
            if judgements.iter().all(|judgement| judgement.verdict == Verdict::Replayed) =>
        {
            WriteOutcome::Replayed
        }
        Settled::Applied { .. } => WriteOutcome::Accepted,
    }
}

fn lag(token: Token, judgement: &Judgement) -> f64 {
    // Behind an earlier write of its own batch, a token can be ahead of what is stored.
    let behind = judgement.guard.token.saturating_sub(token.get()).max(0);
    #[expect(clippy::cast_precision_loss, reason = "a bucket is much wider than that")]
    let behind = behind as f64;
    behind
}
