//! Values as people write them.

use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

use bytesize::ByteSize;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// Which tokens above the mark are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrustLevel {
    /// Any token
    Open,
    /// One that the authority can have issued by now
    Bounded,
    /// Only the very token that was granted for the key or its scope
    Granted,
}

impl TrustLevel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Bounded => "bounded",
            Self::Granted => "granted",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere
    Auto,
    Text,
    Json,
}

/// A duration as people write it: `200ms`, `30s`, `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Far beyond it, adding a duration to a point in time overflows.
        const LONGEST: Duration = Duration::from_hours(24 * 365 * 100);
        match humantime::parse_duration(text) {
            Ok(time) if time <= LONGEST => Ok(Self(time)),
            Ok(_) => Err("longer than a hundred years".into()),
            Err(_) => Err("not a duration; write it as 200ms, 30s or 5m".into()),
        }
    }
}

/// For what cannot be done in no time at all.
pub fn some_time(text: &str) -> Result<Time, String> {
    match text.parse()? {
        Time(Duration::ZERO) => Err("must be longer than nothing".into()),
        time => Ok(time),
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// A number of bytes as people write it: `1MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub ByteSize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The error of the parser below speaks of floats.
        text.parse().map(Self).map_err(|_| "not a size; write it as 512KiB or 1MiB".into())
    }
}

/// Below that, not even an ordinary request fits in.
pub fn head_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if (8 << 10..=1 << 30).contains(&size.0.as_u64()) {
        Ok(size)
    } else {
        Err("from 8KiB to 1GiB".into())
    }
}

/// Names of hosts, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(pub Vec<String>);

impl FromStr for HostNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |name: &&str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        match names.iter().find(|name| !is_name(name)) {
            None => Ok(Self(names.into_iter().map(str::to_owned).collect())),
            Some(name) => Err(format!("{name:?} is not the name of a host; leave out the port")),
        }
    }
}

impl fmt::Display for HostNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.join(",").fmt(f)
    }
}

pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write it as 127.0.0.1:7420 or [::1]:7420; names are not looked up".into())
}

/// Looked at here, so that a mistake is found by `config` and told like any other.
pub fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.into())
}

#[cfg(test)]
mod fuzz;
