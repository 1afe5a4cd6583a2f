//! Several rows at once: lock them in key order, judge them in memory, write back what changed.
//!
//! The rows that a unit needs are made to exist first, so that there is something to lock; a unit
//! that is refused rolls those placeholders back. Key order means byte order, the same in every
//! fencepost, so two of them wait for each other only in one direction.

use sqlx::{Row, postgres::PgRow};

use super::{
    connection::not_applied,
    rows::{standing_of, value_of},
    session::PostgresSession,
};
use crate::{
    fence::Refusal,
    store::{
        Settled, StoreError, Unit,
        ledger::{Ledger, ValueChange},
    },
    token::{Key, Mark},
    write::Value,
};

/// $1 keys. The floor comes with every row, and with none if there are no rows.
const LOOK_AT_ROWS: &str = "
SELECT f.token AS floor, r.key, r.token, r.seq, r.version, r.created, r.digest,
       r.value IS NOT NULL AS present
FROM fencepost.floor AS f LEFT JOIN fencepost.resources AS r ON r.key = ANY($1)";

/// $1 keys, sorted.
const MAKE_ROWS: &str = "
INSERT INTO fencepost.resources (key)
SELECT key FROM unnest($1::text[]) WITH ORDINALITY AS wanted (key, place) ORDER BY place
ON CONFLICT (key) DO NOTHING";

/// $1 keys. FOR UPDATE follows the row to its newest version, and locks in the order of the result.
const LOCK_ROWS: &str = "
SELECT key, token, seq, version, created, digest, value IS NOT NULL AS present
FROM fencepost.resources WHERE key = ANY($1) ORDER BY key FOR UPDATE";

/// $1 keys, then one array for each column; $7 says whose value changes, to $8 and $9.
const SAVE_ROWS: &str = "
UPDATE fencepost.resources AS r SET
    token = n.token, seq = n.seq, version = n.version, created = n.created, digest = n.digest,
    value = CASE WHEN n.value_changes THEN n.value ELSE r.value END,
    content_type = CASE WHEN n.value_changes THEN n.content_type ELSE r.content_type END,
    touched_at = now()
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::bytea[],
            $7::boolean[], $8::bytea[], $9::text[])
     AS n (key, token, seq, version, created, digest, value_changes, value, content_type)
WHERE r.key = n.key";

impl PostgresSession {
    /// Once stale, always stale: what a look without locks shows to be so needs none. A zombie
    /// must not take the locks that the live holder needs.
    pub(super) async fn refuse_unlocked(
        &mut self,
        unit: &Unit,
    ) -> Result<Option<Settled>, StoreError> {
        self.connection.begin_if_pooled().await?;
        let ledger = self.look(&sorted_keys(unit)).await;
        self.connection.end_if_pooled(&ledger).await?;
        Ok(match ledger?.settle(unit) {
            Settled::Refused { index, judgement }
                if judgement.refusal() == Some(Refusal::Stale) =>
            {
                Some(Settled::Refused { index, judgement })
            }
            _ => None,
        })
    }

    async fn look(&mut self, keys: &[Key]) -> Result<Ledger, StoreError> {
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let rows = sqlx::query(LOOK_AT_ROWS)
            .bind(&names)
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied)?;
        let floor = match rows.first() {
            Some(row) => row.try_get("floor").map_err(not_applied)?,
            None => 0,
        };
        let mut ledger = Ledger::new(Mark { token: floor, seq: 0 });
        for row in &rows {
            if row.try_get::<Option<&str>, _>("key").map_err(not_applied)?.is_some() {
                enter(&mut ledger, row)?;
            }
        }
        Ok(ledger)
    }

    pub(super) async fn settle_locked(&mut self, unit: &Unit) -> Result<Settled, StoreError> {
        self.connection.begin().await?;
        let settled = self.judge_locked(unit).await;
        match &settled {
            Ok((_, true)) => self.connection.commit().await?,
            // If the connection is lost, so is the transaction: COMMIT was never sent.
            Err(error) if error.ends_the_session() => {}
            Ok((_, false)) | Err(_) => self.connection.rollback().await?,
        }
        settled.map(|(settled, _)| settled)
    }

    /// The answer, and whether there is anything to commit.
    async fn judge_locked(&mut self, unit: &Unit) -> Result<(Settled, bool), StoreError> {
        let mut ledger = self.lock(&sorted_keys(unit)).await?;
        let mut settled = ledger.settle(unit);
        if let Settled::Applied { value, .. } = &mut settled
            && unit.read_back
        {
            *value = self.read_locked(&unit.writes()[0].key).await?;
        }
        let changed = self.save(&ledger).await?;
        Ok((settled, changed))
    }

    async fn lock(&mut self, keys: &[Key]) -> Result<Ledger, StoreError> {
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let keep = self.connection.keeps_statements();
        sqlx::query(MAKE_ROWS)
            .bind(&names)
            .persistent(keep)
            .execute(self.connection.raw())
            .await
            .map_err(not_applied)?;
        let rows = sqlx::query(LOCK_ROWS)
            .bind(&names)
            .persistent(keep)
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied)?;
        if rows.len() != keys.len() {
            // A compaction took a row between the two statements. Begin again.
            return Err(StoreError::Conflict);
        }
        // Read last: this transaction's lock on the table now keeps the floor from rising.
        let floor: i64 = sqlx::query_scalar("SELECT token FROM fencepost.floor")
            .persistent(keep)
            .fetch_one(self.connection.raw())
            .await
            .map_err(not_applied)?;
        let mut ledger = Ledger::new(Mark { token: floor, seq: 0 });
        for row in &rows {
            enter(&mut ledger, row)?;
        }
        Ok(ledger)
    }

    async fn read_locked(&mut self, key: &Key) -> Result<Option<Value>, StoreError> {
        let row = sqlx::query("SELECT value, content_type FROM fencepost.resources WHERE key = $1")
            .bind(key.as_str())
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(not_applied)?;
        value_of(&row).map_err(not_applied)
    }

    async fn save(&mut self, ledger: &Ledger) -> Result<bool, StoreError> {
        let changes: Vec<_> = ledger.changes().collect();
        if changes.is_empty() {
            return Ok(false);
        }
        let column = |f: fn(&crate::fence::Standing) -> i64| -> Vec<i64> {
            changes.iter().map(|(_, entry)| f(&entry.standing)).collect()
        };
        let values: Vec<Option<&Value>> = changes
            .iter()
            .map(|(_, entry)| match &entry.value {
                ValueChange::Set(value) => Some(value),
                ValueChange::Kept | ValueChange::Cleared => None,
            })
            .collect();
        let saved = sqlx::query(SAVE_ROWS)
            .bind(changes.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>())
            .bind(column(|standing| standing.mark.token))
            .bind(column(|standing| standing.mark.seq))
            .bind(column(|standing| standing.version.get()))
            .bind(changes.iter().map(|(_, entry)| entry.standing.created).collect::<Vec<_>>())
            .bind(
                changes
                    .iter()
                    .map(|(_, entry)| entry.standing.digest.map(Vec::from))
                    .collect::<Vec<_>>(),
            )
            .bind(
                changes
                    .iter()
                    .map(|(_, entry)| entry.value != ValueChange::Kept)
                    .collect::<Vec<_>>(),
            )
            .bind(values.iter().map(|value| value.map(|value| &value.body[..])).collect::<Vec<_>>())
            .bind(
                values
                    .iter()
                    .map(|value| value.map(|value| value.content_type.as_str()))
                    .collect::<Vec<_>>(),
            )
            .persistent(self.connection.keeps_statements())
            .execute(self.connection.raw())
            .await
            .map_err(not_applied)?
            .rows_affected();
        if saved != changes.len() as u64 {
            return Err(StoreError::Failed(format!(
                "{saved} of {} locked rows were saved",
                changes.len()
            )));
        }
        Ok(true)
    }
}

/// In the order in which every fencepost locks.
fn sorted_keys(unit: &Unit) -> Vec<Key> {
    let mut keys: Vec<Key> = unit.keys().cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn enter(ledger: &mut Ledger, row: &PgRow) -> Result<(), StoreError> {
    let name: &str = row.try_get("key").map_err(not_applied)?;
    let key = Key::new(name).map_err(StoreError::unavailable)?;
    ledger.enter(key, standing_of(row).map_err(not_applied)?);
    Ok(())
}
