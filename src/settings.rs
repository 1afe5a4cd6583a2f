//! Every setting, once: a flag, `FENCEPOST_<FLAG>` in the environment, a key of the TOML file.
//!
//! Flags win over the environment, which wins over the file. clap knows the first two; the file's
//! values are handed to it as defaults ([`mod@file`]), so one parser checks all three alike.

pub mod file;
mod source;
mod store_url;
mod values;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::{Args, builder::BoolishValueParser};

pub use self::{
    source::Source,
    store_url::StoreUrl,
    values::{Authority, LogFormat, Size, Time, Trust},
};
use crate::{
    store::{Store, postgres::PostgresStore, sqlite::SqliteStore},
    write::Rule,
};

/// How `--help` groups them.
const STORE: &str = "Store";
const ADDRESSES: &str = "Addresses";
const FENCE: &str = "Fence";
const LIMITS: &str = "Limits";
const LOG: &str = "Log";

/// Where the database is. Every command that opens one takes these.
#[derive(Args, Clone, Debug)]
pub struct StoreSettings {
    /// TOML file with settings, such as `max-body = "4MiB"`; `fencepost config` prints one
    #[arg(long, env = "FENCEPOST_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Database to use: `sqlite:PATH` or `postgres://USER:PASSWORD@HOST/DATABASE`
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

    /// Connections for writing to Postgres; a few more are for reading
    #[arg(
        long,
        env = "FENCEPOST_STORE_CONNECTIONS",
        value_name = "N",
        default_value = "12",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        help_heading = STORE
    )]
    pub store_connections: u16,
}

impl StoreSettings {
    /// `--store` and `--store-file` say the same thing in two ways. As everywhere, a flag wins over
    /// the environment, which wins over the file; said twice in one place, neither is to be
    /// trusted.
    pub fn choose(&mut self, source: impl Fn(&str) -> Source) -> Result<(), String> {
        if self.store_file.is_none() {
            return Ok(());
        }
        let (direct, by_file) = (source("store"), source("store_file"));
        if direct == by_file {
            return Err("give either --store or --store-file, not both".into());
        }
        if direct > by_file {
            self.store_file = None;
        }
        Ok(())
    }

    /// The store these settings describe. The error says what to mend.
    pub fn open(&self) -> Result<(StoreUrl, Arc<dyn Store>), String> {
        let url = match &self.store_file {
            None => self.store.clone(),
            Some(path) => {
                StoreUrl::from_file(path).map_err(|error| format!("--store-file {error}"))?
            }
        };
        let store: Arc<dyn Store> = match &url {
            StoreUrl::Sqlite(path) => Arc::new(SqliteStore::new(path.clone())),
            StoreUrl::Postgres(address) => {
                let store = PostgresStore::new(address.as_str(), self.store_connections.into());
                Arc::new(store.map_err(|error| format!("the store's address: {error}"))?)
            }
        };
        Ok((url, store))
    }
}

/// Everything that `fencepost serve` can be told.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    #[command(flatten)]
    pub store: StoreSettings,

    /// Bring a Postgres database to this version's schema first (SQLite always is)
    #[arg(
        long,
        env = "FENCEPOST_MIGRATE",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        help_heading = STORE
    )]
    pub migrate: bool,

    /// Address of the public API; `0.0.0.0:7420` to be reached from elsewhere
    #[arg(
        long,
        env = "FENCEPOST_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:7420",
        value_parser = values::address,
        help_heading = ADDRESSES
    )]
    pub listen: SocketAddr,

    /// Address of the probes: /livez, /readyz, /startupz
    #[arg(
        long,
        env = "FENCEPOST_ADMIN_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:7421",
        value_parser = values::address,
        help_heading = ADDRESSES
    )]
    pub admin_listen: SocketAddr,

    /// Where tokens come from. Only `none` in this version: from a lock service of your own
    #[arg(
        long,
        env = "FENCEPOST_AUTHORITY",
        value_name = "AUTHORITY",
        default_value = "none",
        help_heading = FENCE
    )]
    pub authority: Authority,

    /// Which tokens above the mark are believed. Only `open` in this version: any
    #[arg(
        long,
        env = "FENCEPOST_TRUST",
        value_name = "TRUST",
        default_value = "open",
        help_heading = FENCE
    )]
    pub trust: Trust,

    /// May a token that equals the mark, with no seq, write again? A request can say otherwise
    #[arg(
        long,
        env = "FENCEPOST_RULE",
        value_name = "RULE",
        default_value = "at-least",
        help_heading = FENCE
    )]
    pub rule: Rule,

    /// Largest request body
    #[arg(
        long,
        env = "FENCEPOST_MAX_BODY",
        value_name = "SIZE",
        default_value = "1MiB",
        help_heading = LIMITS
    )]
    pub max_body: Size,

    /// Memory for the cache of marks, which refuses stale writes without asking the database
    #[arg(
        long,
        env = "FENCEPOST_MARK_CACHE",
        value_name = "SIZE",
        default_value = "16MiB",
        help_heading = LIMITS
    )]
    pub mark_cache: Size,

    /// Requests that may wait for one store connection; beyond that they are turned away with 503
    #[arg(
        long,
        env = "FENCEPOST_QUEUE",
        value_name = "N",
        default_value = "1024",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = LIMITS
    )]
    pub queue: u32,

    /// Clients' connections that may be open at once; beyond that they are turned away with 503
    #[arg(
        long,
        env = "FENCEPOST_MAX_CONNECTIONS",
        value_name = "N",
        default_value = "4096",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = LIMITS
    )]
    pub max_connections: u32,

    /// How long a request's head may take to arrive, and a connection may stay idle
    #[arg(
        long,
        env = "FENCEPOST_HEADER_TIMEOUT",
        value_name = "TIME",
        default_value = "30s",
        value_parser = values::some_time,
        help_heading = LIMITS
    )]
    pub header_timeout: Time,

    /// How long a request's body may take to arrive
    #[arg(
        long,
        env = "FENCEPOST_BODY_TIMEOUT",
        value_name = "TIME",
        default_value = "30s",
        value_parser = values::some_time,
        help_heading = LIMITS
    )]
    pub body_timeout: Time,

    /// How long a client may take none of its answer
    #[arg(
        long,
        env = "FENCEPOST_WRITE_TIMEOUT",
        value_name = "TIME",
        default_value = "30s",
        value_parser = values::some_time,
        help_heading = LIMITS
    )]
    pub write_timeout: Time,

    /// On SIGTERM: how long to go on serving and to finish what is in flight
    #[arg(
        long,
        env = "FENCEPOST_DRAIN",
        value_name = "TIME",
        default_value = "10s",
        help_heading = LIMITS
    )]
    pub drain: Time,

    /// How to write the log, which goes to standard error
    #[arg(
        long,
        env = "FENCEPOST_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "auto",
        help_heading = LOG
    )]
    pub log_format: LogFormat,

    /// What to log: error, warn, info, debug, trace, or a filter such as `info,fencepost=debug`
    #[arg(
        long,
        env = "FENCEPOST_LOG",
        value_name = "FILTER",
        default_value = "info",
        value_parser = values::log_filter,
        help_heading = LOG
    )]
    pub log: String,
}
