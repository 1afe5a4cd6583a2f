//! Every setting, once: a flag, `FENCEPOST_<FLAG>` in the environment, a key of the TOML file.
//!
//! Flags win over the environment, which wins over the file. clap knows the first two; the file's
//! values are handed to it as defaults ([`mod@file`]), so one parser checks all three alike.

pub mod access;
mod authority;
mod authority_url;
mod etcd;
pub mod file;
pub mod jwt;
mod limits;
mod rejections;
mod source;
mod store;
mod store_url;
mod traces;
mod values;

use std::{net::SocketAddr, sync::Arc, thread};

use clap::{Args, builder::BoolishValueParser};

pub use self::{
    access::{AccessSettings, Exposure},
    authority::AuthoritySettings,
    authority_url::AuthorityUrl,
    etcd::EtcdSettings,
    limits::LimitSettings,
    rejections::RejectionSettings,
    source::{Source, read_secret},
    store::StoreSettings,
    store_url::StoreUrl,
    traces::{CollectorUrl, TraceSettings},
    values::{HostNames, LogFormat, Size, Time, TrustLevel, some_time},
};
use crate::{
    authority::{Authority, Grantees, etcd::EtcdAuthority, store::StoreAuthority},
    engine::Trust,
    limits::Bounds,
    store::{OwningAuthority, Store},
    write::Rule,
};

/// How `--help` groups them.
const STORE: &str = "Store";
const ADDRESSES: &str = "Addresses";
const FENCE: &str = "Fence";
const LIMITS: &str = "Limits";
const TRACES: &str = "Traces";
const LOG: &str = "Log";

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

    /// Address of the public API; `0.0.0.0:7420` to be reached from elsewhere, which takes
    /// authentication and TLS
    #[arg(
        long,
        env = "FENCEPOST_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:7420",
        value_parser = values::address,
        help_heading = ADDRESSES
    )]
    pub listen: SocketAddr,

    /// Address of the page, the probes and the metrics: /, /livez, /readyz, /startupz, /metrics
    #[arg(
        long,
        env = "FENCEPOST_ADMIN_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:7421",
        value_parser = values::address,
        help_heading = ADDRESSES
    )]
    pub admin_listen: SocketAddr,

    /// Names under which the page may be asked for, besides IP addresses and localhost: `a.example,b.example`
    #[arg(long, env = "FENCEPOST_ADMIN_HOSTS", value_name = "NAMES", help_heading = ADDRESSES)]
    pub admin_hosts: Option<HostNames>,

    #[command(flatten)]
    pub access: AccessSettings,

    #[command(flatten)]
    pub authority: AuthoritySettings,

    /// Which tokens above the mark are believed; by default `bounded`, and `open` where there is no
    /// authority
    #[arg(long, env = "FENCEPOST_TRUST", value_name = "TRUST", help_heading = FENCE)]
    pub trust: Option<TrustLevel>,

    /// May a token that equals the mark, with no seq, write again? A request can say otherwise
    #[arg(
        long,
        env = "FENCEPOST_RULE",
        value_name = "RULE",
        default_value = "at-least",
        help_heading = FENCE
    )]
    pub rule: Rule,

    #[command(flatten)]
    pub etcd: EtcdSettings,

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

    /// Threads that serve; 0 for half as many as there are processors, but both of two. What runs beside
    /// it, an application or the database, needs some too
    #[arg(
        long,
        env = "FENCEPOST_THREADS",
        value_name = "N",
        default_value = "0",
        value_parser = clap::value_parser!(u16).range(0..=1024),
        help_heading = LIMITS
    )]
    pub threads: u16,

    /// Clients' connections that may be open at once; beyond that they are turned away with 429
    #[arg(
        long,
        env = "FENCEPOST_MAX_CONNECTIONS",
        value_name = "N",
        default_value = "4096",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = LIMITS
    )]
    pub max_connections: u32,

    /// Requests that may wait for a lock at once; beyond that they are turned away with 429
    #[arg(
        long,
        env = "FENCEPOST_MAX_WAITERS",
        value_name = "N",
        default_value = "10000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = LIMITS
    )]
    pub max_waiters: u32,

    /// Connections that may hold or watch a lock at once; beyond that they are turned away with 429
    #[arg(
        long,
        env = "FENCEPOST_MAX_STREAMS",
        value_name = "N",
        default_value = "10000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = LIMITS
    )]
    pub max_streams: u32,

    #[command(flatten)]
    pub limits: LimitSettings,

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

    #[command(flatten)]
    pub rejections: RejectionSettings,

    #[command(flatten)]
    pub traces: TraceSettings,

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

impl Settings {
    /// As [`StoreSettings::choose`], for all that can be given in a file.
    pub fn choose(&mut self, source: impl Fn(&str) -> Source) -> Result<(), String> {
        self.authority.choose(&source)?;
        self.etcd.choose(source)
    }

    /// How many threads serve.
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => threads_by_default(),
            some => some.into(),
        }
    }

    /// The most that there may be at a time, of all together.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            requests_per_second: self.limits.max_requests_per_second,
            connections: self.max_connections,
            locks: self.limits.max_locks,
            waiters: self.max_waiters,
            streams: self.max_streams,
            bodies: self.limits.max_bodies.0.as_u64(),
        }
    }

    /// What `--authority` or `--authority-file` says.
    pub fn authority_url(&self) -> Result<AuthorityUrl, String> {
        self.authority.url()
    }

    /// How far clients are believed.
    pub fn trust_level(&self) -> Result<TrustLevel, String> {
        match (self.authority_url()?, self.trust) {
            (AuthorityUrl::None, Some(TrustLevel::Bounded | TrustLevel::Granted)) => Err(
                "--trust bounded and --trust granted need an --authority that knows which tokens \
                     were issued"
                    .into(),
            ),
            (AuthorityUrl::None, None) => Ok(TrustLevel::Open),
            (_, level) => Ok(level.unwrap_or(TrustLevel::Bounded)),
        }
    }

    /// The authority that a store must belong to, as far as it is known without asking it.
    pub fn owning_authority(&self) -> Result<OwningAuthority, String> {
        Ok(self.etcd.owning_authority(&self.authority_url()?))
    }

    /// The lock service these settings name, if any, and how far clients are believed. The error says what to mend. It starts tasks, so it needs a
    /// runtime around it.
    pub fn open_authority(&self, store: &Arc<dyn Store>) -> Result<LockService, String> {
        let authority: Option<Arc<dyn Authority>> = match &self.authority_url()? {
            AuthorityUrl::None => None,
            AuthorityUrl::Store => Some(Arc::new(StoreAuthority::new(store))),
            AuthorityUrl::Etcd(url) => {
                Some(Arc::new(EtcdAuthority::start(self.etcd.options(url)?, store)))
            }
        };
        let grantees = authority.as_ref().filter(|_| self.access.authenticates());
        let grantees = grantees.map(|authority| Arc::new(Grantees::new(authority.clone())));
        let trust = match (&authority, self.trust_level()?) {
            (Some(authority), TrustLevel::Bounded) => Trust::Bounded(authority.clone()),
            (Some(authority), TrustLevel::Granted) => {
                Trust::Granted(authority.clone(), grantees.clone())
            }
            (_, TrustLevel::Open) | (None, _) => Trust::Open,
        };
        Ok(LockService { authority, grantees, trust })
    }
}

/// Half of the processors, since what runs beside needs some too; but two where there are two. They take
/// nothing from each other (`threads.rs`), and which of them is awake is for the kernel to say.
pub fn threads_by_default() -> usize {
    thread::available_parallelism().map_or(1, |all| half_but_two(all.get()))
}

fn half_but_two(processors: usize) -> usize {
    processors.div_ceil(2).max(processors.min(2))
}

#[cfg(test)]
#[test]
fn half_of_the_processors_serve_but_two_where_there_are_two() {
    assert_eq!([1, 2, 3, 4, 5, 8, 64].map(half_but_two), [1, 2, 2, 2, 3, 4, 32]);
}

/// As [`Settings::open_authority`] has opened it.
pub struct LockService {
    pub authority: Option<Arc<dyn Authority>>,
    /// Whose the grants are, where that is known.
    pub grantees: Option<Arc<Grantees>>,
    pub trust: Trust,
}
