//! How far tokens have come, for an operator to see.

use sqlx::{Row, SqliteConnection};

use crate::store::{KnownEtcd, StoreError, Tokens, seconds_since_1970};

const TOKENS: &str = "
SELECT (SELECT issued FROM tokens) AS issued,
       (SELECT count(DISTINCT name) FROM locks
        WHERE expires_at > (julianday('now') - 2440587.5) * 86400000.0) AS held,
       a.epoch, a.revision, a.cluster, a.term, CAST(a.moved_at AS REAL) AS moved_at
FROM (SELECT 1) LEFT JOIN authority AS a ON true";

pub async fn tokens(connection: &mut SqliteConnection) -> Result<Tokens, StoreError> {
    let row = sqlx::raw_sql(TOKENS).fetch_one(connection).await.map_err(StoreError::unavailable)?;
    let epoch: Option<i64> = row.try_get("epoch").map_err(StoreError::unavailable)?;
    let etcd = match epoch {
        None => None,
        Some(epoch) => {
            let moved_at: Option<f64> = row.try_get("moved_at").map_err(StoreError::unavailable)?;
            Some(KnownEtcd {
                epoch,
                revision: row.try_get("revision").map_err(StoreError::unavailable)?,
                cluster: row.try_get("cluster").map_err(StoreError::unavailable)?,
                term: row.try_get("term").map_err(StoreError::unavailable)?,
                moved_at: moved_at.and_then(seconds_since_1970),
            })
        }
    };
    Ok(Tokens {
        issued: row.try_get("issued").map_err(StoreError::unavailable)?,
        held: row.try_get("held").map_err(StoreError::unavailable)?,
        etcd,
    })
}
