//! Fenced reads that have nothing to claim.
//!
//! A fenced read claims, then reads. But a mark never falls: where those of its key and its scope are known to
//! have reached its token, on the synchronous standbys too, there is nothing left to claim, and it is a read like any other.
//! (That a read has shown the mark is not enough: its commit may still wait for a standby.) It need not wait
//! for the writes, nor they for it. Whether a newer holder has come meanwhile is seen in what was read.
//!
//! Nor is it enough that a read has shown the value. If the wait of its commit was cancelled, every session sees it, and the
//! standby lacks it. So where commits wait for a standby, a value is shown only if this process knows that
//! it has been confirmed. Otherwise the read claims again: the store answers that only after a commit of its own.
//!
//! It says nothing of what its connection is used for: those who read under a token mostly write, too.

use super::{Engine, EngineError, Reserve};
use crate::{
    fence::{self, Verdict},
    metrics::Begun,
    store::{Settled, StoreError, Unit},
    token::{Mark, Version},
    write::Write,
};

/// How often a large value may change while it is fetched and confirmed.
const MOST_FETCHES: usize = 8;

/// What a fenced read finds that has nothing to claim, as far as this process knows.
enum Reread {
    Settled(Settled),
    /// Another server may have taken over, which lacks the last marks. They have to be claimed again.
    Unclaimed,
    /// The same, but a synchronous standby may lack what was read.
    Unconfirmed(Settled),
}

impl Engine {
    /// What becomes of a fenced read that has nothing to claim. `None` if it may have, or is none.
    pub(super) async fn read_if_claimed(
        &self,
        unit: &Unit,
    ) -> Result<Option<Settled>, EngineError> {
        match unit.writes() {
            [claim] if unit.is_fenced_read() && self.is_claimed(claim) => {
                match self.reread(claim, None).await? {
                    Reread::Settled(settled) => Ok(Some(settled)),
                    Reread::Unclaimed | Reread::Unconfirmed(_) => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// The value of a fenced read that has been claimed, where it was too large to come with the claim.
    pub async fn fetch_claimed(
        &self,
        unit: &Unit,
        room: &mut dyn Reserve,
    ) -> Result<Settled, EngineError> {
        let begun = Begun::now(unit);
        let claim = &unit.writes()[0];
        for _ in 0..MOST_FETCHES {
            match self.reread(claim, Some(&mut *room)).await? {
                Reread::Settled(settled) => {
                    // The claim has been counted. That a newer holder has come since then has not.
                    if let Settled::Refused { .. } = settled {
                        self.metrics.writes.settled_by_store(begun, unit, &settled);
                    }
                    return Ok(settled);
                }
                Reread::Unclaimed => {
                    let lost = "the claim is gone: another server has taken over";
                    return Err(StoreError::Unavailable(lost.into()).into());
                }
                Reread::Unconfirmed(found) => {
                    let claim = Unit::single(claim.clone()).from(unit.caller().clone());
                    let begun = Begun::now(&claim);
                    let confirmed = self.queue(claim, begun).await?;
                    if let Settled::Refused { .. } = confirmed {
                        return Ok(confirmed);
                    }
                    if state_of(&found) == state_of(&confirmed) {
                        return Ok(found);
                    }
                }
            }
        }
        let changing = "the value changes faster than it can be read and confirmed";
        Err(StoreError::Unavailable(changing.into()).into())
    }

    fn is_claimed(&self, claim: &Write) -> bool {
        let reached = |key| self.marks.has_reached(key, claim.token);
        reached(&claim.key) && claim.scope.as_ref().is_none_or(reached)
    }

    /// The key first, and only then its scope: if that is still at the token, it was so when the key was read.
    /// Without room for it, a large value is left out.
    async fn reread(
        &self,
        claim: &Write,
        room: Option<&mut dyn Reserve>,
    ) -> Result<Reread, EngineError> {
        let mut key = self.newest(claim.key.clone()).await?;
        if let Some(room) = room {
            key = self.fetch(&claim.key, key, room).await?;
        }
        let scope = match &claim.scope {
            Some(scope) => Some(self.newest(scope.clone()).await?),
            None => None,
        };
        let scope_mark = scope.as_ref().map(|scope| scope.standing.mark);
        // What is read is never below the floor, so that has been looked at.
        let judgement = fence::judge(claim, &key.standing, scope_mark, Mark::UNSEEN);
        if let Verdict::Refused(_) = judgement.verdict {
            return Ok(Reread::Settled(Settled::Refused { index: 0, judgement }));
        }
        if scope.iter().chain([&key]).any(|found| found.own < claim.token.get()) {
            return Ok(Reread::Unclaimed);
        }
        let is_confirmed = !key.has_standbys || self.marks.has_confirmed(&claim.key, &key.standing);
        let found = Settled::Applied { judgements: vec![judgement], value: key.value };
        Ok(if is_confirmed { Reread::Settled(found) } else { Reread::Unconfirmed(found) })
    }
}

/// What tells one value of a key from another.
fn state_of(applied: &Settled) -> Option<(Mark, Version)> {
    match applied {
        Settled::Applied { judgements, .. } => {
            judgements.first().map(|judgement| (judgement.key.mark, judgement.key.version))
        }
        Settled::Refused { .. } => None,
    }
}
