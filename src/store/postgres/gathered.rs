//! What came together is settled together, and answered as if it had come one by one.
//!
//! 1. Writes of distinct keys, and claims that came with them: one conditional statement (`runs.rs`),
//!    which commits. If some have scopes, it holds on to their marks meanwhile (`guards.rs`).
//! 2. Whatever it did not write, and everything else: one look without locks (`look.rs`). What
//!    changes nothing is answered by it, so a zombie takes no lock that the live holder needs.
//! 3. Writes of keys that have no row, and claims that do raise a mark: one statement, which commits.
//! 4. The rest: all their rows locked in key order, judged in memory, one commit (`locked.rs`).
//!
//! A key is in one of these parts with all its units, so their order is kept.
//!
//! If a part fails as a whole, nothing of it was applied, and it is tried again in halves, down to
//! the one unit that is guilty. After an unknown outcome nothing is tried again.

use futures_util::{FutureExt, future::BoxFuture};

use super::{
    batch::Batch,
    connection::Patience,
    newcomers::Rows,
    plan::{Run, plan},
    session::PostgresSession,
    single::Alone,
};
use crate::store::StoreError;

/// Attempts at a transaction that Postgres aborts to break a deadlock.
const ATTEMPTS: usize = 5;

impl PostgresSession {
    /// Answers all these units, unless the session ends.
    pub(super) fn settle_some<'a>(
        &'a mut self,
        batch: &'a mut Batch<'_>,
        places: Vec<usize>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let mut attempts = 0;
            let mut blocked = false;
            loop {
                let rest = batch.unanswered(&places);
                let attempt = match rest[..] {
                    [] => return Ok(()),
                    [only] if !batch.units[only].has_scopes() => {
                        self.settle_alone(batch, only).await
                    }
                    _ => self.settle_together(batch, &rest).await,
                };
                let Err(error) = attempt else { return Ok(()) };
                if error.ends_the_session() {
                    return Err(error);
                }
                // It was an answer: nothing of what was in flight was applied.
                batch.landed();
                attempts += 1;
                let rest = batch.unanswered(&rest);
                match error {
                    StoreError::Conflict if attempts < ATTEMPTS => {}
                    StoreError::Busy if !blocked => {
                        blocked = true;
                        self.newcomers.expect_none();
                        self.set_aside_what_is_blocked(batch, &rest).await?;
                    }
                    StoreError::Busy => {
                        let error = self.gives_up_on_a_lock();
                        for place in rest {
                            batch.answer(place, Err(error.clone()));
                        }
                        return Ok(());
                    }
                    error if rest.len() == 1 => {
                        batch.answer(rest[0], Err(error));
                        return Ok(());
                    }
                    _ => {
                        let (first, second) = rest.split_at(rest.len() / 2);
                        self.settle_some(batch, first.to_vec()).await?;
                        self.settle_some(batch, second.to_vec()).await?;
                        return Ok(());
                    }
                }
            }
        }
        .boxed()
    }

    async fn settle_together(
        &mut self,
        batch: &mut Batch<'_>,
        places: &[usize],
    ) -> Result<(), StoreError> {
        let mut runs = plan(batch.units, places).runs;
        if self.connection.patience() == Patience::Long {
            // It would hold on to scopes while it waits, in an order that others do not keep.
            runs.retain(|run| run.scope().is_none());
        }
        // Claims alone begin with the look. Most are fenced reads, under a token that their key has seen.
        if !runs.iter().all(Run::is_claim) {
            self.write_runs(batch, &runs, self.newcomers.rows()).await?;
        }
        let rest = batch.unanswered(places);
        if rest.is_empty() {
            return Ok(());
        }
        let ledger = self.settle_by_look(batch, &rest).await?;
        runs.retain(|run| {
            let is_left = !batch.is_answered(run.places[0]);
            is_left && (run.is_claim() || !ledger.is_stored(run.key()))
        });
        let all_there = runs.iter().all(|run| ledger.is_stored(run.key()));
        let rows = if all_there { Rows::There } else { Rows::PerhapsNot };
        self.write_runs(batch, &runs, rows).await?;
        let rest = batch.unanswered(&rest);
        self.settle_locked(batch, &rest).await
    }

    async fn settle_alone(
        &mut self,
        batch: &mut Batch<'_>,
        place: usize,
    ) -> Result<(), StoreError> {
        let unit = &batch.units[place];
        if let [write] = unit.writes() {
            batch.depart([place]);
            let settled = self.settle_in_one_statement(write, unit.read_back).await?;
            batch.landed();
            match settled {
                Some(Alone { settled, by_what_was_seen: true }) => {
                    batch.answer_as_seen(place, settled);
                    return Ok(());
                }
                Some(Alone { settled, by_what_was_seen: false }) => {
                    batch.answer(place, Ok(settled));
                    return Ok(());
                }
                None => {}
            }
        }
        self.settle_by_look(batch, &[place]).await?;
        let rest = batch.unanswered(&[place]);
        self.settle_locked(batch, &rest).await
    }
}
