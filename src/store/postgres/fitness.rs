//! Whether a database may be trusted with marks, and if not, why.

use sqlx::Row;

use super::{
    MIGRATIONS,
    connection::{Connection, READ_ONLY, not_applied},
    schema,
};
use crate::store::{Schema, StoreError, newest_migration};

const OLDEST_SERVER: i32 = 140_000;

const FACTS: &str = "
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_version') AS version_name,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_read_only')::bool AS read_only,
       current_setting('fsync')::bool AS fsync";

pub const AHEAD: &str =
    "the database has the schema of a newer fencepost; use that version or a newer one";

/// Tables that a crash would empty, and triggers that somebody has switched off.
pub const WEAKENED: &str = "
SELECT format('the table %s is not logged: a crash would empty it, and every mark with it; '
              'run ALTER TABLE %s SET LOGGED', c.oid::regclass, c.oid::regclass) AS reason
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'fencepost' AND c.relkind = 'r' AND c.relpersistence <> 'p'
UNION ALL
SELECT format('the trigger %I on %s is disabled: raw SQL could lower a mark; '
              'run ALTER TABLE %s ENABLE TRIGGER %I', t.tgname, t.tgrelid::regclass,
              t.tgrelid::regclass, t.tgname)
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
     JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'fencepost' AND NOT t.tgisinternal AND t.tgenabled NOT IN ('O', 'A')
LIMIT 1";

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
    match schema(connection).await? {
        Schema::Current => {}
        Schema::Behind => {
            return unfit(
                "the database does not have this version's schema; run `fencepost migrate`, or \
                 serve with --migrate"
                    .into(),
            );
        }
        Schema::Ahead => return unfit(AHEAD.into()),
    }
    let weakened =
        sqlx::raw_sql(WEAKENED).fetch_optional(connection.raw()).await.map_err(unanswered)?;
    match weakened {
        Some(row) => unfit(row.try_get("reason").map_err(unanswered)?),
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

/// Whether Postgres answers, can write, and still has the schema that was checked at the start.
pub async fn ping(connection: &mut Connection) -> Result<(), StoreError> {
    let row = sqlx::raw_sql(
        "SELECT max(version) AS newest, current_setting('transaction_read_only')::bool AS read_only
         FROM fencepost._sqlx_migrations WHERE success",
    )
    .fetch_one(connection.raw())
    .await
    .map_err(StoreError::unavailable)?;
    if row.try_get("read_only").map_err(StoreError::unavailable)? {
        return unfit(READ_ONLY.into());
    }
    let newest: Option<i64> = row.try_get("newest").map_err(StoreError::unavailable)?;
    if newest == newest_migration(&MIGRATIONS) {
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
