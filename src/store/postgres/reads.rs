//! Reads: of one key, or of many that came together. They take no locks and change nothing.

use super::{
    connection::not_applied,
    rows::{Columns, Found, found, size_of, value_of_parts},
    session::PostgresSession,
};
use crate::{
    fence::Standing,
    store::{INLINE_BYTES, Snapshot, StoreError},
    token::{Key, Mark, Version},
    write::Value,
};

/// $1 key, $2 how many bytes the value may have to be read. To ask for its length costs next to nothing, also
/// where Postgres keeps it apart from its row.
const READ: &str = "
SELECT r.key, r.token, r.seq, r.version, r.created, r.digest, r.value IS NOT NULL AS present,
       CASE WHEN octet_length(r.value) <= $2 THEN r.value END AS value, r.content_type,
       f.token AS floor, current_setting('synchronous_standby_names') <> '' AS has_standbys,
       octet_length(r.value) AS size
FROM fencepost.floor AS f LEFT JOIN fencepost.resources AS r ON r.key = $1";

/// $1 keys, $2 as above. The floor comes with every row, and also if there is none.
/// What only the fence asks for is left out: every column costs, in each of many rows. Whether there are standbys
/// is asked once for all of them.
const READ_TOGETHER: &str = "
SELECT r.key, f.token AS floor, r.token, r.seq, r.version, r.content_type,
       CASE WHEN octet_length(r.value) <= $2 THEN r.value END AS value,
       octet_length(r.value) AS size,
       (SELECT current_setting('synchronous_standby_names') <> '') AS has_standbys
FROM fencepost.floor AS f LEFT JOIN fencepost.resources AS r ON r.key = ANY($1)";

impl PostgresSession {
    pub(super) async fn find(&mut self, key: &Key, most: i32) -> Result<Found, StoreError> {
        let row = sqlx::query(READ)
            .bind(key.as_str())
            .bind(most)
            .persistent(self.connection.keeps_statements())
            .fetch_one(self.connection.raw())
            .await
            .map_err(not_applied)?;
        found(&row).map_err(not_applied)
    }

    pub(super) async fn read_now(&mut self, key: &Key, most: u64) -> Result<Snapshot, StoreError> {
        self.connection.begin_if_pooled().await?;
        let found = self.find(key, bound(most)).await;
        self.connection.end_if_pooled(&found).await?;
        let Found { standing, floor, value, size, has_standbys } = found?;
        if size > INLINE_BYTES {
            self.connection.shrink();
        }
        Ok(snapshot(standing, floor, value, size, has_standbys))
    }

    pub(super) async fn read_together_now(
        &mut self,
        keys: &[Key],
        most: u64,
    ) -> Result<Vec<Snapshot>, StoreError> {
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        self.connection.begin_if_pooled().await?;
        let rows = sqlx::query(READ_TOGETHER)
            .bind(&names)
            .bind(bound(most))
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(not_applied);
        self.connection.end_if_pooled(&rows).await?;
        let rows = rows?;
        let mut beside = None;
        // They come in any order, though mostly in this one.
        let mut by_key = Vec::with_capacity(rows.len());
        for row in Columns::of(&rows) {
            let (name, below) = shared(row).map_err(not_applied)?;
            if beside.is_none() {
                beside = Some((below, row.get(8).map_err(not_applied)?));
            }
            by_key.extend(name.map(|name| (name, row)));
        }
        let (floor, has_standbys) =
            beside.ok_or_else(|| StoreError::Unfit("the floor is gone".into()))?;
        by_key.sort_unstable_by_key(|(name, _)| *name);
        let mut snapshots = Vec::with_capacity(keys.len());
        for key in keys {
            let place = by_key.binary_search_by_key(&key.as_str(), |(name, _)| *name);
            let (standing, value, size) = match place {
                Ok(place) => seen(by_key[place].1).map_err(not_applied)?,
                Err(_) => (Standing::default(), None, 0),
            };
            snapshots.push(snapshot(standing, floor, value, size, has_standbys));
        }
        Ok(snapshots)
    }
}

/// As Postgres counts: no value has more bytes than this type can say.
fn bound(most: u64) -> i32 {
    i32::try_from(most).unwrap_or(i32::MAX)
}

/// What stands in the first columns of [`READ_TOGETHER`]: the key, unless there is no row, and the floor.
fn shared(row: Columns<'_>) -> Result<(Option<&str>, Mark), sqlx::Error> {
    Ok((row.get(0)?, Mark { token: row.get(1)?, seq: 0 }))
}

/// The rest of them. The value is missing if there is none, and if it is too large.
fn seen(row: Columns<'_>) -> Result<(Standing, Option<Value>, u64), sqlx::Error> {
    // A value has a type, and nothing else has: the table sees to that.
    let content_type: Option<String> = row.get(5)?;
    let standing = Standing {
        mark: Mark { token: row.get(2)?, seq: row.get(3)? },
        version: Version::from_stored(row.get(4)?),
        present: content_type.is_some(),
        ..Standing::default()
    };
    Ok((standing, value_of_parts(row.get(6)?, content_type), size_of(row.get(7)?)))
}

fn snapshot(
    mut standing: Standing,
    floor: Mark,
    value: Option<Value>,
    size: u64,
    has_standbys: bool,
) -> Snapshot {
    let own = standing.mark.token;
    standing.mark = standing.mark.max(floor);
    Snapshot { standing, own, value, size, has_standbys }
}
