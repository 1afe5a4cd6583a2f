//! Somebody else has a lock that a batch needs: who of the batch has to wait for it, and who not.

use std::collections::HashSet;

use super::{
    batch::Batch,
    connection::{Patience, not_applied},
    look::sorted_keys,
    session::PostgresSession,
};
use crate::{
    store::StoreError,
    token::{InvalidKey, Key},
};

/// The table itself is wanted by a compaction now and then, and then everybody has to wait.
const WAIT_FOR_TABLE: &str = "SET LOCAL lock_timeout = '5s'; \
     LOCK TABLE fencepost.resources IN ROW EXCLUSIVE MODE";

/// $1 keys. Those whose row somebody else has locked. It takes the locks of the others, for a moment.
const LOCKED_ROWS: &str = "
WITH free AS MATERIALIZED (
    SELECT key FROM fencepost.resources WHERE key = ANY($1) FOR UPDATE SKIP LOCKED
)
SELECT key FROM fencepost.resources WHERE key = ANY($1) AND key NOT IN (SELECT key FROM free)";

impl PostgresSession {
    /// Answers the units that need a locked row, and those that come after them. What is left can
    /// go on.
    pub(super) async fn set_aside_what_is_blocked(
        &mut self,
        batch: &mut Batch<'_>,
        places: &[usize],
    ) -> Result<(), StoreError> {
        let error = self.gives_up_on_a_lock();
        if self.connection.patience() == Patience::Short
            && let Err(error) = self.wait_for_table().await
        {
            if error.ends_the_session() {
                return Err(error);
            }
            for place in places {
                batch.answer(*place, Err(error.clone()));
            }
            return Ok(());
        }
        let keys = sorted_keys(places.iter().map(|place| &batch.units[*place]));
        let mut waiting_for = match self.locked_rows(&keys).await {
            Ok(locked) => locked,
            Err(error) if error.ends_the_session() => return Err(error),
            // Not known, then. Whoever is blocked will be so again.
            Err(_) => return Ok(()),
        };
        for &place in places {
            let unit = &batch.units[place];
            if unit.keys().any(|key| waiting_for.contains(key)) {
                waiting_for.extend(unit.keys().cloned());
                batch.answer(place, Err(error.clone()));
            }
        }
        Ok(())
    }

    /// What is said of a unit whose row stays locked.
    pub(super) fn gives_up_on_a_lock(&self) -> StoreError {
        match self.connection.patience() {
            Patience::Short => StoreError::Locked,
            Patience::Long => StoreError::Busy,
        }
    }

    async fn wait_for_table(&mut self) -> Result<(), StoreError> {
        let waited = self.connection.begin_with(WAIT_FOR_TABLE).await;
        if waited.as_ref().is_err_and(StoreError::ends_the_session) {
            return waited.map(drop);
        }
        self.connection.rollback().await?;
        waited.map(drop)
    }

    async fn locked_rows(&mut self, keys: &[Key]) -> Result<HashSet<Key>, StoreError> {
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        self.connection.begin_if_pooled().await?;
        let locked: Result<Vec<String>, _> = sqlx::query_scalar(LOCKED_ROWS)
            .bind(&names)
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&locked).await?;
        let keys: Result<_, InvalidKey> = locked?.iter().map(|name| Key::new(name)).collect();
        keys.map_err(StoreError::unavailable)
    }
}
