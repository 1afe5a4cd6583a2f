//! The production store: Postgres 14 or newer, shared by any number of fenceposts.
//!
//! A lone write of one key is one conditional statement, judged by Postgres on the newest row
//! (`single.rs`). Writes that come together are settled together (`gathered.rs`): plain ones of many
//! keys by one such statement (`plan.rs`, `runs.rs`); where a scope, a precondition or a client's
//! batch needs more than that, rows are locked in key order and judged by the same rule in memory
//! (`locked.rs`). `connection.rs` pins every setting that this relies on.

mod audit;
mod batch;
mod blocked;
mod compact;
mod connection;
mod examination;
mod fitness;
mod floor;
mod gathered;
mod guards;
mod lock_news;
mod lock_table;
mod locked;
mod look;
mod memory;
mod newcomers;
pub mod notices;
pub mod objects;
mod owning_authority;
pub mod plan;
mod reads;
pub mod rights;
pub mod roles;
mod rows;
mod runs;
mod server_identity;
mod session;
mod single;
mod succession;
mod tokens;
mod unreachable;

use std::{
    path::PathBuf,
    str::FromStr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Row,
    migrate::{AppliedMigration, MigrateError, Migrator},
    postgres::PgConnectOptions,
};

use self::{
    audit::PostgresAudit,
    connection::{Connection, Connector, Patience},
    lock_news::PostgresLockNews,
    lock_table::PostgresLockTable,
    memory::PostgresMemory,
    server_identity::LOOK_INTERVAL,
    session::{DEADLINE, PING_DEADLINE, PostgresSession, surely, within},
};
use super::{
    Audit, Compacted, FloorState, LockNews, LockTable, Memory, Migrated, OwningAuthority, Plan,
    Reading, Rights, Schema, Session, Sighting, Store, StoreError, Takeover, Tokens,
    migrations::{self, Migrations, Rivals},
};
use crate::finding::Finding;

/// How long to wait for another process that migrates.
const MIGRATION_PATIENCE: Duration = Duration::from_secs(5);

static SHIPPED: Migrator = sqlx::migrate!("migrations/postgres");

/// Every fencepost knows the tables by these names: never rename them.
static MIGRATIONS: Migrations = Migrations {
    all: &SHIPPED,
    sealed: 9,
    tables: ["fencepost._sqlx_migrations", "fencepost.migrations"],
    namespace: Some("fencepost"),
};

pub struct PostgresStore {
    connector: Connector,
    writers: usize,
    takeover: OnceLock<Arc<dyn Takeover>>,
}

impl PostgresStore {
    /// `url` as libpq knows it: `postgres://user:password@host:port/database?sslmode=verify-full`.
    pub fn new(url: &str, writers: usize) -> Result<Self, String> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| error.to_string().replace("error with configuration: ", ""))?
            .disable_statement_logging();
        Ok(Self { connector: Connector::new(options), writers, takeover: OnceLock::new() })
    }

    /// The file is read anew for every connection: a password that has changed is used by the next.
    #[must_use]
    pub fn with_password_file(mut self, path: Option<PathBuf>) -> Self {
        self.connector = self.connector.with_password_file(path);
        self
    }

    /// A direct connection to a server that is new enough.
    async fn connect_to_migrate(&self) -> Result<Connection, StoreError> {
        let mut connection = self.connector.connect_unidentified().await?;
        if connection.is_pooled() {
            return Err(StoreError::Unfit(
                "migrations need a direct connection to Postgres, and this one goes through a \
                 transaction pooler; give --store the database's own address"
                    .into(),
            ));
        }
        fitness::check_server(&mut connection).await?;
        Ok(connection)
    }

    /// A connection to a server that may be used: its floor has risen if it has taken over from another.
    async fn connect_settled(&self) -> Result<Connection, StoreError> {
        let mut session = PostgresSession::new(self.connector.connect().await?);
        session.ping().await?;
        if let Some(takeover) = self.takeover.get() {
            takeover.settle(&mut session).await?;
        }
        Ok(session.connection)
    }
}

async fn schema(connection: &mut Connection) -> Result<Schema, StoreError> {
    connection.begin_if_pooled().await?;
    let found = find_migrations(connection).await.map_err(fitness::unanswered);
    connection.end_if_pooled(&found).await?;
    let (applied, oldest) = found?;
    Ok(MIGRATIONS.schema(&applied, oldest))
}

/// What has been applied, and the newest migration that the schema says a fencepost must know.
async fn find_migrations(
    connection: &mut Connection,
) -> Result<([Vec<AppliedMigration>; 2], Option<i64>), sqlx::Error> {
    let [sealed, later] = MIGRATIONS.tables;
    let applied = [
        applied_migrations(connection, sealed).await?,
        applied_migrations(connection, later).await?,
    ];
    if !exists(connection, "fencepost.compatibility").await? {
        return Ok((applied, None));
    }
    let oldest = sqlx::query_scalar("SELECT oldest FROM fencepost.compatibility")
        .persistent(connection.keeps_statements())
        .fetch_optional(connection.raw())
        .await?;
    Ok((applied, oldest))
}

/// As `sqlx` would list them, but without the named statement that it leaves behind: in a pooler
/// that would be in the way of the next connection.
async fn applied_migrations(
    connection: &mut Connection,
    table: &'static str,
) -> Result<Vec<AppliedMigration>, sqlx::Error> {
    if !exists(connection, table).await? {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(AssertSqlSafe(format!("SELECT version, checksum FROM {table}")))
        .persistent(connection.keeps_statements())
        .fetch_all(connection.raw())
        .await?;
    rows.iter()
        .map(|row| {
            let checksum: Vec<u8> = row.try_get("checksum")?;
            Ok(AppliedMigration { version: row.try_get("version")?, checksum: checksum.into() })
        })
        .collect()
}

async fn exists(connection: &mut Connection, table: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(table)
        .persistent(connection.keeps_statements())
        .fetch_one(connection.raw())
        .await
}

/// Two who migrate at once take turns. If the lock cannot be had for long, another role may be holding it: then this one
/// goes on without. Every migration is a transaction that enters itself in a table, so of two at once one fails, whole.
async fn take_turns(connection: &mut Connection) -> Result<(), StoreError> {
    const TRY: &str = "SELECT pg_try_advisory_lock(1718511987, 66) AS locked";
    let begun = Instant::now();
    loop {
        let row = sqlx::raw_sql(TRY).fetch_one(connection.raw()).await;
        if row.and_then(|row| row.try_get("locked")).map_err(fitness::unanswered)? {
            return Ok(());
        }
        if begun.elapsed() > MIGRATION_PATIENCE {
            tracing::warn!(
                "another session holds the advisory lock of migrations; migrating without it"
            );
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn run_migrations(connection: &mut Connection) -> Result<(), MigrateError> {
    for mut part in MIGRATIONS.parts() {
        // It would wait for an advisory lock, which any role of the database can hold for ever.
        part.set_locking(false);
        // `run` would do the same, but its future is not `Send` for a borrowed connection.
        part.run_direct(None, connection.raw(), false).await?;
    }
    Ok(())
}

/// Two that give the same rights at once may be in each other's way: Postgres refuses one of them.
async fn give_rights(connection: &mut Connection) -> Result<Rights, StoreError> {
    let mut rivals = Rivals::default();
    loop {
        match roles::give_rights(connection).await {
            Err(StoreError::Unfit(_)) if rivals.may_be_at_work(0).await => {}
            given => return given,
        }
    }
}

fn migration_failed(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) => explain(error, ""),
        MigrateError::ExecuteMigration(error, version) => {
            explain(error, &format!("{version:04}: "))
        }
        other => migrations::failed(other),
    }
}

fn explain(error: sqlx::Error, migration: &str) -> StoreError {
    match fitness::unanswered(error) {
        StoreError::Unfit(reason) => migrations::failed(format!("{migration}{reason}")),
        other => other,
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn connect(&self) -> Result<Box<dyn Session>, StoreError> {
        Ok(Box::new(PostgresSession::new(self.connector.connect().await?)))
    }

    async fn connect_to_read_keys(&self) -> Result<Box<dyn Session>, StoreError> {
        let connection = self.connector.connect_for_batches(Patience::Long).await?;
        Ok(Box::new(PostgresSession::new(connection)))
    }

    async fn connect_impatiently(&self) -> Result<Box<dyn Session>, StoreError> {
        let connection = self.connector.connect_for_batches(Patience::Short).await?;
        Ok(Box::new(PostgresSession::new(connection)))
    }

    async fn connect_lock_table(&self) -> Result<Box<dyn LockTable>, StoreError> {
        Ok(Box::new(PostgresLockTable::new(self.connect_settled().await?)))
    }

    /// Before the floor has risen too: how far it has to rise may be found out by way of this.
    async fn connect_memory(&self) -> Result<Box<dyn Memory>, StoreError> {
        let mut connection = self.connector.connect().await?;
        within(PING_DEADLINE, fitness::ping(&mut connection)).await.map_err(surely)?;
        Ok(Box::new(PostgresMemory::new(connection)))
    }

    async fn connect_audit(&self) -> Result<Box<dyn Audit>, StoreError> {
        Ok(Box::new(PostgresAudit::new(self.connect_settled().await?)))
    }

    async fn listen_to_locks(&self) -> Result<Option<Box<dyn LockNews>>, StoreError> {
        let Some((listener, opened_on)) = self.connector.listen().await? else { return Ok(None) };
        Ok(Some(Box::new(PostgresLockNews::new(listener, opened_on).await?)))
    }

    async fn check(&self) -> Result<(), StoreError> {
        fitness::check(&mut self.connector.connect_unidentified().await?).await
    }

    async fn check_rights(&self, keeps_rejections: bool) -> Result<(), StoreError> {
        let mut connection = self.connector.connect_unidentified().await?;
        fitness::check_rights(&mut connection, keeps_rejections).await
    }

    async fn examine(&self, plan: Plan) -> Vec<Finding> {
        examination::examine(&self.connector, plan).await
    }

    async fn examine_takeover(&self) -> Option<Finding> {
        examination::examine_takeover(&self.connector).await
    }

    async fn tokens(&self) -> Result<Tokens, StoreError> {
        tokens::tokens(&mut self.connector.connect_unidentified().await?).await
    }

    async fn owning_authority(&self) -> Result<Option<OwningAuthority>, StoreError> {
        owning_authority::read(&mut self.connector.connect_to_ask().await?).await
    }

    async fn claim_authority(
        &self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError> {
        owning_authority::claim(&mut self.connector.connect_unidentified().await?, wanted).await
    }

    async fn move_authority(
        &self,
        to: &OwningAuthority,
        seen: Option<&Sighting>,
    ) -> Result<i64, StoreError> {
        owning_authority::move_to(&mut self.connector.connect().await?, to, seen).await
    }

    async fn wait_for_standbys(&self) -> Result<(), StoreError> {
        let mut connection = self.connector.connect().await?;
        within(DEADLINE, connection.wait_for_standbys()).await
    }

    async fn schema(&self) -> Result<Schema, StoreError> {
        schema(&mut self.connector.connect_unidentified().await?).await
    }

    async fn migrate(&self) -> Result<Migrated, StoreError> {
        let mut connection = self.connect_to_migrate().await?;
        match schema(&mut connection).await? {
            // A newer fencepost has migrated it, and has given rights that this one does not know.
            Schema::Ahead => {
                return Ok(Migrated { applied: Vec::new(), rights: Rights::Untouched });
            }
            Schema::TooNew => return Err(StoreError::Unfit(fitness::TOO_NEW.into())),
            Schema::Current => {
                let rights = give_rights(&mut connection).await?;
                return Ok(Migrated { applied: Vec::new(), rights });
            }
            Schema::Behind => take_turns(&mut connection).await?,
        }
        let (before, _) = find_migrations(&mut connection).await.map_err(fitness::unanswered)?;
        let mut rivals = Rivals::default();
        while let Err(error) = run_migrations(&mut connection).await {
            let now = find_migrations(&mut connection).await.map_err(fitness::unanswered)?;
            match MIGRATIONS.schema(&now.0, now.1) {
                Schema::Current => break,
                Schema::Ahead => {
                    return Ok(Migrated { applied: Vec::new(), rights: Rights::Untouched });
                }
                Schema::Behind | Schema::TooNew => {}
            }
            if !rivals.may_be_at_work(now.0.iter().map(Vec::len).sum()).await {
                return Err(migration_failed(error));
            }
        }
        let rights = give_rights(&mut connection).await?;
        Ok(Migrated { applied: MIGRATIONS.missing(&before), rights })
    }

    async fn migration_obstacle(&self) -> Result<Option<String>, StoreError> {
        let mut connection = self.connect_to_migrate().await?;
        let behind = schema(&mut connection).await? == Schema::Behind;
        roles::obstacle(&mut connection, behind).await
    }

    async fn floor(&self, reading: Reading) -> Result<FloorState, StoreError> {
        floor::state(&mut self.connector.connect().await?, reading).await
    }

    async fn raise_floor(&self, to: i64, issues: bool) -> Result<i64, StoreError> {
        floor::raise(&mut self.connector.connect().await?, to, issues).await
    }

    async fn plan_compaction(&self, age: Duration, bound: i64) -> Result<Compacted, StoreError> {
        compact::plan(&mut self.connector.connect().await?, age, bound).await
    }

    async fn compact(
        &self,
        age: Duration,
        bound: i64,
        progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
    ) -> Result<Compacted, StoreError> {
        compact::compact(&mut self.connector.connect().await?, age, bound, progress).await
    }

    fn settle_with(&self, takeover: Arc<dyn Takeover>) {
        let _ = self.takeover.set(takeover);
    }

    async fn look_for_takeover(&self) {
        self.connector.look_in_time().await;
    }

    async fn watch_for_takeover(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if self.connector.servers().take_use() {
                self.connector.look().await;
            }
        }
    }

    fn writers(&self) -> usize {
        self.writers
    }

    fn lock_tables(&self) -> usize {
        4
    }

    /// They share a statement, a round trip and a commit.
    fn gathers(&self) -> usize {
        512
    }
}
