//! An empty store of either kind, for tests that must hold on both.

use std::sync::Arc;

use fencepost::store::{Store, postgres::PostgresStore, sqlite::SqliteStore};
use sqlx::{AssertSqlSafe, ConnectOptions, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use super::{PATIENCE, postgres};

pub struct TestStore {
    /// On Postgres that of a superuser, who may do to it whatever a test likes.
    pub url: String,
    directory: Option<TempDir>,
}

impl TestStore {
    pub fn sqlite() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite:{}", directory.path().join("test.db").display());
        Self { url, directory: Some(directory) }
    }

    pub async fn postgres() -> Self {
        Self { url: postgres::database().await, directory: None }
    }

    pub fn is_postgres(&self) -> bool {
        self.directory.is_none()
    }

    /// The address to serve it at, with its schema in place: on Postgres that of a role which may do
    /// no more than it must.
    pub async fn to_serve(&self) -> String {
        if self.is_postgres() { postgres::to_serve(&self.url).await } else { self.url.clone() }
    }

    /// The store itself, with its schema in place, for tests below HTTP.
    pub async fn open(&self) -> Arc<dyn Store> {
        Self::open_at(&self.to_serve().await).await
    }

    /// The same, for those who do what a server may not.
    pub async fn open_as_owner(&self) -> Arc<dyn Store> {
        let url = self.to_serve().await;
        Self::open_at(&url.replace("fencepost_serve@", "fencepost_owner@")).await
    }

    async fn open_at(url: &str) -> Arc<dyn Store> {
        match url.strip_prefix("sqlite:") {
            None => Arc::new(PostgresStore::new(url, 4).expect("a valid URL")),
            Some(path) => {
                let store = SqliteStore::new(path.into());
                store.migrate().await.expect("migrations run");
                Arc::new(store)
            }
        }
    }
}

impl TestStore {
    /// Raw SQL, behind the back of every fencepost. The tables have the same names in both stores.
    pub async fn execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            let options = SqliteConnectOptions::new().filename(path);
            let mut connection =
                options.busy_timeout(PATIENCE).disable_statement_logging().connect().await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
        } else {
            let sql = format!("SET search_path = fencepost; {sql}");
            postgres::try_execute(&self.url, &sql).await?;
        }
        Ok(())
    }
}

/// Runs a test on SQLite and on Postgres: two tests, named after the store.
macro_rules! on_each_store {
    ($(#[doc = $doc:expr])* async fn $name:ident($store:ident: TestStore) $body:block) => {
        $(#[doc = $doc])*
        mod $name {
            use super::*;

            async fn check($store: $crate::harness::store::TestStore) $body

            #[tokio::test]
            async fn sqlite() {
                check($crate::harness::store::TestStore::sqlite()).await;
            }

            #[tokio::test]
            async fn postgres() {
                check($crate::harness::store::TestStore::postgres().await).await;
            }
        }
    };
}
pub(crate) use on_each_store;
