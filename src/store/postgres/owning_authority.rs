//! Which authority the store belongs to, in Postgres. Claiming and moving are functions of the database
//! (`migrations/postgres/0013_owning_authority.sql`).

use std::time::Duration;

use super::{
    connection::{Connection, not_applied},
    notices,
    session::{DEADLINE, surely, within},
};
use crate::store::{
    OwningAuthority, Sighting, StoreError,
    owning_authority::{NONE, owning_authority},
};

/// Where tokens came from elsewhere, a move looks at every mark.
const MOVE_DEADLINE: Duration = Duration::from_mins(10);

const READ: &str = "SELECT kind, identity, namespace FROM fencepost.owning_authority";

/// $1 kind, $2 identity, $3 namespace.
pub const CLAIM: &str =
    "SELECT kind, identity, namespace FROM fencepost.claim_authority($1, $2, $3)";

/// The same, and $4 revision, $5 term.
const MOVE: &str = "SELECT fencepost.move_authority($1, $2, $3, $4, $5)";

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

pub async fn move_to(
    connection: &mut Connection,
    to: &OwningAuthority,
    seen: Option<&Sighting>,
) -> Result<i64, StoreError> {
    debug_assert!(to.kind != NONE || seen.is_none(), "nothing is seen of tokens from elsewhere");
    let moving = within(MOVE_DEADLINE, async {
        connection.begin().await?;
        let floor = sqlx::query_scalar(MOVE)
            .bind(&to.kind)
            .bind(&to.identity)
            .bind(&to.namespace)
            .bind(seen.map(|seen| seen.revision))
            .bind(seen.map(|seen| seen.term))
            .persistent(connection.keeps_statements())
            .fetch_one(connection.raw())
            .await
            .map_err(not_applied)?;
        connection.commit_in_time().await?;
        Ok(floor)
    });
    let (moved, warned) = notices::listening(moving).await;
    connection.unless_only_here(moved, warned).await
}
