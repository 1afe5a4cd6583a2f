//! What is remembered of an etcd, in SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::SqliteConnection;

use super::{Writing, disk::Disk, owning_authority, session::not_applied};
use crate::store::{
    Memory, MoveReason, OwningAuthority, Recalled, Remembered, Sighting, StoreError,
    memory::{missing, recalled, remembered},
};

/// 4611686018427387904 is 2^62.
const RECALL: &str = "
SELECT epoch, revision, cluster, term, max(
    coalesce((SELECT token FROM floor WHERE token < 4611686018427387904), 0),
    (SELECT issued FROM tokens)) AS issued, o.kind, o.identity, o.namespace, o.instance
FROM authority LEFT JOIN owning_authority AS o ON true";

/// The same.
const HIGHEST: &str = "
SELECT max(
    coalesce((SELECT max(token) FROM resources WHERE token < 4611686018427387904), 0),
    coalesce((SELECT token FROM floor WHERE token < 4611686018427387904), 0),
    (SELECT issued FROM tokens))";

/// ?1 epoch, ?2 revision, ?3 cluster, ?4 term.
const ADOPT: &str = "INSERT INTO authority (only_row, epoch, revision, cluster, term)
SELECT 1, ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM authority)";

/// The same. Writes nothing where somebody has noted as much already.
const NOTE: &str = "UPDATE authority SET revision = max(revision, ?2), term = max(term, ?4)
WHERE epoch = ?1 AND cluster = ?3 AND (revision < ?2 OR term < ?4)
RETURNING epoch, revision, cluster, term";

/// The same, ?5 the new epoch, and ?6 how many seconds must lie between two moves. Of several who have
/// noticed, one moves it. A clock that was set back does not hold it up.
const MOVE_ON: &str = "UPDATE authority
SET epoch = ?5, revision = ?2, cluster = ?3, term = ?4, moved_at = unixepoch()
WHERE epoch = ?1 AND (moved_at IS NULL OR moved_at > unixepoch() OR moved_at <= unixepoch() - ?6)
RETURNING epoch, revision, cluster, term";

pub struct SqliteMemory {
    connection: SqliteConnection,
    writing: Writing,
    disk: Arc<Disk>,
}

impl SqliteMemory {
    pub fn new(connection: SqliteConnection, writing: Writing, disk: Arc<Disk>) -> Self {
        Self { connection, writing, disk }
    }

    async fn write(
        &mut self,
        statement: &'static str,
        epoch: u16,
        seen: &Sighting,
        new_epoch: Option<(u16, i32)>,
    ) -> Result<Remembered, StoreError> {
        let mut query = sqlx::query(statement)
            .bind(i64::from(epoch))
            .bind(seen.revision)
            .bind(&seen.cluster)
            .bind(seen.term);
        if let Some((new_epoch, between)) = new_epoch {
            query = query.bind(i64::from(new_epoch)).bind(between);
        }
        let in_line = self.writing.lock().await;
        // All rows, to the end: only there is it committed.
        let rows = query.fetch_all(&mut self.connection).await.map_err(not_applied);
        drop(in_line);
        let rows = match rows {
            // It has written nothing.
            Ok(rows) if rows.is_empty() => rows,
            rows => self.disk.note_outcome(rows)?,
        };
        match rows.first() {
            Some(row) => remembered(row).map_err(not_applied),
            // Somebody else was first, or there was nothing to add.
            None => Ok(self.recall().await?.ok_or_else(missing)?.row),
        }
    }
}

#[async_trait]
impl Memory for SqliteMemory {
    async fn recall(&mut self) -> Result<Option<Recalled>, StoreError> {
        let row =
            sqlx::query(RECALL).fetch_optional(&mut self.connection).await.map_err(not_applied)?;
        row.as_ref().map(recalled).transpose().map_err(not_applied)
    }

    async fn highest_token(&mut self) -> Result<i64, StoreError> {
        sqlx::query_scalar(HIGHEST).fetch_one(&mut self.connection).await.map_err(not_applied)
    }

    async fn adopt(&mut self, first: &Remembered) -> Result<Remembered, StoreError> {
        self.write(ADOPT, first.epoch, &first.seen, None).await
    }

    async fn note(&mut self, epoch: u16, seen: &Sighting) -> Result<Remembered, StoreError> {
        self.write(NOTE, epoch, seen, None).await
    }

    async fn move_on(
        &mut self,
        from: u16,
        to: &Remembered,
        reason: MoveReason,
    ) -> Result<Remembered, StoreError> {
        self.write(MOVE_ON, from, &to.seen, Some((to.epoch, reason.seconds_between()))).await
    }

    async fn claim_authority(
        &mut self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError> {
        owning_authority::claim(&mut self.connection, &self.writing, wanted).await
    }

    async fn claim_instance(
        &mut self,
        former: Option<&str>,
        found: &str,
        seen: &Sighting,
    ) -> Result<Option<String>, StoreError> {
        owning_authority::claim_instance(&mut self.connection, &self.writing, former, found, seen)
            .await
    }
}
