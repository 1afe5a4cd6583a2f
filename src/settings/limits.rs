//! How much may be asked for at a time: by each identity, and by all together.

use clap::Args;

use super::{
    LIMITS,
    values::{self, Size},
};
use crate::limits::Bounds;

#[derive(Args, Clone, Debug)]
pub struct LimitSettings {
    /// Largest head of a request: its line and its headers
    #[arg(
        long,
        env = "FENCEPOST_MAX_HEAD",
        value_name = "SIZE",
        default_value = "128KiB",
        value_parser = values::head_size,
        help_heading = LIMITS
    )]
    pub max_head: Size,

    /// Requests that may arrive in a second; beyond that they are turned away with 429. 0 for any number
    #[arg(
        long,
        env = "FENCEPOST_MAX_REQUESTS_PER_SECOND",
        value_name = "N",
        default_value = "0",
        help_heading = LIMITS
    )]
    pub max_requests_per_second: u32,

    /// Locks that may be held or asked for through this fencepost at once; beyond that 429
    #[arg(
        long,
        env = "FENCEPOST_MAX_LOCKS",
        value_name = "N",
        default_value = "100000",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000),
        help_heading = LIMITS
    )]
    pub max_locks: u32,

    /// Bytes of bodies, of requests and of answers, that may be in memory at once; beyond that 429. 0
    /// for any number
    #[arg(
        long,
        env = "FENCEPOST_MAX_BODIES",
        value_name = "SIZE",
        default_value = "64MiB",
        help_heading = LIMITS
    )]
    pub max_bodies: Size,

    /// The same as --max-requests-per-second, for each identity that has proved who it is
    #[arg(
        long,
        env = "FENCEPOST_IDENTITY_REQUESTS_PER_SECOND",
        value_name = "N",
        default_value = "0",
        help_heading = LIMITS
    )]
    pub identity_requests_per_second: u32,

    /// The same as --max-connections, for each identity. 0 for any number
    #[arg(
        long,
        env = "FENCEPOST_IDENTITY_CONNECTIONS",
        value_name = "N",
        default_value = "1024",
        value_parser = clap::value_parser!(u32).range(0..=1_000_000),
        help_heading = LIMITS
    )]
    pub identity_connections: u32,

    /// The same as --max-locks, for each identity. 0 for any number
    #[arg(
        long,
        env = "FENCEPOST_IDENTITY_LOCKS",
        value_name = "N",
        default_value = "10000",
        value_parser = clap::value_parser!(u32).range(0..=10_000_000),
        help_heading = LIMITS
    )]
    pub identity_locks: u32,

    /// The same as --max-waiters, for each identity. 0 for any number
    #[arg(
        long,
        env = "FENCEPOST_IDENTITY_WAITERS",
        value_name = "N",
        default_value = "2500",
        value_parser = clap::value_parser!(u32).range(0..=1_000_000),
        help_heading = LIMITS
    )]
    pub identity_waiters: u32,

    /// The same as --max-streams, for each identity. 0 for any number
    #[arg(
        long,
        env = "FENCEPOST_IDENTITY_STREAMS",
        value_name = "N",
        default_value = "2500",
        value_parser = clap::value_parser!(u32).range(0..=1_000_000),
        help_heading = LIMITS
    )]
    pub identity_streams: u32,

    /// The same as --max-bodies, for each identity. 0 for any number
    #[arg(
        long,
        env = "FENCEPOST_IDENTITY_BODIES",
        value_name = "SIZE",
        default_value = "32MiB",
        help_heading = LIMITS
    )]
    pub identity_bodies: Size,
}

impl LimitSettings {
    /// The most that there may be at a time, of each identity.
    pub fn for_each_identity(&self) -> Bounds {
        Bounds {
            requests_per_second: self.identity_requests_per_second,
            connections: self.identity_connections,
            locks: self.identity_locks,
            waiters: self.identity_waiters,
            streams: self.identity_streams,
            bodies: self.identity_bodies.0.as_u64(),
        }
    }
}
