//! The embedded store: one SQLite file.
//!
//! SQLite has a single writer. `BEGIN IMMEDIATE` takes its place before anything is read, so the
//! rule can be applied in memory (`ledger.rs`) to rows that nobody else can change, and all units
//! that were waiting share one commit. Every commit is synced before it is answered
//! (`synchronous = FULL` with a write-ahead log).

mod audit;
mod compact;
mod disk;
mod examination;
mod floor;
mod lock_queue;
mod lock_table;
mod memory;
mod objects;
mod owning_authority;
mod session;
mod tokens;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, SqliteConnection,
    migrate::{AppliedMigration, Migrate, MigrateError, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::sync::Mutex;

use self::{
    audit::SqliteAudit, disk::Disk, lock_table::SqliteLockTable, memory::SqliteMemory,
    session::SqliteSession,
};
use super::{
    Audit, Compacted, DiskTrouble, FloorState, LockNews, LockTable, Memory, Migrated,
    OwningAuthority, Plan, Reading, Rights, Schema, Session, Sighting, Store, StoreError, Tokens,
    migrations::{self, Migrations, Rivals},
};
use crate::finding::Finding;

static SHIPPED: Migrator = sqlx::migrate!("migrations/sqlite");

/// Every fencepost knows the tables by these names: never rename them.
static MIGRATIONS: Migrations = Migrations {
    all: &SHIPPED,
    sealed: 6,
    tables: ["_sqlx_migrations", "migrations"],
    namespace: None,
};

/// How long a writer waits for another process that has the file locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Whoever is about to write. SQLite lets one in at a time, and those who wait try again now and
/// then: a busy lane would leave the lock table no gap. In this process they stand in line instead.
type Writing = Arc<Mutex<()>>;

pub struct SqliteStore {
    path: PathBuf,
    writing: Writing,
    disk: Arc<Disk>,
}

impl SqliteStore {
    pub fn new(path: PathBuf) -> Self {
        let disk = Arc::new(Disk::of(&path));
        Self { path, writing: Writing::default(), disk }
    }

    /// A file that is there, to read and write.
    async fn open(&self) -> Result<SqliteConnection, StoreError> {
        self.open_with(self.options()).await
    }

    async fn open_to_look(&self) -> Result<SqliteConnection, StoreError> {
        let only_look = SqliteConnectOptions::new()
            .filename(&self.path)
            .read_only(true)
            .disable_statement_logging();
        self.open_with(only_look).await
    }

    fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging()
    }

    /// A file that cannot be opened now will not open later: nobody else is to bring it. A full disk may
    /// have room again.
    async fn open_with(
        &self,
        options: SqliteConnectOptions,
    ) -> Result<SqliteConnection, StoreError> {
        options.connect().await.map_err(|error| match session::not_applied(error) {
            error @ (StoreError::Busy | StoreError::Disk(DiskTrouble::Full, _)) => error,
            error => StoreError::Unfit(format!("cannot open {}: {error}", self.path.display())),
        })
    }
}

impl SqliteStore {
    /// Makes the file if there is none. Where another process makes it at the same moment, SQLite may call it
    /// locked at once: then it is tried again for as long as any writer waits.
    async fn open_to_migrate(&self) -> Result<SqliteConnection, StoreError> {
        let begun = Instant::now();
        loop {
            match self.open_with(self.options().create_if_missing(true)).await {
                Err(StoreError::Busy) if begun.elapsed() < BUSY_TIMEOUT => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                opened => return opened,
            }
        }
    }
}

async fn exists(connection: &mut SqliteConnection, table: &str) -> Result<bool, StoreError> {
    let found: Option<i64> = sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE name = ?1")
        .bind(table)
        .fetch_optional(connection)
        .await
        .map_err(StoreError::unavailable)?;
    Ok(found.is_some())
}

async fn run_migrations(connection: &mut SqliteConnection) -> Result<(), MigrateError> {
    for part in MIGRATIONS.parts() {
        // `run` would do the same, but its future is not `Send` for a borrowed connection.
        part.run_direct(None, connection, false).await?;
    }
    Ok(())
}

async fn applied(
    connection: &mut SqliteConnection,
    table: &'static str,
) -> Result<Vec<AppliedMigration>, StoreError> {
    if !exists(connection, table).await? {
        return Ok(Vec::new());
    }
    connection.list_applied_migrations(table).await.map_err(StoreError::unavailable)
}

fn too_new(path: &Path) -> String {
    format!(
        "{} has the schema of a newer fencepost, on which this version may not serve; use that \
         version or a newer one",
        path.display()
    )
}

#[async_trait]
impl Store for SqliteStore {
    async fn connect(&self) -> Result<Box<dyn Session>, StoreError> {
        Ok(Box::new(SqliteSession::new(
            self.open().await?,
            self.writing.clone(),
            self.disk.clone(),
        )))
    }

    /// Whoever waits for the file waits for all of it.
    async fn connect_impatiently(&self) -> Result<Box<dyn Session>, StoreError> {
        self.connect().await
    }

    async fn connect_lock_table(&self) -> Result<Box<dyn LockTable>, StoreError> {
        Ok(Box::new(SqliteLockTable::new(
            self.open().await?,
            self.writing.clone(),
            self.disk.clone(),
        )))
    }

    async fn listen_to_locks(&self) -> Result<Option<Box<dyn LockNews>>, StoreError> {
        Ok(None)
    }

    async fn connect_memory(&self) -> Result<Box<dyn Memory>, StoreError> {
        let mut connection = self.open().await?;
        session::ping(&mut connection).await?;
        Ok(Box::new(SqliteMemory::new(connection, self.writing.clone(), self.disk.clone())))
    }

    async fn connect_audit(&self) -> Result<Box<dyn Audit>, StoreError> {
        let mut connection = self.open().await?;
        session::ping(&mut connection).await?;
        Ok(Box::new(SqliteAudit::new(connection, self.writing.clone(), self.disk.clone())))
    }

    async fn check(&self) -> Result<(), StoreError> {
        let schema = self.schema().await?;
        match schema {
            Schema::Current => {}
            Schema::Ahead => tracing::info!("the file has the schema of a newer fencepost"),
            Schema::Behind => {
                return Err(StoreError::Unfit(format!(
                    "{} has no current fencepost schema; `fencepost migrate` brings it up to date",
                    self.path.display()
                )));
            }
            Schema::TooNew => return Err(StoreError::Unfit(too_new(&self.path))),
        }
        let mut connection = self.open_to_look().await?;
        match objects::flaw(&mut connection, schema == Schema::Ahead).await? {
            Some(reason) => Err(StoreError::Unfit(format!("{}: {reason}", self.path.display()))),
            None => Ok(()),
        }
    }

    async fn examine(&self, _: Plan) -> Vec<Finding> {
        examination::examine(self).await
    }

    async fn tokens(&self) -> Result<Tokens, StoreError> {
        tokens::tokens(&mut self.open_to_look().await?).await
    }

    async fn owning_authority(&self) -> Result<Option<OwningAuthority>, StoreError> {
        owning_authority::read(&mut self.open_to_look().await?).await
    }

    async fn claim_authority(
        &self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError> {
        owning_authority::claim(&mut self.open().await?, &self.writing, wanted).await
    }

    async fn move_authority(
        &self,
        to: &OwningAuthority,
        seen: Option<&Sighting>,
    ) -> Result<i64, StoreError> {
        owning_authority::move_to(&mut self.open().await?, &self.writing, to, seen).await
    }

    async fn schema(&self) -> Result<Schema, StoreError> {
        if !self.path.exists() {
            return Ok(Schema::Behind);
        }
        let mut connection = self.open_to_look().await?;
        let [sealed, later] = MIGRATIONS.tables;
        let applied =
            [applied(&mut connection, sealed).await?, applied(&mut connection, later).await?];
        let oldest = if exists(&mut connection, "compatibility").await? {
            sqlx::query_scalar("SELECT oldest FROM compatibility")
                .fetch_optional(&mut connection)
                .await
                .map_err(StoreError::unavailable)?
        } else {
            None
        };
        Ok(MIGRATIONS.schema(&applied, oldest))
    }

    async fn migrate(&self) -> Result<Migrated, StoreError> {
        let mut connection = self.open_to_migrate().await?;
        match self.schema().await? {
            Schema::Ahead => {
                return Ok(Migrated { applied: Vec::new(), rights: Rights::Untouched });
            }
            Schema::TooNew => return Err(StoreError::Unfit(too_new(&self.path))),
            Schema::Current | Schema::Behind => {}
        }
        let [sealed, later] = MIGRATIONS.tables;
        let before =
            [applied(&mut connection, sealed).await?, applied(&mut connection, later).await?];
        let mut rivals = Rivals::default();
        while let Err(error) = run_migrations(&mut connection).await {
            if matches!(self.schema().await, Ok(Schema::Current | Schema::Ahead)) {
                break;
            }
            let now = applied(&mut connection, sealed).await?.len()
                + applied(&mut connection, later).await?.len();
            if !rivals.may_be_at_work(now).await {
                return Err(migrations::failed(error));
            }
        }
        Ok(Migrated { applied: MIGRATIONS.missing(&before), rights: Rights::Untouched })
    }

    /// Whoever reads sees all that was committed, and no token is drawn without its row.
    async fn floor(&self, _: Reading) -> Result<FloorState, StoreError> {
        floor::state(&mut self.open_to_look().await?).await
    }

    async fn raise_floor(&self, to: i64, issues: bool) -> Result<i64, StoreError> {
        floor::raise(&mut self.open().await?, to, issues).await
    }

    async fn plan_compaction(&self, age: Duration, bound: i64) -> Result<Compacted, StoreError> {
        compact::plan(&mut self.open_to_look().await?, age, bound).await
    }

    async fn compact(
        &self,
        age: Duration,
        bound: i64,
        progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
    ) -> Result<Compacted, StoreError> {
        compact::compact(&mut self.open().await?, age, bound, progress).await
    }

    /// SQLite has one writer.
    fn writers(&self) -> usize {
        1
    }

    fn lock_tables(&self) -> usize {
        1
    }

    /// They share a sync to disk, which takes longer than all the rest.
    fn gathers(&self) -> usize {
        256
    }
}
