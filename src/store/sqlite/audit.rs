//! The audit table, in SQLite. There is one writer, so each change is one short statement.

use std::{sync::Arc, time::SystemTime};

use async_trait::async_trait;
use sqlx::SqliteConnection;

use super::{Writing, disk::Disk, session::not_applied};
use crate::{
    metrics::Reason,
    rejections::{Entry, Filter},
    store::{
        Audit, StoreError,
        audit::{Row, microseconds},
    },
    token::Key,
};

/// ?1 the rows, as JSON.
const APPEND: &str = "
INSERT INTO rejections (fencepost, number, at, key, scope, reason, token, mark, seq, client, peer,
                        trace, decided_by, overtaken_by, identity, by_floor)
SELECT value ->> 'fencepost', value ->> 'number', value ->> 'at', value ->> 'key',
       value ->> 'scope', value ->> 'reason', value ->> 'token', value ->> 'mark', value ->> 'seq',
       value ->> 'client', value ->> 'peer', value ->> 'trace', value ->> 'decided_by',
       value ->> 'overtaken_by', value ->> 'identity', value ->> 'by_floor'
FROM json_each(?1) WHERE true
ON CONFLICT DO NOTHING";

/// ?1 key or null, ?2 reason or null, ?3 since, ?4 limit.
const NEWEST: &str = "
SELECT * FROM rejections
WHERE (?1 IS NULL OR key = ?1) AND (?2 IS NULL OR reason = ?2) AND at >= ?3
ORDER BY at DESC, number DESC LIMIT ?4";

/// The same for one key: by the index that the planner would not choose above.
const NEWEST_OF_KEY: &str = "
SELECT * FROM rejections WHERE key = ?1 AND (?2 IS NULL OR reason = ?2) AND at >= ?3
ORDER BY at DESC, number DESC LIMIT ?4";

/// ?1 before, ?2 how many at most.
const DROP_OLDEST: &str = "
DELETE FROM rejections WHERE (fencepost, number) IN
    (SELECT fencepost, number FROM rejections WHERE at < ?1 ORDER BY at LIMIT ?2)";

pub struct SqliteAudit {
    connection: SqliteConnection,
    writing: Writing,
    disk: Arc<Disk>,
}

impl SqliteAudit {
    pub fn new(connection: SqliteConnection, writing: Writing, disk: Arc<Disk>) -> Self {
        Self { connection, writing, disk }
    }
}

#[async_trait]
impl Audit for SqliteAudit {
    async fn append(&mut self, entries: &[Arc<Entry>]) -> Result<(), StoreError> {
        let rows: Vec<Row> = entries.iter().map(|entry| Row::of(entry)).collect();
        let rows = serde_json::to_string(&rows).map_err(StoreError::unavailable)?;
        let _in_line = self.writing.lock().await;
        let appended = sqlx::query(APPEND).bind(rows).execute(&mut self.connection).await;
        self.disk.note_outcome(appended.map(drop).map_err(not_applied))
    }

    async fn newest(&mut self, filter: &Filter, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let statement = if filter.key.is_some() { NEWEST_OF_KEY } else { NEWEST };
        let rows: Vec<Row> = sqlx::query_as(statement)
            .bind(filter.key.as_ref().map(Key::as_str))
            .bind(filter.reason.map(Reason::name))
            .bind(filter.since.map_or(0, microseconds))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut self.connection)
            .await
            .map_err(not_applied)?;
        Ok(rows.into_iter().filter_map(Row::entry).collect())
    }

    async fn count(&mut self) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM rejections")
            .fetch_one(&mut self.connection)
            .await
            .map_err(not_applied)?;
        Ok(count.unsigned_abs())
    }

    async fn drop_oldest(
        &mut self,
        before: Option<SystemTime>,
        most: u64,
    ) -> Result<u64, StoreError> {
        let _in_line = self.writing.lock().await;
        let dropped = sqlx::query(DROP_OLDEST)
            .bind(before.map_or(i64::MAX, microseconds))
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .execute(&mut self.connection)
            .await
            .map_err(not_applied)?;
        Ok(dropped.rows_affected())
    }
}
