//! Which server a session writes to, and what is entered when another has taken over.

use sqlx::{Row, postgres::PgRow};

use super::{
    connection::{READ_ONLY, maybe_applied, not_applied},
    server_identity::ServerIdentity,
    session::PostgresSession,
};
use crate::store::{Lineage, StoreError};

pub const IDENTIFY: &str = "SELECT incarnation, recorded, entered FROM fencepost.identify()";

/// $1 floor, $2 leap.
const TAKE_OVER: &str = "SELECT fencepost.take_over($1, $2)";

impl PostgresSession {
    pub(super) async fn take_over_now(&mut self, floor: i64, leap: i64) -> Result<i64, StoreError> {
        self.connection.begin_if_pooled().await?;
        let floor = sqlx::query_scalar(TAKE_OVER)
            .bind(floor)
            .bind(leap)
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(maybe_applied);
        self.connection.end_if_pooled(&floor).await?;
        floor
    }
}

/// Reads the row of [`IDENTIFY`].
pub fn identified(row: &PgRow) -> Result<(ServerIdentity, Lineage), StoreError> {
    let here: Option<String> = row.try_get("incarnation").map_err(not_applied)?;
    let Some(here) = here else { return Err(StoreError::Unfit(READ_ONLY.into())) };
    let identity = ServerIdentity::new(&here)
        .ok_or_else(|| StoreError::Unfit(format!("{here:?} is no name of a server")))?;
    let recorded = row.try_get("recorded").map_err(not_applied)?;
    let entered: Option<bool> = row.try_get("entered").map_err(not_applied)?;
    Ok((identity, Lineage { here, recorded, entered: entered.unwrap_or(false) }))
}
