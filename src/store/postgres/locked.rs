//! Several rows at once: lock them in key order, judge them in memory, write back what changed.
//!
//! Any number of units share the transaction, and each keeps its own verdict. Key order means byte
//! order, the same in every fencepost, so two of them wait for each other only in one direction.
//! A row that does not exist cannot be locked: it is judged as absent, and inserted at the end. If
//! somebody else has inserted it meanwhile, everything is rolled back and begins again. So a unit
//! that is refused leaves nothing behind.

use std::collections::HashMap;

use sqlx::{Postgres, Row, postgres::PgArguments, query::Query};

use super::{
    batch::Batch,
    connection::not_applied,
    look::{enter, sorted_keys},
    rows::value_named,
    session::{PostgresSession, surely},
};
use crate::{
    fence::Standing,
    store::{
        Settled, StoreError, Unit,
        ledger::{Entry, Ledger, ValueChange},
    },
    token::{Key, Mark},
    write::Value,
};

/// This lock keeps the floor from rising until the end, so whoever has it may read the floor.
const TAKE_TABLE: &str = "LOCK TABLE fencepost.resources IN ROW EXCLUSIVE MODE; \
     SELECT token FROM fencepost.floor";

/// $1 keys. FOR UPDATE follows the row to its newest version, and locks in the order of the result.
const LOCK_ROWS: &str = "
SELECT key, token, seq, version, created, digest, value IS NOT NULL AS present
FROM fencepost.resources WHERE key = ANY($1) ORDER BY key FOR UPDATE";

/// $1 keys.
const VALUES: &str = "
SELECT key, value, content_type FROM fencepost.resources
WHERE key = ANY($1) AND octet_length(value) <= 65536";

/// $1 keys, then one array for each column; $7 says whose value changes, to $8 and $9.
const UPDATE_ROWS: &str = "
UPDATE fencepost.resources AS r SET
    token = n.token, seq = n.seq, version = n.version, created = n.created, digest = n.digest,
    value = CASE WHEN n.value_changes THEN n.value ELSE r.value END,
    content_type = CASE WHEN n.value_changes THEN n.content_type ELSE r.content_type END,
    touched_at = now()
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::bytea[],
            $7::boolean[], $8::bytea[], $9::text[])
     AS n (key, token, seq, version, created, digest, value_changes, value, content_type)
WHERE r.key = n.key";

/// The same arrays, for rows that are not there yet.
const INSERT_ROWS: &str = "
INSERT INTO fencepost.resources
    (key, token, seq, version, created, digest, value, content_type)
SELECT n.key, n.token, n.seq, n.version, n.created, n.digest, n.value, n.content_type
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::bytea[],
            $7::boolean[], $8::bytea[], $9::text[]) WITH ORDINALITY
     AS n (key, token, seq, version, created, digest, value_changes, value, content_type, place)
ORDER BY n.place
ON CONFLICT (key) DO NOTHING";

impl PostgresSession {
    /// Answers all these units.
    pub(super) async fn settle_locked(
        &mut self,
        batch: &mut Batch<'_>,
        places: &[usize],
    ) -> Result<(), StoreError> {
        if places.is_empty() {
            return Ok(());
        }
        let units: Vec<&Unit> = places.iter().map(|place| &batch.units[*place]).collect();
        let (settled, changed) = match self.judge_locked(&units).await {
            Ok((settled, true)) => {
                batch.depart(places.iter().copied());
                self.connection.commit().await?;
                batch.landed();
                batch.committed();
                (settled, true)
            }
            Ok((settled, false)) => {
                self.connection.rollback().await?;
                (settled, false)
            }
            // If the connection is lost, so is the transaction: COMMIT was never sent.
            Err(error) if error.ends_the_session() => return Err(surely(error)),
            Err(error) => {
                self.connection.rollback().await?;
                return Err(error);
            }
        };
        for (place, settled) in places.iter().zip(settled) {
            if changed {
                batch.answer(*place, Ok(settled));
            } else {
                batch.answer_as_seen(*place, settled);
            }
        }
        Ok(())
    }

    /// The answers, and whether there is anything to commit.
    async fn judge_locked(&mut self, units: &[&Unit]) -> Result<(Vec<Settled>, bool), StoreError> {
        let mut ledger = self.lock(&sorted_keys(units.iter().copied())).await?;
        let values = self.values_wanted(units).await?;
        let mut answers = Vec::with_capacity(units.len());
        for unit in units {
            let mut settled = ledger.settle(unit);
            if let Settled::Applied { value, .. } = &mut settled
                && unit.read_back
            {
                // As this transaction will leave it: a fenced read may follow a put that it came with.
                let key = &unit.writes()[0].key;
                *value = match ledger.value(key) {
                    ValueChange::Set(value) => Some(value.clone()),
                    ValueChange::Cleared => None,
                    ValueChange::Kept => values.get(key.as_str()).cloned(),
                };
            }
            answers.push(settled);
        }
        let changed = self.save(&ledger).await?;
        Ok((answers, changed))
    }

    async fn lock(&mut self, keys: &[Key]) -> Result<Ledger, StoreError> {
        let floor = self.connection.begin_with(TAKE_TABLE).await?;
        let no_floor = || StoreError::Unfit("the floor is gone".into());
        let floor: i64 = floor.ok_or_else(no_floor)?.try_get("token").map_err(not_applied)?;
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let rows = sqlx::query(LOCK_ROWS)
            .bind(&names)
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied)?;
        let mut ledger = Ledger::new(Mark { token: floor, seq: 0 });
        for row in &rows {
            enter(&mut ledger, row)?;
        }
        Ok(ledger)
    }

    /// Those that fenced reads want back, as they are under the locks.
    async fn values_wanted(
        &mut self,
        units: &[&Unit],
    ) -> Result<HashMap<String, Value>, StoreError> {
        let wanted = units.iter().filter(|unit| unit.read_back);
        let keys: Vec<&str> = wanted.map(|unit| unit.writes()[0].key.as_str()).collect();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query(VALUES)
            .bind(&keys)
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied)?;
        let mut values = HashMap::with_capacity(rows.len());
        for row in &rows {
            if let Some(value) = value_named(row).map_err(not_applied)? {
                values.insert(row.try_get("key").map_err(not_applied)?, value);
            }
        }
        Ok(values)
    }

    /// Whether there was anything to save.
    async fn save(&mut self, ledger: &Ledger) -> Result<bool, StoreError> {
        let (stored, fresh): (Vec<_>, Vec<_>) =
            ledger.changes().partition(|(_, entry)| entry.stored);
        if !stored.is_empty() {
            let saved = self.save_rows(UPDATE_ROWS, &stored).await?;
            if saved != stored.len() as u64 {
                let said = format!("{saved} of {} locked rows were saved", stored.len());
                return Err(StoreError::Failed(said));
            }
        }
        if !fresh.is_empty() && self.save_rows(INSERT_ROWS, &fresh).await? != fresh.len() as u64 {
            // Somebody was faster. The next attempt finds their row, and locks it.
            return Err(StoreError::Conflict);
        }
        Ok(!stored.is_empty() || !fresh.is_empty())
    }

    async fn save_rows(
        &mut self,
        statement: &'static str,
        changes: &[(&Key, &Entry)],
    ) -> Result<u64, StoreError> {
        let saved = bind(statement, changes)
            .persistent(self.connection.keeps_statements())
            .execute(self.connection.raw())
            .await
            .map_err(not_applied)?;
        Ok(saved.rows_affected())
    }
}

fn bind<'q>(
    statement: &'static str,
    changes: &[(&'q Key, &'q Entry)],
) -> Query<'q, Postgres, PgArguments> {
    let column = |f: fn(&Standing) -> i64| -> Vec<i64> {
        changes.iter().map(|(_, entry)| f(&entry.standing)).collect()
    };
    let digests = changes.iter().map(|(_, entry)| entry.standing.digest.map(Vec::from));
    let values: Vec<Option<&Value>> = changes
        .iter()
        .map(|(_, entry)| match &entry.value {
            ValueChange::Set(value) => Some(value),
            ValueChange::Kept | ValueChange::Cleared => None,
        })
        .collect();
    let types = values.iter().map(|value| value.map(|value| value.content_type.as_str()));
    sqlx::query(statement)
        .bind(changes.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>())
        .bind(column(|standing| standing.mark.token))
        .bind(column(|standing| standing.mark.seq))
        .bind(column(|standing| standing.version.get()))
        .bind(changes.iter().map(|(_, entry)| entry.standing.created).collect::<Vec<_>>())
        .bind(digests.collect::<Vec<_>>())
        .bind(changes.iter().map(|(_, entry)| entry.value != ValueChange::Kept).collect::<Vec<_>>())
        .bind(values.iter().map(|value| value.map(|value| &value.body[..])).collect::<Vec<_>>())
        .bind(types.collect::<Vec<_>>())
}
