//! Which server a session writes to, and what is entered when another has taken over.

use sqlx::Row;

use super::{
    connection::{maybe_applied, not_applied},
    session::PostgresSession,
};
use crate::store::{Lineage, StoreError};

const READ_LINEAGE: &str = "SELECT here, recorded FROM fencepost.read_lineage()";

/// $1 floor, $2 leap.
const TAKE_OVER: &str = "SELECT fencepost.take_over($1, $2)";

impl PostgresSession {
    pub(super) async fn lineage_now(&mut self) -> Result<Lineage, StoreError> {
        self.connection.begin_if_pooled().await?;
        let row = sqlx::query(READ_LINEAGE)
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&row).await?;
        let row = row?;
        let here: String = row.try_get("here").map_err(not_applied)?;
        self.connection.expect_lineage(&here);
        Ok(Lineage { here, recorded: row.try_get("recorded").map_err(not_applied)? })
    }

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
