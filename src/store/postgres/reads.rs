//! Reads: of one key, or of many that came together. They take no locks and change nothing.

use super::{
    connection::not_applied,
    rows::{Columns, Found, found, value_of_parts},
    session::PostgresSession,
};
use crate::{
    fence::Standing,
    store::{Snapshot, StoreError},
    token::{Key, Mark, Version},
    write::Value,
};

/// A larger value is read by itself, so that a batch of reads stays small in memory.
const LARGE_BYTES: i32 = 64 << 10;

/// $1 key, $2 whether the value is wanted.
const READ: &str = "
SELECT r.key, r.token, r.seq, r.version, r.created, r.digest, r.value IS NOT NULL AS present,
       CASE WHEN $2 THEN r.value END AS value,
       CASE WHEN $2 THEN r.content_type END AS content_type, f.token AS floor,
       current_setting('synchronous_standby_names') <> '' AS has_standbys
FROM fencepost.floor AS f LEFT JOIN fencepost.resources AS r ON r.key = $1";

/// $1 keys, $2 how many bytes are too many. The floor comes with every row, and also if there is none.
/// What only the fence asks for is left out: every column costs, in each of many rows.
const READ_TOGETHER: &str = "
SELECT r.key, f.token AS floor, r.token, r.seq, r.version, r.content_type,
       CASE WHEN octet_length(r.value) <= $2 THEN r.value END AS value
FROM fencepost.floor AS f LEFT JOIN fencepost.resources AS r ON r.key = ANY($1)";

impl PostgresSession {
    pub(super) async fn find(&mut self, key: &Key, with_value: bool) -> Result<Found, StoreError> {
        let row = sqlx::query(READ)
            .bind(key.as_str())
            .bind(with_value)
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(not_applied)?;
        found(&row).map_err(not_applied)
    }

    pub(super) async fn read_now(&mut self, key: &Key) -> Result<Snapshot, StoreError> {
        self.connection.begin_if_pooled().await?;
        let found = self.find(key, true).await;
        self.connection.end_if_pooled(&found).await?;
        let Found { standing, floor, value, .. } = found?;
        Ok(snapshot(standing, floor, value))
    }

    pub(super) async fn read_together_now(
        &mut self,
        keys: &[Key],
    ) -> Result<Vec<Snapshot>, StoreError> {
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        self.connection.begin_if_pooled().await?;
        let rows = sqlx::query(READ_TOGETHER)
            .bind(&names)
            .bind(LARGE_BYTES)
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&rows).await?;
        let rows = rows?;
        let mut floor = None;
        // They come in any order, though mostly in this one.
        let mut by_key = Vec::with_capacity(rows.len());
        for row in Columns::of(&rows) {
            let (name, below) = shared(row).map_err(not_applied)?;
            floor = Some(below);
            by_key.extend(name.map(|name| (name, row)));
        }
        let floor = floor.ok_or_else(|| StoreError::Unfit("the floor is gone".into()))?;
        by_key.sort_unstable_by_key(|(name, _)| *name);
        let mut snapshots = Vec::with_capacity(keys.len());
        for key in keys {
            let place = by_key.binary_search_by_key(&key.as_str(), |(name, _)| *name);
            let (standing, value) = match place {
                Ok(place) => seen(by_key[place].1).map_err(not_applied)?,
                Err(_) => (Standing::default(), None),
            };
            let too_large = standing.present && value.is_none();
            let whole = if too_large {
                self.read_now(key).await?
            } else {
                snapshot(standing, floor, value)
            };
            snapshots.push(whole);
        }
        Ok(snapshots)
    }
}

/// What stands in the first columns of [`READ_TOGETHER`]: the key, unless there is no row, and the floor.
fn shared(row: Columns<'_>) -> Result<(Option<&str>, Mark), sqlx::Error> {
    Ok((row.get(0)?, Mark { token: row.get(1)?, seq: 0 }))
}

/// The rest of them. The value is missing if there is none, and if it is too large.
fn seen(row: Columns<'_>) -> Result<(Standing, Option<Value>), sqlx::Error> {
    // A value has a type, and nothing else has: the table sees to that.
    let content_type: Option<String> = row.get(5)?;
    let standing = Standing {
        mark: Mark { token: row.get(2)?, seq: row.get(3)? },
        version: Version::from_stored(row.get(4)?),
        present: content_type.is_some(),
        ..Standing::default()
    };
    Ok((standing, value_of_parts(row.get(6)?, content_type)))
}

fn snapshot(mut standing: Standing, floor: Mark, value: Option<Value>) -> Snapshot {
    let own = standing.mark.token;
    standing.mark = standing.mark.max(floor);
    Snapshot { standing, own, value }
}
