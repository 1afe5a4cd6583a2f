//! Whether the tables, indexes and triggers of a file are those of this version's schema.
//!
//! A trigger stops raw SQL that would lower a mark, so one that is missing or was replaced must be noticed. What is expected is
//! what the migrations make of an empty database in memory. A trigger that this version does not know is refused, unless a newer
//! version has made the schema; other objects that it does not know are left alone. So are the two tables of sqlx, whose text
//! is sqlx's own.

use std::collections::HashMap;

use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

use super::MIGRATIONS;
use crate::store::StoreError;

/// What is wrong with the objects, if anything. A newer version may have replaced one by a better one of the same name: then
/// it only has to be there.
pub async fn flaw(
    connection: &mut SqliteConnection,
    newer: bool,
) -> Result<Option<String>, StoreError> {
    let mut found = objects(connection).await?;
    let mut model = SqliteConnectOptions::new()
        .in_memory(true)
        .disable_statement_logging()
        .connect()
        .await
        .map_err(StoreError::unavailable)?;
    for part in MIGRATIONS.parts() {
        part.run_direct(None, &mut model, false).await.map_err(StoreError::unavailable)?;
    }
    for (name, expected) in objects(&mut model).await? {
        let flaw = match found.remove(&name) {
            None => "is missing",
            Some(sql) if sql != expected && !newer => {
                "is not the one that this version has shipped"
            }
            Some(_) => continue,
        };
        return Ok(Some(format!(
            "the {name} {flaw}, so raw SQL can lower marks; restore it from migrations/sqlite, and find \
             the cause of the change"
        )));
    }
    let added = found.into_keys().filter(|name| name.starts_with("trigger ")).min();
    Ok(added.filter(|_| !newer).map(|name| {
        format!(
            "the {name} is not part of the schema, and may change what is written; drop it, and find the \
             cause of the change"
        )
    }))
}

async fn objects(connection: &mut SqliteConnection) -> Result<HashMap<String, String>, StoreError> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT type || ' ' || name, sql FROM sqlite_master
         WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'
           AND name NOT IN ('_sqlx_migrations', 'migrations')",
    )
    .fetch_all(connection)
    .await
    .map_err(StoreError::unavailable)?;
    Ok(rows.into_iter().collect())
}
