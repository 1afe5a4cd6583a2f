//! One connection to the SQLite file.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{Connection, Row, SqliteConnection, error::DatabaseError, sqlite::SqliteRow};

use super::{
    MIGRATIONS, Writing,
    disk::{Disk, ENOUGH_BYTES, LEAST_BYTES},
};
use crate::{
    buffer,
    fence::Standing,
    store::{
        DiskTrouble, INLINE_BYTES, Listed, Page, Session, Settled, Snapshot, StoreError, Unit,
        first_key_after_prefix,
        ledger::{Entry, Ledger, ValueChange},
    },
    token::{Key, Mark, Version},
    write::Value,
};

pub struct SqliteSession {
    connection: SqliteConnection,
    writing: Writing,
    disk: Arc<Disk>,
}

impl SqliteSession {
    pub fn new(connection: SqliteConnection, writing: Writing, disk: Arc<Disk>) -> Self {
        Self { connection, writing, disk }
    }

    /// Writes what is there already, which takes some room in the log all the same.
    async fn try_to_write(&mut self) -> Result<(), StoreError> {
        let _in_line = self.writing.lock().await;
        let mut transaction =
            self.connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
        sqlx::query("UPDATE floor SET token = token")
            .execute(&mut *transaction)
            .await
            .map_err(not_applied)?;
        transaction.commit().await.map_err(not_applied)
    }

    /// All units in one transaction, so that they share one sync to disk.
    async fn settle_together(&mut self, units: &[Unit]) -> Result<Vec<Settled>, StoreError> {
        let _in_line = self.writing.lock().await;
        let mut transaction =
            self.connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
        let mut ledger = load(&mut transaction, units).await.map_err(not_applied)?;
        let mut answers = Vec::with_capacity(units.len());
        for unit in units {
            let mut settled = ledger.settle(unit);
            if let Settled::Applied { value, .. } = &mut settled
                && unit.read_back
            {
                let key = &unit.writes()[0].key;
                *value =
                    current_value(&mut transaction, &ledger, key).await.map_err(not_applied)?;
            }
            answers.push(settled);
        }
        let mut changed = false;
        for (key, entry) in ledger.changes() {
            save(&mut transaction, key, entry).await.map_err(not_applied)?;
            changed = true;
        }
        if changed {
            self.disk.note_outcome(transaction.commit().await.map_err(not_committed))?;
        } else {
            transaction.rollback().await.map_err(not_applied)?;
        }
        Ok(answers)
    }

    async fn settle_singly(&mut self, units: &[Unit]) -> Vec<Result<Settled, StoreError>> {
        let mut lost: Option<StoreError> = None;
        let mut answers = Vec::with_capacity(units.len());
        for unit in units {
            let alone = match &lost {
                // Never begun, so certainly not applied.
                Some(error @ StoreError::Disk(..)) => Err(error.clone()),
                Some(error) => Err(StoreError::unavailable(error.clone())),
                None => self.settle_together(std::slice::from_ref(unit)).await,
            };
            lost = lost.or(alone.as_ref().err().filter(|error| error.ends_the_session()).cloned());
            answers.push(alone.map(|mut settled| settled.remove(0)));
        }
        answers
    }
}

#[async_trait]
impl Session for SqliteSession {
    async fn settle(&mut self, units: &[Unit]) -> Vec<Result<Settled, StoreError>> {
        let settled: Vec<_> = match self.settle_together(units).await {
            Ok(settled) => settled.into_iter().map(Ok).collect(),
            // One bad row must not fail its neighbours. Nothing was applied, so each may try alone.
            Err(StoreError::Failed(_)) if units.len() > 1 => self.settle_singly(units).await,
            Err(error) => units.iter().map(|_| Err(error.clone())).collect(),
        };
        for failed in settled.iter().filter_map(|settled| settled.as_ref().err()) {
            self.disk.note(failed);
        }
        settled
    }

    async fn read(&mut self, key: &Key, most: u64) -> Result<Snapshot, StoreError> {
        let row = sqlx::query(
            "SELECT f.token AS floor, r.token, r.seq, r.version, r.created, r.digest,
                    CASE WHEN length(r.value) <= ?2 THEN r.value END AS value, r.content_type,
                    r.value IS NOT NULL AS present, length(r.value) AS size
             FROM floor f LEFT JOIN resources r ON r.key = ?1",
        )
        .bind(key.as_str())
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .fetch_one(&mut self.connection)
        .await
        .map_err(not_applied)?;
        let value = value_of(&row).map_err(not_applied)?;
        let mut standing = Standing::default();
        if row.try_get::<Option<i64>, _>("token").map_err(not_applied)?.is_some() {
            standing = standing_of(&row).map_err(not_applied)?;
        }
        let own = standing.mark.token;
        let floor = Mark { token: row.try_get("floor").map_err(not_applied)?, seq: 0 };
        standing.mark = standing.mark.max(floor);
        let size: Option<i64> = row.try_get("size").map_err(not_applied)?;
        let size = size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
        Ok(Snapshot { standing, own, value, size, has_standbys: false })
    }

    async fn read_together(
        &mut self,
        keys: &[Key],
        most: u64,
    ) -> Result<Vec<Snapshot>, StoreError> {
        let mut snapshots = Vec::with_capacity(keys.len());
        for key in keys {
            snapshots.push(self.read(key, most).await?);
        }
        Ok(snapshots)
    }

    async fn list(&mut self, page: &Page) -> Result<Vec<Listed>, StoreError> {
        let rows = sqlx::query(
            "SELECT key, version, max(token, (SELECT token FROM floor)) AS token,
                    content_type, length(value) AS size
             FROM resources
             WHERE value IS NOT NULL AND key > ?1 AND key >= ?2 AND (?3 IS NULL OR key < ?3)
             ORDER BY key LIMIT ?4",
        )
        .bind(&page.after)
        .bind(&page.prefix)
        .bind(first_key_after_prefix(&page.prefix))
        .bind(page.limit)
        .fetch_all(&mut self.connection)
        .await
        .map_err(not_applied)?;
        rows.iter().map(|row| listed(row).map_err(not_applied)).collect()
    }

    async fn ping(&mut self) -> Result<(), StoreError> {
        ping(&mut self.connection).await
    }

    async fn can_write(&mut self) -> Result<(), StoreError> {
        if self.disk.trouble().is_none() {
            return self.disk.has_room(LEAST_BYTES);
        }
        self.disk.has_room(ENOUGH_BYTES)?;
        let tried = self.try_to_write().await;
        self.disk.note_outcome(tried)
    }
}

pub(super) async fn ping(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let (sealed, later, oldest): (Option<i64>, Option<i64>, Option<i64>) = sqlx::query_as(
        "SELECT (SELECT max(version) FROM _sqlx_migrations WHERE success),
                (SELECT max(version) FROM migrations WHERE success),
                (SELECT oldest FROM compatibility)",
    )
    .fetch_one(connection)
    .await
    .map_err(not_applied)?;
    if MIGRATIONS.still_fit(sealed, later, oldest) {
        return Ok(());
    }
    Err(StoreError::Unfit("the schema has changed under this fencepost".into()))
}

async fn load(connection: &mut SqliteConnection, units: &[Unit]) -> Result<Ledger, sqlx::Error> {
    let floor: i64 =
        sqlx::query_scalar("SELECT token FROM floor").fetch_one(&mut *connection).await?;
    let mut ledger = Ledger::new(Mark { token: floor, seq: 0 });
    for key in units.iter().flat_map(Unit::keys) {
        let row = sqlx::query(
            "SELECT token, seq, version, created, digest, value IS NOT NULL AS present
             FROM resources WHERE key = ?1",
        )
        .bind(key.as_str())
        .fetch_optional(&mut *connection)
        .await?;
        if let Some(row) = row {
            ledger.enter(key.clone(), standing_of(&row)?);
        }
    }
    Ok(ledger)
}

/// The value as this transaction leaves it: a fenced read may follow a put it was gathered with.
async fn current_value(
    connection: &mut SqliteConnection,
    ledger: &Ledger,
    key: &Key,
) -> Result<Option<Value>, sqlx::Error> {
    match ledger.value(key) {
        ValueChange::Set(value) => Ok(Some(value.clone())),
        ValueChange::Cleared => Ok(None),
        ValueChange::Kept => {
            let row = sqlx::query(
                "SELECT value, content_type FROM resources WHERE key = ?1 AND length(value) <= ?2",
            )
            .bind(key.as_str())
            .bind(i64::try_from(INLINE_BYTES).unwrap_or(i64::MAX))
            .fetch_optional(connection)
            .await?;
            row.as_ref().map_or(Ok(None), value_of)
        }
    }
}

async fn save(
    connection: &mut SqliteConnection,
    key: &Key,
    entry: &Entry,
) -> Result<(), sqlx::Error> {
    let standing = &entry.standing;
    let (value_changes, value) = match &entry.value {
        ValueChange::Kept => (false, None),
        ValueChange::Cleared => (true, None),
        ValueChange::Set(value) => (true, Some(value)),
    };
    sqlx::query(
        "INSERT INTO resources (key, token, seq, version, created, digest, value, content_type, touched_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, unixepoch())
         ON CONFLICT (key) DO UPDATE SET
             token = excluded.token, seq = excluded.seq, version = excluded.version,
             created = excluded.created, digest = excluded.digest, touched_at = excluded.touched_at,
             value = CASE WHEN ?9 THEN excluded.value ELSE value END,
             content_type = CASE WHEN ?9 THEN excluded.content_type ELSE content_type END",
    )
    .bind(key.as_str())
    .bind(standing.mark.token)
    .bind(standing.mark.seq)
    .bind(standing.version.get())
    .bind(standing.created)
    .bind(standing.digest.map(|digest| digest.to_vec()))
    .bind(value.map(|value| value.body.to_vec()))
    .bind(value.map(|value| value.content_type.as_str()))
    .bind(value_changes)
    .execute(connection)
    .await?;
    Ok(())
}

fn standing_of(row: &SqliteRow) -> Result<Standing, sqlx::Error> {
    let digest: Option<Vec<u8>> = row.try_get("digest")?;
    Ok(Standing {
        mark: Mark { token: row.try_get("token")?, seq: row.try_get("seq")? },
        version: Version::from_stored(row.try_get("version")?),
        present: row.try_get("present")?,
        created: row.try_get("created")?,
        digest: digest.and_then(|digest| digest.try_into().ok()),
    })
}

fn value_of(row: &SqliteRow) -> Result<Option<Value>, sqlx::Error> {
    let body: Option<&[u8]> = row.try_get("value")?;
    let content_type: Option<String> = row.try_get("content_type")?;
    let value = |(body, content_type)| Value { body: buffer::copied(body), content_type };
    Ok(body.zip(content_type).map(value))
}

fn listed(row: &SqliteRow) -> Result<Listed, sqlx::Error> {
    Ok(Listed {
        key: row.try_get("key")?,
        version: Version::from_stored(row.try_get("version")?),
        token: row.try_get("token")?,
        content_type: row.try_get("content_type")?,
        size: row.try_get("size")?,
    })
}

/// For errors before the commit: the transaction is rolled back with them.
pub(super) fn not_applied(error: sqlx::Error) -> StoreError {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    const READ_ONLY: u32 = 8;
    const IO_ERROR: u32 = 10;
    const CORRUPT: u32 = 11;
    const CANNOT_OPEN: u32 = 14;
    const NOT_A_DATABASE: u32 = 26;
    // What the triggers of migrations/sqlite/0008_owning_authority.sql raise.
    const OTHER_AUTHORITY: &str = "the store belongs to another authority";
    let said = error.as_database_error().map(DatabaseError::message);
    if said.is_some_and(|said| said.contains(OTHER_AUTHORITY)) {
        return StoreError::OtherAuthority(OTHER_AUTHORITY.into());
    }
    let trouble = match kind_of(&error) {
        Some(BUSY | LOCKED) => return StoreError::Busy,
        Some(FULL) => DiskTrouble::Full,
        Some(READ_ONLY) => DiskTrouble::ReadOnly,
        Some(IO_ERROR) => DiskTrouble::Failing,
        Some(CORRUPT | NOT_A_DATABASE) => DiskTrouble::Damaged,
        None | Some(CANNOT_OPEN) => return StoreError::unavailable(error),
        Some(_) => return StoreError::Failed(error.to_string()),
    };
    StoreError::Disk(trouble, error.to_string())
}

/// For errors of the commit itself. It may have reached the disk or not; but where there was no room for its
/// last page, which says that the ones before it count, it has not.
pub(super) fn not_committed(error: sqlx::Error) -> StoreError {
    match kind_of(&error) {
        Some(FULL) => StoreError::Disk(DiskTrouble::Full, error.to_string()),
        _ => StoreError::unknown(error),
    }
}

const FULL: u32 = 13;

/// The low byte is the kind of an error; what is above it, a variety.
fn kind_of(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error().and_then(DatabaseError::code)?;
    code.parse::<u32>().ok().map(|code| code & 0xff)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};

    use super::*;

    #[tokio::test]
    async fn an_error_is_told_by_its_kind() {
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new()
            .filename(directory.path().join("test.db"))
            .create_if_missing(true)
            .busy_timeout(Duration::ZERO);
        let mut writer = options.connect().await.unwrap();
        let mut other = options.connect().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut writer).await.unwrap();
        let busy = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap_err();
        assert!(matches!(not_applied(busy), StoreError::Busy));
        let wrong = sqlx::raw_sql("SELECT * FROM nothing").execute(&mut other).await.unwrap_err();
        assert!(matches!(not_applied(wrong), StoreError::Failed(_)));
        assert!(matches!(not_applied(sqlx::Error::WorkerCrashed), StoreError::Unavailable(_)));
    }
}
