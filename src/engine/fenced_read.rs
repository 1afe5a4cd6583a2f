//! Fenced reads that have nothing to claim.
//!
//! A fenced read claims, then reads. But a mark never falls: where those of its key and its scope are known to
//! have reached its token, on the synchronous standbys too, there is nothing left to claim, and it is a read like any other.
//! (That a read has shown the mark is not enough: its commit may still wait for a standby.) It need not wait
//! for the writes, nor they for it. Whether a newer holder has come meanwhile is seen in what was read.
//!
//! It says nothing of what its connection is used for: those who read under a token mostly write, too.

use super::{Engine, EngineError, Reserve};
use crate::{
    fence::{self, Verdict},
    metrics::Begun,
    store::{Settled, StoreError, Unit},
    token::Mark,
    write::Write,
};

impl Engine {
    /// What becomes of a fenced read that has nothing to claim. `None` if it may have, or is none.
    pub(super) async fn read_if_claimed(
        &self,
        unit: &Unit,
    ) -> Result<Option<Settled>, EngineError> {
        match unit.writes() {
            [claim] if unit.is_fenced_read() && self.is_claimed(claim) => {
                self.reread(claim, None).await
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
        let Some(settled) = self.reread(claim, Some(room)).await? else {
            let lost = "the claim is gone: another server has taken over";
            return Err(StoreError::Unavailable(lost.into()).into());
        };
        // The claim has been counted. That a newer holder has come since then has not.
        if let Settled::Refused { .. } = settled {
            self.metrics.writes.settled_by_store(begun, unit, &settled);
        }
        Ok(settled)
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
    ) -> Result<Option<Settled>, EngineError> {
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
            return Ok(Some(Settled::Refused { index: 0, judgement }));
        }
        // Another server may have taken over, which lacks the last marks. They are to be claimed anew.
        if scope.iter().chain([&key]).any(|found| found.own < claim.token.get()) {
            return Ok(None);
        }
        Ok(Some(Settled::Applied { judgements: vec![judgement], value: key.value }))
    }
}
