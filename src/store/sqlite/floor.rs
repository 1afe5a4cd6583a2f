//! The floor: how far it may rise, and raising it.
//!
//! SQLite has one writer. A token is drawn in the transaction that makes its row, so whoever reads both
//! sees every token that was issued; and whoever writes after the floor has risen sees it.

use sqlx::{Connection, Row, SqliteConnection};

use super::session::{not_applied, not_committed};
use crate::store::{FloorState, HeldToken, StoreError, lock_table::ISSUED_BY_NOBODY};

/// A row counts for a minute after its lease has ended, as in Postgres.
const STATE: &str = "
SELECT f.token AS floor, l.token AS held, l.name AS lock, (SELECT issued FROM tokens) AS issued
FROM floor AS f LEFT JOIN locks AS l ON l.token = (
    SELECT min(token) FROM locks
    WHERE token >= (SELECT token FROM floor)
      AND expires_at > (julianday('now') - 2440587.5) * 86400000.0 - 60000)";

/// As if their leases had run out.
const END_LOCKS: &str = "
UPDATE locks SET expires_at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
WHERE token < (SELECT token FROM floor)
  AND expires_at > (julianday('now') - 2440587.5) * 86400000.0";

/// ?1 from where on nobody issues tokens.
const ISSUE_ABOVE: &str = "UPDATE tokens
SET issued = max(issued, coalesce((SELECT token FROM floor WHERE token < ?1), 0))";

pub async fn state(connection: &mut SqliteConnection) -> Result<FloorState, StoreError> {
    let row = sqlx::raw_sql(STATE).fetch_one(connection).await.map_err(not_applied)?;
    let held: Option<i64> = row.try_get("held").map_err(not_applied)?;
    let lowest_held = match held {
        Some(token) => Some(HeldToken { token, lock: row.try_get("lock").map_err(not_applied)? }),
        None => None,
    };
    Ok(FloorState {
        floor: row.try_get("floor").map_err(not_applied)?,
        issued: row.try_get("issued").map_err(not_applied)?,
        lowest_held,
    })
}

pub async fn raise(
    connection: &mut SqliteConnection,
    to: i64,
    issues: bool,
) -> Result<i64, StoreError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    sqlx::query("UPDATE floor SET token = max(token, ?1)")
        .bind(to)
        .execute(&mut *transaction)
        .await
        .map_err(not_applied)?;
    if issues {
        sqlx::query(ISSUE_ABOVE)
            .bind(ISSUED_BY_NOBODY)
            .execute(&mut *transaction)
            .await
            .map_err(not_applied)?;
    }
    sqlx::raw_sql(END_LOCKS).execute(&mut *transaction).await.map_err(not_applied)?;
    let floor = sqlx::query_scalar("SELECT token FROM floor")
        .fetch_one(&mut *transaction)
        .await
        .map_err(not_applied)?;
    transaction.commit().await.map_err(not_committed)?;
    Ok(floor)
}
