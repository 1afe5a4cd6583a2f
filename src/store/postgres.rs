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
mod gathered;
mod guards;
mod lock_news;
mod lock_table;
mod locked;
mod look;
mod memory;
mod newcomers;
pub mod notices;
pub mod plan;
mod reads;
mod rows;
mod runs;
mod session;
mod single;
mod succession;
mod tokens;

use std::{path::PathBuf, str::FromStr, time::Duration};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Row,
    migrate::{AppliedMigration, MigrateError, Migrator},
    postgres::PgConnectOptions,
};

use self::{
    audit::PostgresAudit,
    connection::{Connection, Connector, Patience},
    lock_news::PostgresLockNews,
    lock_table::PostgresLockTable,
    memory::PostgresMemory,
    session::{PING_DEADLINE, PostgresSession, surely, within},
};
use super::{
    Audit, Compacted, LockNews, LockTable, Memory, Plan, Schema, Session, Store, StoreError,
    Tokens, schema_of,
};
use crate::finding::Finding;

/// `sqlx` knows the table by this name, and so does every fencepost: never rename it.
const MIGRATIONS_TABLE: &str = "fencepost._sqlx_migrations";

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

pub struct PostgresStore {
    connector: Connector,
    writers: usize,
}

impl PostgresStore {
    /// `url` as libpq knows it: `postgres://user:password@host:port/database?sslmode=verify-full`.
    pub fn new(url: &str, writers: usize) -> Result<Self, String> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| error.to_string().replace("error with configuration: ", ""))?
            .disable_statement_logging();
        Ok(Self { connector: Connector::new(options), writers })
    }

    /// The file is read anew for every connection: a password that has changed is used by the next.
    #[must_use]
    pub fn with_password_file(mut self, path: Option<PathBuf>) -> Self {
        self.connector = self.connector.with_password_file(path);
        self
    }
}

/// The migrations, kept out of the application's own `_sqlx_migrations`.
fn migrator() -> Migrator {
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().cloned().collect());
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrator.create_schema("fencepost");
    migrator
}

async fn schema(connection: &mut Connection) -> Result<Schema, StoreError> {
    connection.begin_if_pooled().await?;
    let applied = applied_migrations(connection).await.map_err(fitness::unanswered);
    connection.end_if_pooled(&applied).await?;
    Ok(schema_of(&MIGRATIONS, &applied?))
}

/// As `sqlx` would list them, but without the named statement that it leaves behind: in a pooler
/// that would be in the way of the next connection.
async fn applied_migrations(
    connection: &mut Connection,
) -> Result<Vec<AppliedMigration>, sqlx::Error> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(MIGRATIONS_TABLE)
        .persistent(connection.keeps_statements())
        .fetch_one(connection.raw())
        .await?;
    if !exists {
        return Ok(Vec::new());
    }
    let rows = sqlx::query("SELECT version, checksum FROM fencepost._sqlx_migrations")
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

/// What is new in the schema is also new to whoever serves, where the owner and the role that serves
/// are those of the script.
async fn give_rights(connection: &mut Connection) -> Result<(), StoreError> {
    const ROLES: &str = include_str!("../../migrations/roles.sql");
    const APPLIES: &str = "SELECT current_user = 'fencepost_owner'
        AND EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencepost_serve') AS applies";
    let row = sqlx::raw_sql(APPLIES).fetch_one(connection.raw()).await;
    if row.and_then(|row| row.try_get("applies")).map_err(fitness::unanswered)? {
        sqlx::raw_sql(ROLES).execute(connection.raw()).await.map_err(fitness::unanswered)?;
    }
    Ok(())
}

fn migration_failed(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            fitness::unanswered(error)
        }
        other => StoreError::Unfit(format!("the migration failed: {other}")),
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
        Ok(Box::new(PostgresLockTable::new(self.connector.connect().await?)))
    }

    async fn connect_memory(&self) -> Result<Box<dyn Memory>, StoreError> {
        let mut connection = self.connector.connect().await?;
        within(PING_DEADLINE, fitness::ping(&mut connection)).await.map_err(surely)?;
        Ok(Box::new(PostgresMemory::new(connection)))
    }

    async fn connect_audit(&self) -> Result<Box<dyn Audit>, StoreError> {
        let mut connection = self.connector.connect().await?;
        within(PING_DEADLINE, fitness::ping(&mut connection)).await.map_err(surely)?;
        Ok(Box::new(PostgresAudit::new(connection)))
    }

    async fn listen_to_locks(&self) -> Result<Option<Box<dyn LockNews>>, StoreError> {
        let Some(listener) = self.connector.listen().await? else { return Ok(None) };
        Ok(Some(Box::new(PostgresLockNews::new(listener).await?)))
    }

    async fn check(&self) -> Result<(), StoreError> {
        fitness::check(&mut self.connector.connect().await?).await
    }

    async fn examine(&self, plan: Plan) -> Vec<Finding> {
        examination::examine(&self.connector, plan).await
    }

    async fn tokens(&self) -> Result<Tokens, StoreError> {
        tokens::tokens(&mut self.connector.connect().await?).await
    }

    async fn schema(&self) -> Result<Schema, StoreError> {
        schema(&mut self.connector.connect().await?).await
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.connector.connect().await?;
        if connection.is_pooled() {
            return Err(StoreError::Unfit(
                "migrations need a direct connection to Postgres, and this one goes through a \
                 transaction pooler; give --store the database's own address"
                    .into(),
            ));
        }
        fitness::check_server(&mut connection).await?;
        if schema(&mut connection).await? == Schema::Ahead {
            return Err(StoreError::Unfit(fitness::AHEAD.into()));
        }
        // `run` would do the same, but its future is not `Send` for a borrowed connection.
        migrator().run_direct(None, connection.raw(), false).await.map_err(migration_failed)?;
        give_rights(&mut connection).await
    }

    async fn compact(
        &self,
        age: Duration,
        progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
    ) -> Result<Compacted, StoreError> {
        compact::compact(&mut self.connector.connect().await?, age, progress).await
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
