//! What becomes of writes.
//!
//! A write that reached the engine is counted where its fate is decided, not where it is answered:
//! a client that hangs up does not take its write out of the numbers.

use std::time::Instant;

use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use super::labels::{BadInput, Each, Op, WriteOutcome};
use crate::{
    fence::{Judgement, Refusal, Verdict},
    store::{Settled, Unit},
    token::Token,
};

pub struct Writes {
    pub(super) total: Each<Op, Each<WriteOutcome, Counter>>,
    pub(super) rejected: Rejected,
    pub(super) rejected_token_lag: Histogram,
    pub(super) duration: Each<WriteOutcome, Histogram>,
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
}

impl Begun {
    pub fn now(unit: &Unit) -> Self {
        Self { op: Op::of(unit), since: Instant::now() }
    }
}

impl Writes {
    /// The parser refused it.
    pub fn malformed(&self, op: Op, reason: BadInput) {
        self.total[op][WriteOutcome::Rejected].inc();
        self.rejected.input[reason].inc();
    }

    /// A cached mark refused it.
    pub fn stale_by_cache(&self, begun: Begun, unit: &Unit, settled: &Settled) {
        self.rejected.cache.inc();
        self.settled(begun, unit, settled);
    }

    /// The store settled it, or trust refused it after a look at the store.
    pub fn settled_by_store(&self, begun: Begun, unit: &Unit, settled: &Settled) {
        if let Settled::Refused { judgement, .. } = settled
            && let Some(refusal) = judgement.refusal()
        {
            self.rejected.store[refusal].inc();
        }
        self.settled(begun, unit, settled);
    }

    /// No verdict was reached, or it is not known.
    pub fn failed(&self, begun: Begun) {
        self.count(begun, WriteOutcome::Failed);
    }

    fn settled(&self, begun: Begun, unit: &Unit, settled: &Settled) {
        self.count(begun, outcome_of(settled));
        if let Settled::Refused { index, judgement } = settled
            && judgement.refusal() == Some(Refusal::Stale)
        {
            self.rejected_token_lag.observe(lag(unit.writes()[*index].token, judgement));
        }
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
