//! One write, mostly one statement: the fence as a condition that Postgres evaluates.
//!
//! `UPDATE … WHERE` waits for a locked row and then judges its newest version, so a write that
//! waited behind a higher token comes out stale. It costs a refused write neither a lock nor a
//! transaction id. If it wrote nothing, or where new keys are expected, it is sent with an `INSERT`
//! beside it, which runs only where the statement's snapshot has no row, and yields to whoever inserted
//! first. If neither wrote, nothing was changed, and a read of the row explains why; the rare cases that
//! the read cannot settle go on to the locked path.

use sqlx::Row;

use super::{
    connection::maybe_applied, newcomers::Rows, rows::value_named, session::PostgresSession,
};
use crate::{
    fence::{self, Judgement, Standing, Verdict},
    store::{Settled, StoreError},
    token::{Mark, Version},
    write::{Change, Precondition, Rule, Value, Write},
};

/// [`INLINE_BYTES`](crate::store::INLINE_BYTES), as Postgres counts.
const INLINE: i32 = 64 << 10;

macro_rules! update_if_it_passes {
    () => {
        "
UPDATE fencepost.resources AS r SET
    token = $2, seq = $3, digest = $4, value = $5, content_type = $6, touched_at = now(),
    version = CASE WHEN $5 IS NULL AND r.value IS NULL THEN r.version ELSE r.version + 1 END,
    created = $5 IS NOT NULL AND r.value IS NULL
WHERE r.key = $1
  AND $2 >= (SELECT token FROM fencepost.floor)
  AND (r.token < $2 OR (r.token = $2
       AND CASE WHEN $3 > 0 THEN r.seq < $3 ELSE r.seq = 0 AND NOT $7 END))
  AND ($8 IS NULL OR (r.value IS NOT NULL AND r.version = $8))
  AND NOT ($9 AND r.value IS NOT NULL)
RETURNING r.version, r.created"
    };
}

/// $1 key, $2 token, $3 seq or 0, $4 digest, $5 value or null to delete, $6 content type,
/// $7 rule `above`, $8 version to match or null, $9 must be absent.
const UPDATE: &str = update_if_it_passes!();

/// The same, and an insert where there is no row.
const WRITE: &str = concat!(
    "WITH updated AS (",
    update_if_it_passes!(),
    "
), inserted AS (
    INSERT INTO fencepost.resources (key, token, seq, digest, value, content_type, version, created)
    SELECT $1, $2, $3, $4, $5, $6, CASE WHEN $5 IS NULL THEN 0 ELSE 1 END, $5 IS NOT NULL
    WHERE $8 IS NULL
      AND $2 >= (SELECT token FROM fencepost.floor)
      AND NOT EXISTS (SELECT FROM fencepost.resources WHERE key = $1)
    ON CONFLICT (key) DO NOTHING
    RETURNING version, created
)
SELECT version, created, false AS is_new FROM updated
UNION ALL SELECT version, created, true FROM inserted"
);

/// $1 key, $2 token, $3 seq or 0, $4 digest, $5 whether the value is wanted back.
const CLAIM: &str = "
WITH updated AS (
    UPDATE fencepost.resources AS r SET
        token = $2, seq = $3, digest = $4, created = false, touched_at = now()
    WHERE r.key = $1
      AND $2 >= (SELECT token FROM fencepost.floor)
      AND (r.token < $2 OR (r.token = $2 AND r.seq < $3))
    RETURNING r.version, r.value IS NOT NULL AS present,
              CASE WHEN $5 AND octet_length(r.value) <= 65536 THEN r.value END AS value,
              CASE WHEN $5 THEN r.content_type END AS content_type
), inserted AS (
    INSERT INTO fencepost.resources (key, token, seq, digest)
    SELECT $1, $2, $3, $4
    WHERE $2 >= (SELECT token FROM fencepost.floor)
      AND NOT EXISTS (SELECT FROM fencepost.resources WHERE key = $1)
    ON CONFLICT (key) DO NOTHING
    RETURNING version, false AS present, value, content_type
)
SELECT version, present, value, content_type FROM updated
UNION ALL SELECT version, present, value, content_type FROM inserted";

/// What became of a write that came alone.
pub(super) struct Alone {
    pub settled: Settled,
    /// Nothing was written, and commits wait for a standby: what was seen may not have got there yet.
    pub by_what_was_seen: bool,
}

impl PostgresSession {
    /// `None` where the row changed between the statement and its explanation, or where a failed
    /// precondition has to raise the mark.
    pub(super) async fn settle_in_one_statement(
        &mut self,
        write: &Write,
        read_back: bool,
    ) -> Result<Option<Alone>, StoreError> {
        self.connection.begin_if_pooled().await?;
        let attempt = self.write_or_explain(write, read_back).await;
        self.connection.end_if_pooled(&attempt).await?;
        attempt
    }

    async fn write_or_explain(
        &mut self,
        write: &Write,
        read_back: bool,
    ) -> Result<Option<Alone>, StoreError> {
        let written = match &write.change {
            Change::Put(value) => self.put_or_delete(write, Some(value)).await?,
            Change::Delete => self.put_or_delete(write, None).await?,
            Change::Claim => self.claim(write, read_back).await?,
        };
        match written {
            Some(settled) => Ok(Some(Alone { settled, by_what_was_seen: false })),
            None => self.explain(write, read_back).await,
        }
    }

    async fn put_or_delete(
        &mut self,
        write: &Write,
        value: Option<&Value>,
    ) -> Result<Option<Settled>, StoreError> {
        // Most keys that are written are there, and the plain statement costs Postgres a tenth less.
        let expects_none = write.precondition == Some(Precondition::Absent);
        if !expects_none && self.newcomers.rows() == Rows::There {
            let updated = self.put_or_delete_where(Rows::There, write, value).await?;
            if updated.is_some() {
                return Ok(updated);
            }
        }
        self.put_or_delete_where(Rows::PerhapsNot, write, value).await
    }

    async fn put_or_delete_where(
        &mut self,
        rows: Rows,
        write: &Write,
        value: Option<&Value>,
    ) -> Result<Option<Settled>, StoreError> {
        let statement = match rows {
            Rows::There => UPDATE,
            Rows::PerhapsNot => WRITE,
        };
        let version = match write.precondition {
            Some(Precondition::Version(version)) => Some(version.get()),
            Some(Precondition::Absent) | None => None,
        };
        let mark = Mark::at(write.token, write.seq);
        let digest = write.digest();
        let row = sqlx::query(statement)
            .bind(write.key.as_str())
            .bind(mark.token)
            .bind(mark.seq)
            .bind(digest.as_ref().map(<[u8; 32]>::as_slice))
            .bind(value.map(|value| &value.body[..]))
            .bind(value.map(|value| value.content_type.as_str()))
            .bind(write.rule == Rule::Above)
            .bind(version)
            .bind(write.precondition == Some(Precondition::Absent))
            .persistent(self.connection.keeps_statements())
            .fetch_optional(self.connection.raw())
            .await
            .map_err(maybe_applied)?;
        let Some(row) = row else { return Ok(None) };
        if rows == Rows::PerhapsNot {
            self.newcomers.note(row.try_get("is_new").map_err(maybe_applied)?);
        }
        let standing = Standing {
            mark,
            version: Version::from_stored(row.try_get("version").map_err(maybe_applied)?),
            present: value.is_some(),
            created: row.try_get("created").map_err(maybe_applied)?,
            digest,
        };
        Ok(Some(accepted(standing, None)))
    }

    async fn claim(
        &mut self,
        write: &Write,
        read_back: bool,
    ) -> Result<Option<Settled>, StoreError> {
        let mark = Mark::at(write.token, write.seq);
        let digest = write.digest();
        let row = sqlx::query(CLAIM)
            .bind(write.key.as_str())
            .bind(mark.token)
            .bind(mark.seq)
            .bind(digest.as_ref().map(<[u8; 32]>::as_slice))
            .bind(read_back)
            .persistent(self.connection.keeps_statements())
            .fetch_optional(self.connection.raw())
            .await
            .map_err(maybe_applied)?;
        let Some(row) = row else { return Ok(None) };
        let standing = Standing {
            mark,
            version: Version::from_stored(row.try_get("version").map_err(maybe_applied)?),
            present: row.try_get("present").map_err(maybe_applied)?,
            created: false,
            digest,
        };
        Ok(Some(accepted(standing, value_named(&row).map_err(maybe_applied)?)))
    }

    /// The statement wrote nothing. If the rule, applied to the row as it is now, changes nothing
    /// either, then its verdict is the answer.
    async fn explain(
        &mut self,
        write: &Write,
        read_back: bool,
    ) -> Result<Option<Alone>, StoreError> {
        let most = if read_back { INLINE } else { -1 };
        let found = self.find(&write.key, most).await?;
        let judgement = fence::judge(write, &found.standing, None, found.floor);
        if judgement.passed_the_fence() && judgement.key != found.standing {
            return Ok(None);
        }
        let settled = match judgement.verdict {
            Verdict::Refused(_) => Settled::Refused { index: 0, judgement },
            Verdict::Accepted | Verdict::Replayed => {
                Settled::Applied { judgements: vec![judgement], value: found.value }
            }
        };
        Ok(Some(Alone { settled, by_what_was_seen: found.has_standbys }))
    }
}

/// The statement wrote, so the token was at or above every mark, and is the mark now.
fn accepted(standing: Standing, value: Option<Value>) -> Settled {
    let judgement = Judgement::accepted(standing);
    Settled::Applied { judgements: vec![judgement], value }
}
