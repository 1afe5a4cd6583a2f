//! Collecting the marks of long-absent keys.

use std::time::Duration;

use sqlx::{Connection, SqliteConnection};

use crate::store::{Compacted, StoreError};

/// Rows dropped per transaction, so that writers are never kept waiting for long.
const CHUNK: i64 = 1_000;

/// Raises the floor just above the highest token whose marks will go, then drops them. The marks of
/// the newest token among the collectable stay: only their rows know which of its writes came last,
/// and its holder need not be fenced off everywhere for them.
pub async fn compact(
    connection: &mut SqliteConnection,
    age: Duration,
    progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
) -> Result<Compacted, StoreError> {
    let age_seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
    // The long look at the file comes before the write lock. Whatever changes in between, only rows
    // below the floor are dropped.
    let wanted: i64 = sqlx::query_scalar(
        "WITH collectable AS (
             SELECT token FROM resources WHERE value IS NULL AND touched_at <= unixepoch() - ?1
         )
         SELECT coalesce(max(token) + 1, 0) FROM collectable
         WHERE token < (SELECT max(token) FROM collectable)",
    )
    .bind(age_seconds)
    .fetch_one(&mut *connection)
    .await
    .map_err(StoreError::unavailable)?;
    // The floor rises before the first row goes. SQLite has one writer, so whoever writes
    // afterwards sees it.
    sqlx::query("UPDATE floor SET token = max(token, ?1)")
        .bind(wanted)
        .execute(&mut *connection)
        .await
        .map_err(StoreError::unavailable)?;
    let floor: i64 = sqlx::query_scalar("SELECT token FROM floor")
        .fetch_one(&mut *connection)
        .await
        .map_err(StoreError::unavailable)?;

    let mut compacted = Compacted { floor, dropped: 0 };
    let mut last = String::new();
    while let Some(key) = drop_some(connection, &mut compacted, age_seconds, &last).await? {
        last = key;
        progress(&compacted);
    }
    Ok(compacted)
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
    .map_err(StoreError::unavailable)?;
    let mut transaction =
        connection.begin_with("BEGIN IMMEDIATE").await.map_err(StoreError::unavailable)?;
    for key in &keys {
        // Somebody may have written it since.
        let dropped =
            sqlx::query("DELETE FROM resources WHERE key = ?1 AND value IS NULL AND token < ?2")
                .bind(key)
                .bind(compacted.floor)
                .execute(&mut *transaction)
                .await
                .map_err(StoreError::unavailable)?;
        compacted.dropped += dropped.rows_affected();
    }
    transaction.commit().await.map_err(StoreError::unavailable)?;
    Ok(keys.into_iter().next_back())
}
