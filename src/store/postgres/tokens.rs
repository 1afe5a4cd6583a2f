//! How far tokens have come, for an operator to see.

use sqlx::Row;

use super::{connection::Connection, fitness::unanswered};
use crate::store::{KnownEtcd, StoreError, Tokens, seconds_since_1970};

const TOKENS: &str = "
SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM fencepost.tokens) AS issued,
       (SELECT count(DISTINCT name) FROM fencepost.locks WHERE expires_at > clock_timestamp()) AS held,
       a.epoch::int8, a.revision, a.cluster, a.term,
       extract(epoch FROM a.moved_at)::float8 AS moved_at
FROM (VALUES (1)) AS one LEFT JOIN fencepost.authority AS a ON true";

pub async fn tokens(connection: &mut Connection) -> Result<Tokens, StoreError> {
    let row = sqlx::raw_sql(TOKENS).fetch_one(connection.raw()).await.map_err(unanswered)?;
    let epoch: Option<i64> = row.try_get("epoch").map_err(unanswered)?;
    let etcd = match epoch {
        None => None,
        Some(epoch) => {
            let moved_at: Option<f64> = row.try_get("moved_at").map_err(unanswered)?;
            Some(KnownEtcd {
                epoch,
                revision: row.try_get("revision").map_err(unanswered)?,
                cluster: row.try_get("cluster").map_err(unanswered)?,
                term: row.try_get("term").map_err(unanswered)?,
                moved_at: moved_at.and_then(seconds_since_1970),
            })
        }
    };
    Ok(Tokens {
        issued: row.try_get("issued").map_err(unanswered)?,
        held: row.try_get("held").map_err(unanswered)?,
        etcd,
    })
}
