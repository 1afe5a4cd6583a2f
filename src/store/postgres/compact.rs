//! Collecting the marks of long-absent keys, while fenceposts go on writing.
//!
//! A row may be dropped only when no write is left that has not seen the raised floor. So the floor
//! rises under a lock that no writer's statement can overlap (`floor.rs`). The rows go afterwards, a
//! few at a time, with no lock at all. How far the floor may rise is the caller's to know: a token that
//! is held must never be below it.

use std::time::Duration;

use sqlx::Row;

use super::{
    connection::{Connection, not_applied},
    floor::{Raise, raise_under_lock},
    notices,
};
use crate::store::{Compacted, StoreError};

/// Rows dropped per statement, so that none is kept locked for long.
const CHUNK: i64 = 1_000;

/// $1 age in seconds, $2 bound. The floor has to be just above the highest token whose marks will go.
/// What is below the floor as it is goes too.
const PLAN: &str = "
WITH collectable AS (
    SELECT token FROM fencepost.resources
    WHERE value IS NULL AND touched_at <= now() - make_interval(secs => $1)
), floor AS (
    SELECT token, greatest(token, $2) AS bound FROM fencepost.floor
)
SELECT greatest((SELECT token FROM floor), max(c.token) FILTER (WHERE c.token < $2) + 1) AS floor,
       count(*) FILTER (WHERE c.token < (SELECT bound FROM floor)) AS dropped,
       count(*) FILTER (WHERE c.token >= (SELECT bound FROM floor)) AS kept
FROM collectable AS c";

/// $1 floor, $2 age in seconds, $3 how many, $4 the last key that was looked at. Says where it ended.
const DROP_SOME: &str = "
WITH chunk AS (
    SELECT key FROM fencepost.resources
    WHERE key > $4 AND value IS NULL AND token < $1
      AND touched_at <= now() - make_interval(secs => $2)
    ORDER BY key LIMIT $3 FOR UPDATE
), dropped AS (
    DELETE FROM fencepost.resources AS r USING chunk
    WHERE r.key = chunk.key AND r.value IS NULL AND r.token < $1
    RETURNING r.key
)
SELECT (SELECT max(key) FROM chunk) AS last, (SELECT count(*) FROM dropped) AS dropped";

pub async fn compact(
    connection: &mut Connection,
    age: Duration,
    bound: i64,
    progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
) -> Result<Compacted, StoreError> {
    let (compacted, warned) =
        notices::listening(compact_now(connection, age, bound, progress)).await;
    connection.unless_only_here(compacted, warned).await
}

async fn compact_now(
    connection: &mut Connection,
    age: Duration,
    bound: i64,
    progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
) -> Result<Compacted, StoreError> {
    // The long look at the table comes before the lock. Whatever changes in between, only rows below
    // the floor are dropped.
    let planned = plan(connection, age, bound).await?;
    if planned.dropped == 0 {
        return Ok(planned);
    }
    // Under the lock even if the floor is that high already: the session that raised it may not have waited for
    // the writes that were under way.
    let floor =
        raise_under_lock(connection, Raise { to: planned.floor, ends_locks: false, issues: false })
            .await?;
    let mut compacted = Compacted { floor, dropped: 0, kept: planned.kept };
    let mut last = String::new();
    loop {
        connection.begin().await?;
        let row = sqlx::query(DROP_SOME)
            .bind(compacted.floor)
            .bind(age.as_secs_f64())
            .bind(CHUNK)
            .bind(&last)
            .persistent(connection.keeps_statements())
            .fetch_one(connection.raw())
            .await
            .map_err(not_applied)?;
        connection.commit_in_time().await?;
        let dropped: i64 = row.try_get("dropped").map_err(not_applied)?;
        compacted.dropped += dropped.unsigned_abs();
        progress(&compacted);
        match row.try_get("last").map_err(not_applied)? {
            Some(key) => last = key,
            None => return Ok(compacted),
        }
    }
}

/// What would be dropped now, and how far the floor would rise for it. Changes nothing.
pub async fn plan(
    connection: &mut Connection,
    age: Duration,
    bound: i64,
) -> Result<Compacted, StoreError> {
    connection.begin().await?;
    let row = sqlx::query(PLAN)
        .bind(age.as_secs_f64())
        .bind(bound)
        .persistent(connection.keeps_statements())
        .fetch_one(connection.raw())
        .await
        .map_err(not_applied)?;
    connection.commit().await?;
    let count =
        |name: &str| row.try_get::<i64, _>(name).map(i64::unsigned_abs).map_err(not_applied);
    Ok(Compacted {
        floor: row.try_get("floor").map_err(not_applied)?,
        dropped: count("dropped")?,
        kept: count("kept")?,
    })
}
