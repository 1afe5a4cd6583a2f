//! Which authority the store belongs to, in Postgres. Claiming and moving are functions of the database
//! (`migrations/postgres/0013_owning_authority.sql`).

use std::time::Duration;

use sqlx::Row;

use super::{
    connection::{Connection, not_applied},
    floor::{NOBODY_WRITES, begin_locked},
    notices,
    session::{DEADLINE, surely, within},
};
use crate::store::{
    OwningAuthority, Sighting, StoreError,
    owning_authority::{NONE, owning_authority},
};

/// A move looks at every mark.
const MOVE_DEADLINE: Duration = Duration::from_mins(10);

const READ: &str = "SELECT kind, identity, namespace, instance FROM fencepost.owning_authority";

/// $1 kind, $2 identity, $3 namespace.
pub const CLAIM: &str =
    "SELECT kind, identity, namespace, instance FROM fencepost.claim_authority($1, $2, $3)";

/// $1 the number before, $2 the one that was found, $3 revision, $4 term.
const CLAIM_INSTANCE: &str = "SELECT fencepost.claim_instance($1, $2, $3, $4)";

/// 4611686018427387904 is 2^62. Nobody issues a token from there on.
const HIGHEST_MARK: &str =
    "SELECT coalesce(max(token), 0) FROM fencepost.resources WHERE token < 4611686018427387904";

/// The same, and $4 the number that was left in it, $5 revision, $6 term, $7 the highest mark.
const MOVE: &str = "SELECT fencepost.move_authority($1, $2, $3, $4, $5, $6, $7)";

/// Under the lock on the marks, each waits only briefly for the others that it needs.
const MOVE_ATTEMPTS: usize = 10;

pub async fn read(connection: &mut Connection) -> Result<Option<OwningAuthority>, StoreError> {
    let read = within(DEADLINE, async {
        connection.begin_if_pooled().await?;
        let row = sqlx::query(READ)
            .persistent(connection.keeps_statements())
            .fetch_optional(connection.raw())
            .await
            .map_err(not_applied);
        connection.end_if_pooled(&row).await?;
        row?.as_ref().map(owning_authority).transpose().map_err(not_applied)
    });
    let read = read.await.map_err(surely);
    connection.unless_deposed(read)
}

/// Returns what is recorded now. Claiming again changes nothing, so an unknown outcome does no harm.
pub async fn claim(
    connection: &mut Connection,
    wanted: &OwningAuthority,
) -> Result<OwningAuthority, StoreError> {
    let claim = within(DEADLINE, async {
        connection.begin_if_pooled().await?;
        let row = sqlx::query(CLAIM)
            .bind(&wanted.kind)
            .bind(&wanted.identity)
            .bind(&wanted.namespace)
            .persistent(connection.keeps_statements())
            .fetch_one(connection.raw())
            .await
            .map_err(not_applied);
        connection.end_if_pooled(&row).await?;
        owning_authority(&row?).map_err(not_applied)
    });
    let (claimed, warned) = notices::listening(claim).await;
    connection.unless_only_here(claimed, warned).await.map_err(surely)
}

/// Returns what stands. Claiming again changes nothing.
pub async fn claim_instance(
    connection: &mut Connection,
    former: Option<&str>,
    found: &str,
    seen: &Sighting,
) -> Result<Option<String>, StoreError> {
    let claim = within(DEADLINE, async {
        connection.begin_if_pooled().await?;
        let stands = sqlx::query_scalar(CLAIM_INSTANCE)
            .bind(former)
            .bind(found)
            .bind(seen.revision)
            .bind(seen.term)
            .persistent(connection.keeps_statements())
            .fetch_one(connection.raw())
            .await
            .map_err(not_applied);
        connection.end_if_pooled(&stands).await?;
        stands
    });
    let (claimed, warned) = notices::listening(claim).await;
    connection.unless_only_here(claimed, warned).await.map_err(surely)
}

pub async fn move_to(
    connection: &mut Connection,
    to: &OwningAuthority,
    seen: Option<&Sighting>,
) -> Result<i64, StoreError> {
    debug_assert!(to.kind != NONE || seen.is_none(), "nothing is seen of tokens from elsewhere");
    let moving = within(MOVE_DEADLINE, async {
        // The long look comes before the locks.
        connection.begin().await?;
        let marks = sqlx::raw_sql(HIGHEST_MARK).fetch_one(connection.raw()).await;
        let highest = marks.and_then(|row| row.try_get(0)).map_err(not_applied)?;
        connection.commit().await?;
        for _ in 1..MOVE_ATTEMPTS {
            begin_locked(connection, NOBODY_WRITES).await?;
            match move_under_lock(connection, to, seen, highest).await {
                Err(StoreError::Busy | StoreError::Conflict) => connection.rollback().await?,
                moved => return moved,
            }
        }
        begin_locked(connection, NOBODY_WRITES).await?;
        move_under_lock(connection, to, seen, highest).await
    });
    let (moved, warned) = notices::listening(moving).await;
    connection.unless_only_here(moved, warned).await
}

async fn move_under_lock(
    connection: &mut Connection,
    to: &OwningAuthority,
    seen: Option<&Sighting>,
    highest_mark: i64,
) -> Result<i64, StoreError> {
    let floor = sqlx::query_scalar(MOVE)
        .bind(&to.kind)
        .bind(&to.identity)
        .bind(&to.namespace)
        .bind(&to.instance)
        .bind(seen.map(|seen| seen.revision))
        .bind(seen.map(|seen| seen.term))
        .bind(highest_mark)
        .persistent(connection.keeps_statements())
        .fetch_one(connection.raw())
        .await
        .map_err(not_applied)?;
    connection.commit_in_time().await?;
    Ok(floor)
}
