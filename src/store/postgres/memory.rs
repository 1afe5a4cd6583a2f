//! What is remembered of an etcd, in Postgres.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    connection::{Connection, maybe_applied, not_applied},
    notices, owning_authority,
    session::{DEADLINE, surely, within},
};
use crate::store::{
    Memory, MoveReason, OwningAuthority, Recalled, Remembered, Sighting, StoreError,
    memory::{missing, recalled, remembered},
};

/// For the one question that may have to look at every row.
const LONG_DEADLINE: Duration = Duration::from_mins(2);

/// 4611686018427387904 is 2^62.
const RECALL: &str = "
SELECT epoch::int8 AS epoch, revision, cluster, term, greatest(
    (SELECT token FROM fencepost.floor WHERE token < 4611686018427387904),
    (SELECT last_value FROM fencepost.tokens WHERE is_called),
    0) AS issued, o.kind, o.identity, o.namespace, o.instance
FROM fencepost.authority LEFT JOIN fencepost.owning_authority AS o ON true";

const HIGHEST: &str = "
SELECT greatest(
    (SELECT max(token) FROM fencepost.resources WHERE token < 4611686018427387904),
    (SELECT token FROM fencepost.floor WHERE token < 4611686018427387904),
    (SELECT last_value FROM fencepost.tokens WHERE is_called),
    0)";

/// $1 epoch, $2 revision, $3 cluster, $4 term.
const ADOPT: &str = "INSERT INTO fencepost.authority (epoch, revision, cluster, term)
VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";

/// The same. Writes nothing where somebody has noted as much already.
const NOTE: &str = "UPDATE fencepost.authority
SET revision = greatest(revision, $2), term = greatest(term, $4)
WHERE epoch = $1 AND cluster = $3 AND (revision < $2 OR term < $4)
RETURNING epoch::int8 AS epoch, revision, cluster, term";

/// The same, $5 the new epoch, and $6 how many seconds must lie between two moves. Of several who have
/// noticed, one moves it. A clock that was set back does not hold it up.
const MOVE_ON: &str = "UPDATE fencepost.authority
SET epoch = $5, revision = $2, cluster = $3, term = $4, moved_at = now()
WHERE epoch = $1 AND (moved_at IS NULL OR moved_at > now()
                      OR moved_at <= now() - make_interval(secs => $6::int4))
RETURNING epoch::int8 AS epoch, revision, cluster, term";

pub struct PostgresMemory {
    connection: Connection,
}

impl PostgresMemory {
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    async fn row(&mut self) -> Result<Option<Recalled>, StoreError> {
        self.connection.begin_if_pooled().await?;
        let row = sqlx::query(RECALL)
            .persistent(self.connection.keeps_statements())
            .fetch_optional(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&row).await?;
        row?.as_ref().map(recalled).transpose().map_err(not_applied)
    }

    async fn write(
        &mut self,
        statement: &'static str,
        epoch: u16,
        seen: &Sighting,
        new_epoch: Option<(u16, i32)>,
    ) -> Result<Remembered, StoreError> {
        self.connection.begin_if_pooled().await?;
        let mut query = sqlx::query(statement)
            .bind(i32::from(epoch))
            .bind(seen.revision)
            .bind(&seen.cluster)
            .bind(seen.term);
        if let Some((new_epoch, between)) = new_epoch {
            query = query.bind(i32::from(new_epoch)).bind(between);
        }
        let row = query
            .persistent(self.connection.keeps_statements())
            .fetch_optional(self.connection.raw())
            .await
            .map_err(maybe_applied);
        self.connection.end_if_pooled(&row).await?;
        if let Some(row) = row? {
            return remembered(&row).map_err(maybe_applied);
        }
        // Another fencepost was first, or there was nothing to add. What it has noted counts once it is on the standbys.
        let row = self.row().await?.ok_or_else(missing)?.row;
        self.connection.wait_for_standbys().await?;
        Ok(row)
    }

    async fn change(
        &mut self,
        statement: &'static str,
        epoch: u16,
        seen: &Sighting,
        new_epoch: Option<(u16, i32)>,
    ) -> Result<Remembered, StoreError> {
        let writing = within(DEADLINE, self.write(statement, epoch, seen, new_epoch));
        let (row, warned) = notices::listening(writing).await;
        let row = self.connection.unless_only_here(row, warned).await;
        self.connection.unknown_if_deposed(row)
    }

    async fn highest(&mut self) -> Result<i64, StoreError> {
        self.connection.begin_if_pooled().await?;
        let highest = sqlx::query_scalar(HIGHEST)
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&highest).await?;
        highest
    }
}

#[async_trait]
impl Memory for PostgresMemory {
    async fn recall(&mut self) -> Result<Option<Recalled>, StoreError> {
        let recalled = async {
            let row = self.row().await?;
            self.connection.wait_for_standbys().await?;
            Ok(row)
        };
        let row = within(DEADLINE, recalled).await.map_err(surely);
        self.connection.unless_deposed(row)
    }

    async fn highest_token(&mut self) -> Result<i64, StoreError> {
        let highest = within(LONG_DEADLINE, self.highest()).await.map_err(surely);
        self.connection.unless_deposed(highest)
    }

    async fn adopt(&mut self, first: &Remembered) -> Result<Remembered, StoreError> {
        self.change(ADOPT, first.epoch, &first.seen, None).await
    }

    async fn note(&mut self, epoch: u16, seen: &Sighting) -> Result<Remembered, StoreError> {
        self.change(NOTE, epoch, seen, None).await
    }

    async fn move_on(
        &mut self,
        from: u16,
        to: &Remembered,
        reason: MoveReason,
    ) -> Result<Remembered, StoreError> {
        self.change(MOVE_ON, from, &to.seen, Some((to.epoch, reason.seconds_between()))).await
    }

    async fn claim_authority(
        &mut self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError> {
        let claimed = owning_authority::claim(&mut self.connection, wanted).await;
        self.connection.unless_deposed(claimed)
    }

    async fn claim_instance(
        &mut self,
        former: Option<&str>,
        found: &str,
        seen: &Sighting,
    ) -> Result<Option<String>, StoreError> {
        let claimed =
            owning_authority::claim_instance(&mut self.connection, former, found, seen).await;
        self.connection.unless_deposed(claimed)
    }
}
