//! Which authority the store belongs to, in SQLite. As the functions of Postgres do it
//! (`migrations/postgres/0013_owning_authority.sql`), in one transaction that has the file's place for a writer.

use sqlx::{Connection, Row, SqliteConnection};

use super::{Writing, session::not_applied};
use crate::store::{
    OwningAuthority, Sighting, StoreError,
    lock_table::ISSUED_BY_NOBODY,
    owning_authority::{NONE, STORE, owning_authority},
};

const READ: &str = "SELECT kind, identity, namespace, instance FROM owning_authority";

/// ?1 kind, ?2 identity, ?3 namespace.
const CLAIM: &str = "INSERT INTO owning_authority (only_row, kind, identity, namespace)
VALUES (1, ?1, ?2, ?3)
ON CONFLICT (only_row) DO UPDATE
    SET identity = coalesce(identity, excluded.identity),
        namespace = coalesce(namespace, excluded.namespace)
    WHERE kind = excluded.kind
      AND coalesce(identity = excluded.identity, 1) AND coalesce(namespace = excluded.namespace, 1)";

/// Another cluster was in use here before any was recorded.
const LEAVE_UNRECORDED_CLUSTER: &str = "UPDATE authority
SET epoch = epoch + 1, revision = 0, cluster = (SELECT identity FROM owning_authority), term = 0,
    moved_at = unixepoch()
WHERE cluster <> (SELECT identity FROM owning_authority WHERE kind NOT IN ('store', 'none'))";

/// ?1 from where on nobody issues tokens.
const HIGHEST: &str = "SELECT max(
    coalesce((SELECT max(token) FROM resources WHERE token < ?1), 0),
    (SELECT token FROM floor),
    (SELECT issued FROM tokens),
    coalesce((SELECT (epoch << 48) + revision FROM authority), 0))";

/// As [`CLAIM`], and ?4 the number that was left in it.
const RECORD: &str = "INSERT INTO owning_authority (only_row, kind, identity, namespace, instance)
VALUES (1, ?1, ?2, ?3, ?4)
ON CONFLICT (only_row) DO UPDATE SET kind = excluded.kind, identity = excluded.identity,
    namespace = excluded.namespace, instance = excluded.instance, since = excluded.since";

/// ?1 epoch, ?2 revision, ?3 cluster, ?4 term.
const REMEMBER: &str = "INSERT INTO authority (only_row, epoch, revision, cluster, term, moved_at)
VALUES (1, ?1, ?2, ?3, ?4, unixepoch())
ON CONFLICT (only_row) DO UPDATE SET epoch = excluded.epoch, revision = excluded.revision,
    cluster = excluded.cluster, term = excluded.term, moved_at = excluded.moved_at";

const REVISIONS: i64 = (1 << 48) - 1;

pub async fn read(
    connection: &mut SqliteConnection,
) -> Result<Option<OwningAuthority>, StoreError> {
    let row = sqlx::query(READ).fetch_optional(connection).await.map_err(not_applied)?;
    row.as_ref().map(owning_authority).transpose().map_err(not_applied)
}

pub async fn claim(
    connection: &mut SqliteConnection,
    writing: &Writing,
    wanted: &OwningAuthority,
) -> Result<OwningAuthority, StoreError> {
    let adds = |known: &OwningAuthority| {
        (known.identity.is_none() && wanted.identity.is_some())
            || (known.namespace.is_none() && wanted.namespace.is_some())
    };
    if let Some(known) = read(connection).await?
        && !adds(&known)
    {
        return Ok(known);
    }
    let _in_line = writing.lock().await;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    sqlx::query(CLAIM)
        .bind(&wanted.kind)
        .bind(&wanted.identity)
        .bind(&wanted.namespace)
        .execute(&mut *transaction)
        .await
        .map_err(not_applied)?;
    sqlx::query(LEAVE_UNRECORDED_CLUSTER).execute(&mut *transaction).await.map_err(not_applied)?;
    let stands = read(&mut transaction).await?;
    transaction.commit().await.map_err(StoreError::unavailable)?;
    stands.ok_or_else(|| StoreError::Unfit("the record of the store's authority is missing".into()))
}

/// Returns what stands.
pub async fn claim_instance(
    connection: &mut SqliteConnection,
    writing: &Writing,
    former: Option<&str>,
    found: &str,
    seen: &Sighting,
) -> Result<Option<String>, StoreError> {
    let _in_line = writing.lock().await;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    let claimed = sqlx::query("UPDATE owning_authority SET instance = ?2 WHERE instance IS ?1")
        .bind(former)
        .bind(found)
        .execute(&mut *transaction)
        .await
        .map_err(not_applied)?;
    if claimed.rows_affected() > 0 && former.is_some() {
        sqlx::query(
            "UPDATE authority SET epoch = epoch + 1, revision = ?1, term = ?2, moved_at = unixepoch()",
        )
        .bind(seen.revision)
        .bind(seen.term)
        .execute(&mut *transaction)
        .await
        .map_err(not_applied)?;
    }
    let stands = read(&mut transaction).await?;
    transaction.commit().await.map_err(StoreError::unknown)?;
    Ok(stands.and_then(|stands| stands.instance))
}

pub async fn move_to(
    connection: &mut SqliteConnection,
    writing: &Writing,
    to: &OwningAuthority,
    seen: Option<&Sighting>,
) -> Result<i64, StoreError> {
    let _in_line = writing.lock().await;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    let highest: i64 = sqlx::query_scalar(HIGHEST)
        .bind(ISSUED_BY_NOBODY)
        .fetch_one(&mut *transaction)
        .await
        .map_err(not_applied)?;
    let raised = highest.saturating_add(1);
    if raised >= ISSUED_BY_NOBODY && to.kind != NONE {
        return Err(StoreError::Unfit(format!(
            "the store does not move to {}: it has seen the token {highest} or has its floor there, and \
             an authority issues only tokens below 2^62",
            to.kind
        )));
    }
    sqlx::query(RECORD)
        .bind(&to.kind)
        .bind(&to.identity)
        .bind(&to.namespace)
        .bind(&to.instance)
        .execute(&mut *transaction)
        .await
        .map_err(not_applied)?;
    sqlx::query("UPDATE floor SET token = max(token, ?1)")
        .bind(raised)
        .execute(&mut *transaction)
        .await
        .map_err(not_applied)?;
    sqlx::raw_sql("DELETE FROM locks").execute(&mut *transaction).await.map_err(not_applied)?;
    if to.kind == STORE {
        sqlx::query("UPDATE tokens SET issued = max(issued, ?1)")
            .bind(raised)
            .execute(&mut *transaction)
            .await
            .map_err(not_applied)?;
    } else if let Some(seen) = seen {
        let last: Option<i64> = sqlx::query("SELECT epoch FROM authority")
            .fetch_optional(&mut *transaction)
            .await
            .and_then(|row| row.map(|row| row.try_get("epoch")).transpose())
            .map_err(not_applied)?;
        let above = (raised >> 48) + i64::from(seen.revision < raised & REVISIONS);
        sqlx::query(REMEMBER)
            .bind(above.max(last.map_or(0, |last| last + 1)))
            .bind(seen.revision)
            .bind(&to.identity)
            .bind(seen.term)
            .execute(&mut *transaction)
            .await
            .map_err(not_applied)?;
    }
    // A failed commit may have reached the disk or not.
    transaction.commit().await.map_err(StoreError::unknown)?;
    Ok(raised)
}
