//! Collecting the marks of long-absent keys, while fenceposts go on writing.
//!
//! A row may be dropped only when no write is left that has not seen the raised floor. So the floor
//! rises under a lock that no writer's statement can overlap: each takes its table lock before its
//! snapshot, hence it either finished before, or sees the new floor. The rows go afterwards, a few
//! at a time, with no lock at all.

use std::time::Duration;

use sqlx::Row;

use super::connection::{Connection, not_applied};
use crate::store::{Compacted, StoreError};

/// Rows dropped per statement, so that none is kept locked for long.
const CHUNK: i64 = 1_000;

/// Writers queue behind a waiting lock, so it gives up soon and tries again; but now and then it
/// waits for longer than `deadlock_timeout`, which is what makes an autovacuum give way.
const BRIEFLY: &str = "SET LOCAL lock_timeout = '200ms'";
const LONGER: &str = "SET LOCAL lock_timeout = '2s'";
const LOCK_ATTEMPTS: usize = 40;

/// $1 age in seconds. Just above the highest token whose marks will go. The marks of the newest
/// token among the collectable stay: only their rows know which of its writes came last, and its
/// holder need not be fenced off everywhere for them.
const FIND_FLOOR: &str = "
WITH collectable AS (
    SELECT token FROM fencepost.resources
    WHERE value IS NULL AND touched_at <= now() - make_interval(secs => $1)
)
SELECT coalesce(max(token) + 1, 0) FROM collectable
WHERE token < (SELECT max(token) FROM collectable)";

/// $1 token.
const RAISE_FLOOR: &str = "UPDATE fencepost.floor SET token = greatest(token, $1) RETURNING token";

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
    progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
) -> Result<Compacted, StoreError> {
    // The long look at the table comes before the lock. Whatever changes in between, only rows below
    // the floor are dropped.
    let wanted = find_floor(connection, age).await?;
    let mut compacted = Compacted { floor: raise_floor(connection, wanted).await?, dropped: 0 };
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
        connection.commit().await?;
        let dropped: i64 = row.try_get("dropped").map_err(not_applied)?;
        compacted.dropped += dropped.unsigned_abs();
        progress(&compacted);
        match row.try_get("last").map_err(not_applied)? {
            Some(key) => last = key,
            None => return Ok(compacted),
        }
    }
}

async fn find_floor(connection: &mut Connection, age: Duration) -> Result<i64, StoreError> {
    connection.begin().await?;
    let wanted = sqlx::query_scalar(FIND_FLOOR)
        .bind(age.as_secs_f64())
        .persistent(connection.keeps_statements())
        .fetch_one(connection.raw())
        .await
        .map_err(not_applied)?;
    connection.commit().await?;
    Ok(wanted)
}

async fn raise_floor(connection: &mut Connection, wanted: i64) -> Result<i64, StoreError> {
    for attempt in 1..LOCK_ATTEMPTS {
        let patience = if attempt % 5 == 0 { LONGER } else { BRIEFLY };
        match try_raise_floor(connection, wanted, patience).await {
            Err(StoreError::Busy) => connection.rollback().await?,
            raised => return raised,
        }
    }
    try_raise_floor(connection, wanted, LONGER).await
}

async fn try_raise_floor(
    connection: &mut Connection,
    wanted: i64,
    patience: &'static str,
) -> Result<i64, StoreError> {
    connection.begin().await?;
    for statement in [patience, "LOCK TABLE fencepost.resources IN SHARE ROW EXCLUSIVE MODE"] {
        sqlx::raw_sql(statement).execute(connection.raw()).await.map_err(not_applied)?;
    }
    let floor = sqlx::query_scalar(RAISE_FLOOR)
        .bind(wanted)
        .persistent(connection.keeps_statements())
        .fetch_one(connection.raw())
        .await
        .map_err(not_applied)?;
    connection.commit().await?;
    Ok(floor)
}
