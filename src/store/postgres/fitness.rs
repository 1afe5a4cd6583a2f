//! Whether a database may be trusted with marks, and if not, why.

use sqlx::Row;

use super::{
    MIGRATIONS,
    connection::{Connection, READ_ONLY, not_applied},
    objects, schema,
};
use crate::store::{Schema, StoreError};

const OLDEST_SERVER: i32 = 140_000;

const FACTS: &str = "
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_version') AS version_name,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_read_only')::bool AS read_only,
       current_setting('fsync')::bool AS fsync";

pub const TOO_NEW: &str = "the database has the schema of a newer fencepost, on which this version \
                            may not serve; use that version or a newer one";

/// Tables that a crash would empty.
const UNLOGGED: &str = "
SELECT format('the table %s is not logged: a crash would empty it, and every mark with it; '
              'run ALTER TABLE %s SET LOGGED', c.oid::regclass, c.oid::regclass) AS reason
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'fencepost' AND c.relkind = 'r' AND c.relpersistence <> 'p'
LIMIT 1";

/// Why the schema does not protect marks as it should, if so. `newer`: a newer version has made it.
pub async fn weakness(
    connection: &mut Connection,
    newer: bool,
) -> Result<Option<String>, StoreError> {
    let unlogged =
        sqlx::raw_sql(UNLOGGED).fetch_optional(connection.raw()).await.map_err(unanswered)?;
    match unlogged {
        Some(row) => row.try_get("reason").map_err(unanswered).map(Some),
        None => objects::flaw(connection, newer).await,
    }
}

pub async fn check(connection: &mut Connection) -> Result<(), StoreError> {
    check_server(connection).await?;
    check_schema(connection).await
}

/// Whether this is a Postgres that could hold our schema.
pub async fn check_server(connection: &mut Connection) -> Result<(), StoreError> {
    let facts = sqlx::raw_sql(FACTS).fetch_one(connection.raw()).await.map_err(unanswered)?;
    let get = |name| facts.try_get::<String, _>(name).map_err(unanswered);
    let version: i32 = facts.try_get("version").map_err(unanswered)?;
    if is_too_old(version) {
        return unfit(format!(
            "Postgres {} is too old; 14 is the oldest that will do",
            get("version_name")?
        ));
    }
    let encoding = get("encoding")?;
    if encoding != "UTF8" {
        return unfit(format!(
            "the database is encoded in {encoding}; keys are UTF-8, so create one with ENCODING 'UTF8'"
        ));
    }
    if facts.try_get("read_only").map_err(unanswered)? {
        return unfit(READ_ONLY.into());
    }
    if !facts.try_get::<bool, _>("fsync").map_err(unanswered)? {
        tracing::warn!("fsync is off in Postgres: if its machine crashes, marks are lost");
    }
    Ok(())
}

pub fn is_too_old(version: i32) -> bool {
    version < OLDEST_SERVER
}

async fn check_schema(connection: &mut Connection) -> Result<(), StoreError> {
    let schema = schema(connection).await?;
    match schema {
        Schema::Current => {}
        Schema::Ahead => tracing::info!("the database has the schema of a newer fencepost"),
        Schema::Behind => {
            return unfit(
                "the database does not have this version's schema; run `fencepost migrate`, or \
                 serve with --migrate"
                    .into(),
            );
        }
        Schema::TooNew => return unfit(TOO_NEW.into()),
    }
    match weakness(connection, schema == Schema::Ahead).await? {
        Some(reason) => unfit(reason),
        None => Ok(()),
    }
}

fn unfit(reason: String) -> Result<(), StoreError> {
    Err(StoreError::Unfit(reason))
}

/// A question about the database itself got no answer. If Postgres refused it, it will again.
pub fn unanswered(error: sqlx::Error) -> StoreError {
    match not_applied(error) {
        StoreError::Failed(reason) => StoreError::Unfit(reason),
        error @ (StoreError::Busy | StoreError::Locked | StoreError::Conflict) => {
            StoreError::unavailable(error)
        }
        definite => definite,
    }
}

/// Whether Postgres answers, can write, and still has a schema that this version may serve on.
pub async fn ping(connection: &mut Connection) -> Result<(), StoreError> {
    let row = sqlx::raw_sql(
        "SELECT (SELECT max(version) FROM fencepost._sqlx_migrations WHERE success) AS sealed,
                (SELECT max(version) FROM fencepost.migrations WHERE success) AS later,
                (SELECT oldest FROM fencepost.compatibility) AS oldest,
                current_setting('transaction_read_only')::bool AS read_only",
    )
    .fetch_one(connection.raw())
    .await
    .map_err(StoreError::unavailable)?;
    if row.try_get("read_only").map_err(StoreError::unavailable)? {
        return unfit(READ_ONLY.into());
    }
    let get = |name| row.try_get::<Option<i64>, _>(name).map_err(StoreError::unavailable);
    if MIGRATIONS.still_fit(get("sealed")?, get("later")?, get("oldest")?) {
        return Ok(());
    }
    unfit("the schema has changed under this fencepost".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fourteen_is_the_oldest_that_will_do() {
        assert!(is_too_old(130_022));
        assert!(!is_too_old(140_000));
        assert!(!is_too_old(180_001));
    }
}
