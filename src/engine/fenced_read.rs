//! Fenced reads that have nothing to claim.
//!
//! A fenced read claims, then reads. But a mark never falls: where those of its key and its scope are known to
//! have reached its token, on the synchronous standbys too, there is nothing left to claim, and it is a read like any other.
//! (That a read has shown the mark is not enough: its commit may still wait for a standby.) It need not wait
//! for the writes, nor they for it. Whether a newer holder has come meanwhile is seen in what was read.
//!
//! It says nothing of what its connection is used for: those who read under a token mostly write, too.

use super::{Engine, EngineError};
use crate::{
    fence::{self, Verdict},
    store::{Settled, Unit},
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
            [claim] if unit.is_fenced_read() && self.is_claimed(claim) => self.reread(claim).await,
            _ => Ok(None),
        }
    }

    fn is_claimed(&self, claim: &Write) -> bool {
        let reached = |key| self.marks.has_reached(key, claim.token);
        reached(&claim.key) && claim.scope.as_ref().is_none_or(reached)
    }

    /// The key first, and only then its scope: if that is still at the token, it was so when the key was read.
    async fn reread(&self, claim: &Write) -> Result<Option<Settled>, EngineError> {
        let key = self.newest(claim.key.clone()).await?;
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
