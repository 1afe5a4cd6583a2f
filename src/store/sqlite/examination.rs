//! A look at a SQLite file for `fencepost check`. It opens the file to read, and changes nothing.

use std::{fs::OpenOptions, path::Path, time::SystemTime};

use bytesize::ByteSize;
use sqlx::{Row, SqliteConnection};

use super::{SqliteStore, disk::ENOUGH_BYTES, objects};
use crate::{
    finding::{Finding, Subject},
    store::{Schema, Store, StoreError, clock_finding},
};

/// With less room, an operator should know.
const LITTLE_BYTES: u64 = 64 << 20;

/// The journal mode is kept in the file; what a crash may lose is set by every connection.
const FACTS: &str = "
SELECT sqlite_version() AS version, (SELECT journal_mode FROM pragma_journal_mode) AS journal,
       (julianday('now') - 2440587.5) * 86400.0 AS now";

pub async fn examine(store: &SqliteStore) -> Vec<Finding> {
    if !store.path.exists() {
        return vec![Finding::doubtful(
            Subject::Store,
            format!("{} is not there yet", store.path.display()),
            "`serve` will make it; if there should be one, mend the path in --store",
        )];
    }
    let mut connection = match store.open_to_look().await {
        Ok(connection) => connection,
        Err(error) => return vec![broken(Subject::Store, &error)],
    };
    let found = store.schema().await;
    let mut findings = vec![
        Finding::good(Subject::Store, format!("{} can be read", store.path.display())),
        schema(&found),
        writable(&store.path),
        room(store.disk.free_bytes()),
    ];
    if let Ok(known @ (Schema::Current | Schema::Ahead)) = found {
        findings.push(guards(&mut connection, known == Schema::Ahead).await);
    }
    match facts(&mut connection).await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(broken(Subject::Version, &error)),
    }
    findings
}

fn broken(subject: Subject, error: &StoreError) -> Finding {
    Finding::bad(
        subject,
        error.to_string(),
        "see that it is a SQLite file of fencepost's own, and that this user may read it",
    )
}

/// `serve` always brings an older file up to date.
fn schema(schema: &Result<Schema, StoreError>) -> Finding {
    match schema {
        Ok(Schema::Current) => Finding::good(Subject::Migrations, "it is this version's"),
        Ok(Schema::Behind) => Finding::doubtful(
            Subject::Migrations,
            "it is missing or older",
            "`serve` will bring it up to date",
        ),
        Ok(Schema::Ahead) => Finding::doubtful(
            Subject::Migrations,
            "it is a newer version's, on which this version may serve",
            "finish the upgrade to the newer version",
        ),
        Ok(Schema::TooNew) => Finding::bad(
            Subject::Migrations,
            "it is a newer version's, on which this version may not serve",
            "use that version or a newer one",
        ),
        Err(error) => broken(Subject::Migrations, error),
    }
}

async fn guards(connection: &mut SqliteConnection, newer: bool) -> Finding {
    match objects::flaw(connection, newer).await {
        Ok(None) => Finding::good(Subject::Tables, "tables and triggers are those of the schema"),
        Ok(Some(reason)) => Finding::bad(Subject::Tables, reason, "a server refuses this file"),
        Err(error) => broken(Subject::Tables, &error),
    }
}

/// Also before any write has failed.
fn room(free: Option<u64>) -> Finding {
    const FREE_IT: &str =
        "free some room on the disk of the file, or move the file to a larger one";
    let says = |bytes| format!("{} are free on the disk of the file", ByteSize::b(bytes));
    match free {
        Some(bytes) if bytes < ENOUGH_BYTES => {
            Finding::bad(Subject::Disk, format!("the disk is full: {}", says(bytes)), FREE_IT)
        }
        Some(bytes) if bytes < LITTLE_BYTES => {
            Finding::doubtful(Subject::Disk, format!("only {}", says(bytes)), FREE_IT)
        }
        Some(bytes) => Finding::good(Subject::Disk, says(bytes)),
        None => Finding::doubtful(
            Subject::Disk,
            "the system does not say how much room is left",
            "see that the directory of the file can be read",
        ),
    }
}

fn writable(path: &Path) -> Finding {
    match OpenOptions::new().append(true).open(path) {
        Ok(_) => Finding::good(Subject::Needed, "this user may write to the file"),
        Err(error) => Finding::bad(
            Subject::Needed,
            format!("this user may not write to the file: {error}"),
            "serve as the file's owner, or give it to the user that serves",
        ),
    }
}

async fn facts(connection: &mut SqliteConnection) -> Result<Vec<Finding>, StoreError> {
    let before = SystemTime::now();
    let facts =
        sqlx::raw_sql(FACTS).fetch_one(connection).await.map_err(StoreError::unavailable)?;
    let after = SystemTime::now();
    let version: String = facts.try_get("version").map_err(StoreError::unavailable)?;
    let journal: String = facts.try_get("journal").map_err(StoreError::unavailable)?;
    let now: f64 = facts.try_get("now").map_err(StoreError::unavailable)?;
    Ok(vec![
        Finding::good(Subject::Version, format!("SQLite {version}")),
        if journal == "wal" {
            Finding::good(Subject::Sync, "a write-ahead log, synced at every commit")
        } else {
            Finding::doubtful(
                Subject::Sync,
                format!("the journal mode is {journal}"),
                "`serve` will switch it to a write-ahead log; keep the file on a local disk",
            )
        },
        clock_finding(now, [before, after]),
    ])
}
