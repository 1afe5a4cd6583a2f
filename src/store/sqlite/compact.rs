//! Collecting the marks of long-absent keys.

use std::time::Duration;

use sqlx::{Connection, Row, SqliteConnection};

use super::session::{not_applied, not_committed};
use crate::store::{Compacted, StoreError};

/// Rows dropped per transaction, so that writers are never kept waiting for long.
const CHUNK: i64 = 1_000;

/// ?1 age in seconds, ?2 bound. The floor has to be just above the highest token whose marks will go.
/// What is below the floor as it is goes too.
const PLAN: &str = "
WITH collectable AS (
    SELECT token FROM resources WHERE value IS NULL AND touched_at <= unixepoch() - ?1
)
SELECT max((SELECT token FROM floor),
           coalesce((SELECT max(token) + 1 FROM collectable WHERE token < ?2), 0)) AS floor,
       (SELECT count(*) FROM collectable
        WHERE token < max(?2, (SELECT token FROM floor))) AS dropped,
       (SELECT count(*) FROM collectable
        WHERE token >= max(?2, (SELECT token FROM floor))) AS kept";

/// Raises the floor just above the highest token whose marks will go, then drops them. How far it may
/// rise is the caller's to know: a token that is held must never be below it.
pub async fn compact(
    connection: &mut SqliteConnection,
    age: Duration,
    bound: i64,
    progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
) -> Result<Compacted, StoreError> {
    // The long look at the file comes before the write lock. Whatever changes in between, only rows
    // below the floor are dropped.
    let planned = plan(connection, age, bound).await?;
    if planned.dropped == 0 {
        return Ok(planned);
    }
    // The floor rises before the first row goes. SQLite has one writer, so whoever writes
    // afterwards sees it.
    sqlx::query("UPDATE floor SET token = max(token, ?1)")
        .bind(planned.floor)
        .execute(&mut *connection)
        .await
        .map_err(not_applied)?;
    let floor: i64 = sqlx::query_scalar("SELECT token FROM floor")
        .fetch_one(&mut *connection)
        .await
        .map_err(not_applied)?;

    let mut compacted = Compacted { floor, dropped: 0, kept: planned.kept };
    let mut last = String::new();
    let seconds = age_seconds(age);
    while let Some(key) = drop_some(connection, &mut compacted, seconds, &last).await? {
        last = key;
        progress(&compacted);
    }
    Ok(compacted)
}

/// What would be dropped now, and how far the floor would rise for it. Changes nothing.
pub async fn plan(
    connection: &mut SqliteConnection,
    age: Duration,
    bound: i64,
) -> Result<Compacted, StoreError> {
    let row = sqlx::query(PLAN)
        .bind(age_seconds(age))
        .bind(bound)
        .fetch_one(connection)
        .await
        .map_err(not_applied)?;
    let count =
        |name: &str| row.try_get::<i64, _>(name).map(i64::unsigned_abs).map_err(not_applied);
    Ok(Compacted {
        floor: row.try_get("floor").map_err(not_applied)?,
        dropped: count("dropped")?,
        kept: count("kept")?,
    })
}

fn age_seconds(age: Duration) -> i64 {
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}

/// Drops a chunk of the rows after the key `last`; `None` when there are no more.
async fn drop_some(
    connection: &mut SqliteConnection,
    compacted: &mut Compacted,
    age_seconds: i64,
    last: &str,
) -> Result<Option<String>, StoreError> {
    let keys: Vec<String> = sqlx::query_scalar(
        "SELECT key FROM resources
         WHERE key > ?1 AND value IS NULL AND token < ?2 AND touched_at <= unixepoch() - ?3
         ORDER BY key LIMIT ?4",
    )
    .bind(last)
    .bind(compacted.floor)
    .bind(age_seconds)
    .bind(CHUNK)
    .fetch_all(&mut *connection)
    .await
    .map_err(not_applied)?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    for key in &keys {
        // Somebody may have written it since.
        let dropped =
            sqlx::query("DELETE FROM resources WHERE key = ?1 AND value IS NULL AND token < ?2")
                .bind(key)
                .bind(compacted.floor)
                .execute(&mut *transaction)
                .await
                .map_err(not_applied)?;
        compacted.dropped += dropped.rows_affected();
    }
    transaction.commit().await.map_err(not_committed)?;
    Ok(keys.into_iter().next_back())
}
