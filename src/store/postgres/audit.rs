//! The audit table, in Postgres.

use std::{sync::Arc, time::SystemTime};

use async_trait::async_trait;

use super::{
    connection::{Connection, maybe_applied, not_applied},
    notices,
    session::{DEADLINE, surely, within},
};
use crate::{
    metrics::Reason,
    rejections::{Entry, Filter},
    store::{
        Audit, StoreError,
        audit::{Row, microseconds},
    },
    token::Key,
};

/// $1 the rows, as JSON.
const APPEND: &str = "
INSERT INTO fencepost.rejections (fencepost, number, at, key, scope, reason, token, mark, seq,
                                  client, peer, trace, decided_by, overtaken_by, identity,
                                  by_floor)
SELECT fencepost, number, 'epoch'::timestamptz + at * interval '1 microsecond', key, scope, reason,
       token, mark, seq, client, peer, trace, decided_by, overtaken_by, identity, by_floor
FROM json_to_recordset($1::json) AS r(
    fencepost bigint, number bigint, at bigint, key text, scope text, reason text, token bigint,
    mark bigint, seq bigint, client text, peer text, trace text, decided_by text, overtaken_by text,
    identity text, by_floor boolean)
ON CONFLICT DO NOTHING";

/// $1 key or null, $2 reason or null, $3 since, $4 limit.
const NEWEST: &str = "
SELECT fencepost, number, (extract(epoch FROM at) * 1000000)::bigint AS at, key, scope, reason,
       token, mark, seq, client, peer, trace, decided_by, overtaken_by, identity, by_floor
FROM fencepost.rejections AS r
WHERE ($1 IS NULL OR key = $1) AND ($2 IS NULL OR reason = $2)
  AND r.at >= 'epoch'::timestamptz + $3 * interval '1 microsecond'
ORDER BY r.at DESC, number DESC LIMIT $4";

/// $1 before or null, $2 how many at most. A function, since whoever serves may not delete.
const DROP_OLDEST: &str = "
SELECT fencepost.drop_rejections('epoch'::timestamptz + $1::bigint * interval '1 microsecond', $2)";

pub struct PostgresAudit {
    connection: Connection,
}

impl PostgresAudit {
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    async fn append_now(&mut self, rows: &str) -> Result<(), StoreError> {
        self.connection.begin_if_pooled().await?;
        let appended = sqlx::query(APPEND)
            .bind(rows)
            .persistent(self.connection.keeps_statements())
            .execute(self.connection.raw())
            .await
            .map_err(maybe_applied);
        self.connection.end_if_pooled(&appended).await?;
        appended.map(drop)
    }

    async fn newest_now(&mut self, filter: &Filter, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.connection.begin_if_pooled().await?;
        let rows = sqlx::query_as(NEWEST)
            .bind(filter.key.as_ref().map(Key::as_str))
            .bind(filter.reason.map(Reason::name))
            .bind(filter.since.map_or(0, microseconds))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            // Planned for what is asked: a generic plan would not know which filters there are.
            .persistent(false)
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&rows).await?;
        rows
    }

    async fn count_now(&mut self) -> Result<i64, StoreError> {
        self.connection.begin_if_pooled().await?;
        let count = sqlx::query_scalar("SELECT count(*) FROM fencepost.rejections")
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&count).await?;
        count
    }

    async fn drop_now(&mut self, before: Option<SystemTime>, most: u64) -> Result<u64, StoreError> {
        self.connection.begin_if_pooled().await?;
        let dropped: Result<i64, StoreError> = sqlx::query_scalar(DROP_OLDEST)
            .bind(before.map(microseconds))
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(maybe_applied);
        self.connection.end_if_pooled(&dropped).await?;
        Ok(dropped?.unsigned_abs())
    }
}

#[async_trait]
impl Audit for PostgresAudit {
    async fn append(&mut self, entries: &[Arc<Entry>]) -> Result<(), StoreError> {
        let rows: Vec<Row> = entries.iter().map(|entry| Row::of(entry)).collect();
        let rows = serde_json::to_string(&rows).map_err(StoreError::unavailable)?;
        let appending = within(DEADLINE, self.append_now(&rows));
        let (appended, warned) = notices::listening(appending).await;
        let appended = self.connection.unless_only_here(appended, warned).await;
        self.connection.unknown_if_deposed(appended)
    }

    async fn newest(&mut self, filter: &Filter, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let rows = within(DEADLINE, self.newest_now(filter, limit)).await.map_err(surely);
        let rows = self.connection.unless_deposed(rows)?;
        Ok(rows.into_iter().filter_map(Row::entry).collect())
    }

    async fn count(&mut self) -> Result<u64, StoreError> {
        let count = within(DEADLINE, self.count_now()).await.map_err(surely);
        let count = self.connection.unless_deposed(count)?;
        Ok(count.unsigned_abs())
    }

    async fn drop_oldest(
        &mut self,
        before: Option<SystemTime>,
        most: u64,
    ) -> Result<u64, StoreError> {
        let dropped = within(DEADLINE, self.drop_now(before, most)).await;
        self.connection.unknown_if_deposed(dropped)
    }
}
