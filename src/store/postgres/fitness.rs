//! Whether a database may be trusted with marks, and if not, why.

use sqlx::{Row, postgres::PgRow};

use super::{
    MIGRATIONS,
    connection::{Connection, READ_ONLY, is_denied, not_applied},
    objects,
    rights::{self, Missing, with_rights},
    schema,
};
use crate::store::{Schema, StoreError, text_of};

const OLDEST_SERVER: i32 = 140_000;

const FACTS: &str = "
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_version') AS version_name,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_read_only')::bool AS read_only,
       current_setting('fsync')::bool AS fsync";

pub const TOO_NEW: &str = "the database has the schema of a newer fencepost, on which this version \
                            may not serve; use that version or a newer one";

/// What makes a table or the sequence another one than the migrations have made. Those that are not logged are emptied by a
/// crash; row security hides rows, and a row that is hidden looks like one without a mark; a rule replaces statements; and a
/// sequence that counts otherwise issues one token twice.
const ALTERED: &str = with_rights!(
    "
SELECT format('the %s fencepost.%I is not logged: a crash would empty it, and every mark with it; '
              'run ALTER %s fencepost.%I SET LOGGED', lower(k.kind), c.relname, k.kind, c.relname) AS reason
FROM own AS c, LATERAL (SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END) AS k(kind)
WHERE c.relpersistence <> 'p'
UNION ALL
SELECT format('row security is on for the table fencepost.%I: rows may be hidden, and marks with them; run '
              'ALTER TABLE fencepost.%I DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', c.relname, c.relname)
FROM own AS c WHERE c.relrowsecurity OR c.relforcerowsecurity
UNION ALL
SELECT format('the rule %I on fencepost.%I is not part of the schema, and may change what is written; run '
              'DROP RULE %I ON fencepost.%I', r.rulename, c.relname, r.rulename, c.relname)
FROM pg_rewrite AS r JOIN own AS c ON c.oid = r.ev_class
UNION ALL
SELECT 'the sequence fencepost.tokens does not count as it should: tokens could be issued twice, or fall; run '
       'ALTER SEQUENCE fencepost.tokens AS bigint INCREMENT 1 NO MINVALUE NO MAXVALUE CACHE 1 NO CYCLE'
FROM pg_sequence AS s JOIN own AS c ON c.oid = s.seqrelid
WHERE (s.seqtypid::oid, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle)
      <> (20::oid, 1, 1, 9223372036854775807, 1, false)
LIMIT 1"
);

/// The rows that answer a question, behind a pooler with the settings that are pinned. If Postgres refuses it, the
/// connection is as good as new.
pub async fn ask(
    connection: &mut Connection,
    question: &'static str,
) -> Result<Vec<PgRow>, StoreError> {
    connection.begin_if_pooled().await?;
    let answer = sqlx::raw_sql(question).fetch_all(connection.raw()).await;
    match answer {
        Ok(rows) => {
            connection.end_if_pooled(&Ok(())).await?;
            Ok(rows)
        }
        Err(error) => {
            if connection.is_pooled() {
                // If the connection is lost, its error is the one to tell.
                let _ = connection.rollback().await;
            }
            Err(unanswered(error))
        }
    }
}

/// Why the schema does not protect marks as it should, if so. `newer`: a newer version has made it.
pub async fn weakness(
    connection: &mut Connection,
    newer: bool,
) -> Result<Option<String>, StoreError> {
    if let Some(row) = ask(connection, ALTERED).await?.first() {
        return row.try_get("reason").map_err(unanswered).map(Some);
    }
    match objects::flaw(connection, newer).await? {
        None => rights::excessive(connection, newer).await,
        flaw => Ok(flaw),
    }
}

/// Whether the role of this connection has the rights that serving takes.
pub async fn check_rights(
    connection: &mut Connection,
    keeps_rejections: bool,
) -> Result<(), StoreError> {
    let Missing { role, to_serve, .. } = rights::missing(connection, keeps_rejections).await?;
    if to_serve.is_empty() {
        return Ok(());
    }
    unfit(format!(
        "the role {role} lacks {}, and cannot serve without; {}",
        to_serve.join(", "),
        rights::HOW_TO_GRANT
    ))
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
    if is_denied(&error) {
        return StoreError::Denied(text_of(&error));
    }
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
