//! Which migrations this version ships, which of them a database has, and whether this version may serve there.
//!
//! During a rollout one version serves on the schema of the next. So a schema that is newer is no reason to refuse it,
//! unless it says that it needs a newer version: `compatibility.oldest` is the newest migration that a version must know. The
//! first version insisted on exactly the migrations that it knew, in the table that sqlx names by default. What came later is
//! recorded in a table of its own, so that even that version goes on serving.

use std::time::Duration;

use sqlx::migrate::{AppliedMigration, Migrator};

use super::StoreError;

/// How far a database's schema is from what this version needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    Current,
    /// Not there, or older: `fencepost migrate` brings it up to date.
    Behind,
    /// Made by a newer version, and this one may serve on it.
    Ahead,
    /// Made by a newer version, and this one may not serve on it.
    TooNew,
}

/// What a migration has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The names of the migrations that were applied, in order; none if there was nothing to do.
    pub applied: Vec<String>,
    pub rights: Rights,
}

/// What became of the rights of the role that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// A file has no roles; and what a newer version has given is left alone.
    Untouched,
    /// They are those of this version's script.
    Given,
    /// The text says why not.
    NotGiven(String),
}

/// The migrations of one kind of store.
pub(super) struct Migrations {
    pub all: &'static Migrator,
    /// The newest migration that the first version knew.
    pub sealed: i64,
    /// The table of the migrations up to there, and the table of the later ones.
    pub tables: [&'static str; 2],
    /// A schema that must be there before the tables can be.
    pub namespace: Option<&'static str>,
}

/// Fenceposts that start together migrate at the same time. Each migration is a transaction that enters itself in a
/// table, so of two that make one, one fails, whole. It goes on with what is left then.
#[derive(Default)]
pub(super) struct Rivals {
    applied: usize,
    failures: usize,
}

impl Rivals {
    const PAUSE: Duration = Duration::from_millis(100);
    const FAILURES: usize = 3;

    /// Whether to try again after a failure, with so many migrations applied by now. It waits a moment before that.
    pub async fn may_be_at_work(&mut self, applied: usize) -> bool {
        if applied > self.applied {
            *self = Self { applied, failures: 0 };
        }
        self.failures += 1;
        if self.failures >= Self::FAILURES {
            return false;
        }
        tokio::time::sleep(Self::PAUSE).await;
        true
    }
}

pub(super) fn failed(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Unfit(format!(
        "the migration failed: {reason}; if another fencepost migrates this store, try again"
    ))
}

impl Migrations {
    pub fn newest(&self) -> i64 {
        self.all.iter().map(|migration| migration.version).max().unwrap_or_default()
    }

    /// The names of those that a database does not have yet, in order.
    pub fn missing(&self, applied: &[Vec<AppliedMigration>; 2]) -> Vec<String> {
        let is_applied =
            |version| applied.iter().flatten().any(|applied| applied.version == version);
        let missing = self.all.iter().filter(|migration| !is_applied(migration.version));
        missing
            .map(|migration| {
                format!("{:04}_{}", migration.version, migration.description.replace(' ', "_"))
            })
            .collect()
    }

    /// What has to be run, in this order: each part has a table of its own.
    pub fn parts(&self) -> [Migrator; 2] {
        [false, true].map(|later| {
            let part =
                self.all.iter().filter(|migration| (migration.version > self.sealed) == later);
            let mut migrator = Migrator::with_migrations(part.cloned().collect());
            migrator.dangerous_set_table_name(self.tables[usize::from(later)]);
            if let Some(namespace) = self.namespace {
                migrator.create_schema(namespace);
            }
            migrator
        })
    }

    /// Compares what a database has with what this version ships. `oldest`: the newest migration that the schema says a
    /// version must know.
    pub fn schema(&self, applied: &[Vec<AppliedMigration>; 2], oldest: Option<i64>) -> Schema {
        let [sealed, later] = applied;
        let foreign = sealed.iter().any(|applied| !self.all.version_exists(applied.version));
        if foreign || oldest.is_some_and(|oldest| oldest > self.newest()) {
            return Schema::TooNew;
        }
        let missing = self.all.iter().any(|shipped| {
            !applied.iter().flatten().any(|applied| {
                applied.version == shipped.version && applied.checksum == shipped.checksum
            })
        });
        if missing {
            Schema::Behind
        } else if later.iter().any(|applied| applied.version > self.newest()) {
            Schema::Ahead
        } else {
            Schema::Current
        }
    }

    /// The same at a glance, for a schema that was checked before: whether it may still be served on.
    pub fn still_fit(&self, sealed: Option<i64>, later: Option<i64>, oldest: Option<i64>) -> bool {
        sealed == Some(self.sealed)
            && later >= Some(self.newest())
            && oldest.is_some_and(|oldest| oldest <= self.newest())
    }
}
