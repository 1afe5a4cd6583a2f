//! Where the database is, and how to open it.

use std::{fs::File, path::PathBuf, sync::Arc};

use clap::Args;
use url::Url;

use super::{STORE, Source, StoreUrl, source};
use crate::store::{Store, postgres::PostgresStore, sqlite::SqliteStore};

/// Every command that opens a database takes these.
#[derive(Args, Clone, Debug)]
pub struct StoreSettings {
    /// TOML file with settings, such as `max-body = "4MiB"`; `fencepost config` prints one
    #[arg(long, env = "FENCEPOST_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Database to use: `sqlite:PATH` or `postgres://USER@HOST/DATABASE`
    #[arg(
        long,
        env = "FENCEPOST_STORE",
        value_name = "URL",
        default_value = "sqlite:fencepost.db",
        help_heading = STORE
    )]
    pub store: StoreUrl,

    /// File that holds the value of --store, to keep a password out of the process list
    #[arg(long, env = "FENCEPOST_STORE_FILE", value_name = "FILE", help_heading = STORE)]
    pub store_file: Option<PathBuf>,

    /// File that holds the password of --store, where that has none. It is read anew for every
    /// connection, so that it can be changed without a restart
    #[arg(long, env = "FENCEPOST_STORE_PASSWORD_FILE", value_name = "FILE", help_heading = STORE)]
    pub store_password_file: Option<PathBuf>,

    /// Connections for writing to Postgres; more of them make smaller batches. One more reads for each
    /// thread, and one lists
    #[arg(
        long,
        env = "FENCEPOST_STORE_CONNECTIONS",
        value_name = "N",
        default_value = "2",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        help_heading = STORE
    )]
    pub store_connections: u16,

    /// Whether --store was left at its default.
    #[arg(skip)]
    pub is_default: bool,
}

impl StoreSettings {
    pub fn choose(&mut self, source: impl Fn(&str) -> Source) -> Result<(), String> {
        source::choose("store", &mut self.store_file, &source)?;
        self.is_default = self.store_file.is_none() && source("store") == Source::Default;
        if self.store_file.is_none() && self.store.has_password() {
            source::refuse_as_argument("store", source("store"))?;
        }
        Ok(())
    }

    /// The store these settings describe. The error says what to correct.
    pub fn open(&self) -> Result<(StoreUrl, Arc<dyn Store>), String> {
        let url = match &self.store_file {
            None => self.store.clone(),
            Some(path) => {
                StoreUrl::from_file(path).map_err(|error| format!("--store-file {error}"))?
            }
        };
        let password_file = self.password_file(&url)?;
        let store: Arc<dyn Store> = match &url {
            StoreUrl::Sqlite(path) => Arc::new(SqliteStore::new(path.clone())),
            StoreUrl::Postgres(address) => {
                check_tls_files(address)?;
                let store = PostgresStore::new(address.as_str(), self.store_connections.into());
                let store = store.map_err(|error| format!("the store's address: {error}"))?;
                Arc::new(store.with_password_file(password_file))
            }
        };
        Ok((url, store))
    }

    /// One that can be read now. Whether it can be later is seen when it is needed.
    fn password_file(&self, url: &StoreUrl) -> Result<Option<PathBuf>, String> {
        let Some(path) = &self.store_password_file else { return Ok(None) };
        if matches!(url, StoreUrl::Sqlite(_)) {
            return Err("--store-password-file is for Postgres; a file needs no password".into());
        }
        if url.has_password() {
            return Err("give the password either in --store or by --store-password-file".into());
        }
        source::read_secret(path).map_err(|error| format!("--store-password-file {error}"))?;
        Ok(Some(path.clone()))
    }
}

/// The driver opens them with each connection, and its error names no file.
fn check_tls_files(address: &Url) -> Result<(), String> {
    for (name, path) in address.query_pairs() {
        if matches!(name.as_ref(), "sslrootcert" | "sslcert" | "sslkey") {
            File::open(path.as_ref())
                .map_err(|error| format!("the file of {name} in --store, {path}: {error}"))?;
        }
    }
    Ok(())
}
