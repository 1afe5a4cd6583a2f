//! One connection's worth of work at a time: writes (`gathered.rs`), reads (`reads.rs`), and listings,
//! which are here.

use std::time::Duration;

use super::{
    batch::Batch,
    connection::{Connection, not_applied, only_here},
    fitness,
    newcomers::Newcomers,
    notices,
    rows::listed,
    server_identity::settled_by_deposed,
};
use crate::{
    store::{
        Lineage, Listed, Page, Session, Settled, Snapshot, StoreError, Unit, first_key_after_prefix,
    },
    token::Key,
};
use async_trait::async_trait;

/// After this the connection is given up and the outcome called unknown. It is longer than
/// `lock_timeout`, and it also bounds what no server setting does: the wait for a standby.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);

/// For a sign of life. It waits for no row.
pub(super) const PING_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of a statement after which a connection gives the memory of its buffers back.
const LARGE_STATEMENT: usize = 128 << 10;

/// $1 after, $2 prefix, $3 end of the prefix or null, $4 limit.
const LIST: &str = "
SELECT key, version, greatest(token, (SELECT token FROM fencepost.floor)) AS token,
       content_type, octet_length(value)::bigint AS size
FROM fencepost.resources
WHERE value IS NOT NULL AND key > $1 AND key >= $2 AND ($3 IS NULL OR key < $3)
ORDER BY key LIMIT $4";

pub struct PostgresSession {
    pub(super) connection: Connection,
    pub(super) newcomers: Newcomers,
}

impl PostgresSession {
    pub fn new(connection: Connection) -> Self {
        Self { connection, newcomers: Newcomers::default() }
    }

    /// A replay, a claim of a mark that is there already, a fenced read at such a mark: each says that an earlier commit
    /// stands. That one may still wait for a standby, or have been cut short in its wait. So a commit of our own comes
    /// before the answer: it waits for all that came before it.
    async fn confirm(
        &mut self,
        mut settled: Vec<Result<Settled, StoreError>>,
        unconfirmed: &[usize],
        is_over: bool,
    ) -> Vec<Result<Settled, StoreError>> {
        if unconfirmed.is_empty() {
            return settled;
        }
        let waited = if is_over {
            Err(StoreError::Unknown("the session ended before an answer was confirmed".into()))
        } else {
            within(DEADLINE, self.connection.wait_for_standbys()).await
        };
        let Err(error) = waited else { return settled };
        let error = match error {
            StoreError::Unknown(_) => error,
            other => StoreError::unknown(other),
        };
        for place in unconfirmed {
            settled[*place] = Err(error.clone());
        }
        settled
    }

    async fn list_now(&mut self, page: &Page) -> Result<Vec<Listed>, StoreError> {
        self.connection.begin_if_pooled().await?;
        let rows = sqlx::query(LIST)
            .bind(&page.after)
            .bind(&page.prefix)
            .bind(first_key_after_prefix(&page.prefix))
            .bind(i64::from(page.limit))
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&rows).await?;
        rows?.iter().map(|row| listed(row).map_err(not_applied)).collect()
    }
}

#[async_trait]
impl Session for PostgresSession {
    async fn settle(&mut self, units: &[Unit]) -> Vec<Result<Settled, StoreError>> {
        let mut batch = Batch::new(units);
        let all = (0..units.len()).collect();
        let settling = within(DEADLINE, self.settle_some(&mut batch, all));
        let (ended, warned) = notices::listening(settling).await;
        let is_over = ended.is_err();
        // What has been sent stays in the connection's buffer, which grows and does not shrink by itself.
        if units.iter().map(Unit::bytes).sum::<usize>() > LARGE_STATEMENT {
            self.connection.shrink();
        }
        let unconfirmed = batch.take_unconfirmed();
        let settled = self.confirm(batch.finish(ended, surely), &unconfirmed, is_over).await;
        if self.connection.is_deposed() {
            return settled.into_iter().map(settled_by_deposed).collect();
        }
        if warned && (is_over || self.connection.may_wait_for_standbys().await) {
            return settled.into_iter().map(unless_only_here).collect();
        }
        settled
    }

    async fn read(&mut self, key: &Key, most: u64) -> Result<Snapshot, StoreError> {
        let read = within(DEADLINE, self.read_now(key, most)).await.map_err(surely);
        self.connection.unless_deposed(read)
    }

    async fn read_together(
        &mut self,
        keys: &[Key],
        most: u64,
    ) -> Result<Vec<Snapshot>, StoreError> {
        let read = within(DEADLINE, self.read_together_now(keys, most)).await.map_err(surely);
        self.connection.unless_deposed(read)
    }

    async fn list(&mut self, page: &Page) -> Result<Vec<Listed>, StoreError> {
        let read = within(DEADLINE, self.list_now(page)).await.map_err(surely);
        self.connection.unless_deposed(read)
    }

    async fn ping(&mut self) -> Result<(), StoreError> {
        let alive =
            within(PING_DEADLINE, fitness::ping(&mut self.connection)).await.map_err(surely);
        self.connection.unless_deposed(alive)
    }

    async fn lineage(&mut self) -> Result<Lineage, StoreError> {
        within(PING_DEADLINE, self.connection.lineage()).await.map_err(surely)
    }

    /// Whatever became of it, it may be done again.
    async fn take_over(&mut self, floor: i64, leap: i64) -> Result<i64, StoreError> {
        let (floor, warned) =
            notices::listening(within(DEADLINE, self.take_over_now(floor, leap))).await;
        let floor = self.connection.unless_only_here(floor, warned).await.map_err(surely);
        self.connection.unless_deposed(floor)
    }

    fn is_deposed(&self) -> bool {
        self.connection.is_deposed()
    }
}

/// A commit whose wait for a standby was cancelled is on this server, and perhaps nowhere else.
fn unless_only_here(settled: Result<Settled, StoreError>) -> Result<Settled, StoreError> {
    match settled {
        Ok(Settled::Applied { .. }) => Err(only_here()),
        settled => settled,
    }
}

pub(super) async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = || StoreError::Unknown("Postgres did not answer in time".into());
    tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| Err(late()))
}

/// For work that changes nothing: however it failed, nothing is in doubt.
pub(super) fn surely(error: StoreError) -> StoreError {
    match error {
        StoreError::Unknown(reason) => StoreError::Unavailable(reason),
        definite => definite,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::{Judgement, Refusal, Standing, Verdict};

    fn judged(verdict: Verdict) -> Judgement {
        let key = Standing::default();
        Judgement { verdict, ..Judgement::accepted(key) }
    }

    fn applied(verdicts: &[Verdict]) -> Settled {
        let judgements = verdicts.iter().map(|verdict| judged(*verdict)).collect();
        Settled::Applied { judgements, value: None }
    }

    fn refused() -> Settled {
        let judgement = judged(Verdict::Refused(Refusal::Stale));
        Settled::Refused { index: 0, judgement }
    }

    #[test]
    fn what_a_cancelled_wait_leaves_in_doubt_is_what_was_applied() {
        let applied = unless_only_here(Ok(applied(&[Verdict::Accepted])));
        assert!(matches!(applied, Err(StoreError::Unknown(_))));
        assert!(matches!(unless_only_here(Ok(refused())), Ok(Settled::Refused { .. })));
        assert!(matches!(unless_only_here(Err(StoreError::Busy)), Err(StoreError::Busy)));
    }

    #[test]
    fn what_changes_nothing_is_never_in_doubt() {
        let unknown = surely(StoreError::Unknown("late".into()));
        assert!(matches!(unknown, StoreError::Unavailable(reason) if reason == "late"));
        assert!(matches!(surely(StoreError::Conflict), StoreError::Conflict));
    }
}
