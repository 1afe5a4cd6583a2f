//! The floor: how far it may rise, and raising it while fenceposts go on writing.
//!
//! It rises under a lock that no writer's statement can overlap: each takes its table lock before its
//! snapshot, hence it either finished before, or sees the new floor.

use sqlx::Row;

use super::{
    connection::{Connection, not_applied},
    notices,
};
use crate::store::{FloorState, HeldToken, Reading, StoreError};

/// Others queue behind a waiting lock, so it gives up soon and tries again; but now and then it
/// waits for longer than `deadlock_timeout`, which is what makes an autovacuum give way.
const BRIEFLY: &str = "SET LOCAL lock_timeout = '200ms'";
const LONGER: &str = "SET LOCAL lock_timeout = '2s'";
const LOCK_ATTEMPTS: usize = 40;

/// No token is drawn while this is held. A transaction that draws one changes its queue first
/// (`fencepost.take_queue`), and so has this table locked from before the draw until the row
/// with the token is committed. So all tokens up to the sequence's last one are in the table for the
/// next statement to see, or were rolled back; and all that are drawn later are higher.
const NOBODY_DRAWS: &str = "LOCK TABLE fencepost.locks IN SHARE MODE";

pub(super) const NOBODY_WRITES: &str = "LOCK TABLE fencepost.resources IN SHARE ROW EXCLUSIVE MODE";

/// A row counts for a minute after its lease has ended, as long as `fencepost.sweep_locks` leaves it there:
/// a clock that is set back a little brings no holder to life that was passed over here. What is below the
/// floor is stale already.
const STATE: &str = "
SELECT f.token AS floor, l.token AS held, l.name AS lock,
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM fencepost.tokens) AS issued
FROM fencepost.floor AS f LEFT JOIN LATERAL (
    SELECT token, name FROM fencepost.locks
    WHERE token >= f.token AND expires_at > clock_timestamp() - interval '1 minute'
    ORDER BY token LIMIT 1) AS l ON true";

/// $1 token.
const RAISE: &str = "UPDATE fencepost.floor SET token = greatest(token, $1) RETURNING token";

/// $1 floor. As if their leases had run out: their holders learn it at the next renewal, and waiters
/// enter their queues again.
const END_LOCKS: &str = "UPDATE fencepost.locks SET expires_at = clock_timestamp()
WHERE token < $1 AND expires_at > clock_timestamp()";

pub async fn state(
    connection: &mut Connection,
    reading: Reading,
) -> Result<FloorState, StoreError> {
    match reading {
        Reading::Quick => connection.begin().await?,
        Reading::Exact => begin_locked(connection, NOBODY_DRAWS).await?,
    }
    let row = sqlx::raw_sql(STATE).fetch_one(connection.raw()).await.map_err(not_applied)?;
    connection.commit().await?;
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

pub async fn raise(connection: &mut Connection, to: i64, issues: bool) -> Result<i64, StoreError> {
    let raise = Raise { to, ends_locks: true, issues };
    let (raised, warned) = notices::listening(raise_under_lock(connection, raise)).await;
    connection.unless_only_here(raised, warned).await
}

pub(super) struct Raise {
    pub to: i64,
    /// Ends the leases of the lock table whose tokens are below the floor afterwards.
    pub ends_locks: bool,
    /// Moves the tokens of the lock table above the floor.
    pub issues: bool,
}

pub(super) async fn raise_under_lock(
    connection: &mut Connection,
    raise: Raise,
) -> Result<i64, StoreError> {
    begin_locked(connection, NOBODY_WRITES).await?;
    let floor: i64 = sqlx::query_scalar(RAISE)
        .bind(raise.to)
        .persistent(connection.keeps_statements())
        .fetch_one(connection.raw())
        .await
        .map_err(not_applied)?;
    if raise.issues {
        sqlx::raw_sql("SELECT fencepost.adopt_tokens(0)")
            .execute(connection.raw())
            .await
            .map_err(not_applied)?;
    }
    if raise.ends_locks {
        sqlx::query(END_LOCKS)
            .bind(floor)
            .persistent(connection.keeps_statements())
            .execute(connection.raw())
            .await
            .map_err(not_applied)?;
    }
    connection.commit_in_time().await?;
    Ok(floor)
}

/// Begins a transaction that has this lock. Writers wait behind a session that waits for it, so they get a
/// chance again and again.
pub(super) async fn begin_locked(
    connection: &mut Connection,
    lock: &'static str,
) -> Result<(), StoreError> {
    for attempt in 1..LOCK_ATTEMPTS {
        let patience = if attempt % 5 == 0 { LONGER } else { BRIEFLY };
        match try_begin_locked(connection, lock, patience).await {
            Err(StoreError::Busy) => connection.rollback().await?,
            begun => return begun,
        }
    }
    try_begin_locked(connection, lock, LONGER).await
}

async fn try_begin_locked(
    connection: &mut Connection,
    lock: &'static str,
    patience: &'static str,
) -> Result<(), StoreError> {
    connection.begin().await?;
    for statement in [patience, lock] {
        sqlx::raw_sql(statement).execute(connection.raw()).await.map_err(not_applied)?;
    }
    Ok(())
}
