//! What a look at some part of the system has found: the words of `fencepost check`.
//!
//! Whoever knows a part (a store, an authority) examines it, without changing anything, and says
//! what it found in these words. How they are shown is the command's business.

use serde::{Deserialize, Serialize};

/// How much there is to worry about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grade {
    #[serde(rename = "ok")]
    Good,
    /// It works, but somebody should know.
    #[serde(rename = "warning")]
    Doubtful,
    /// It does not work, or is not safe.
    #[serde(rename = "failed")]
    Bad,
    /// It could not be asked.
    #[serde(rename = "unreachable")]
    Away,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub subject: Subject,
    pub grade: Grade,
    pub says: String,
    /// What to do about it, unless it is good.
    pub hint: Option<String>,
}

impl Finding {
    pub fn good(subject: Subject, says: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Good, says: says.into(), hint: None }
    }

    pub fn doubtful(subject: Subject, says: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Doubtful, says: says.into(), hint: Some(hint.into()) }
    }

    pub fn bad(subject: Subject, says: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Bad, says: says.into(), hint: Some(hint.into()) }
    }

    pub fn away(subject: Subject, says: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Away, says: says.into(), hint: Some(hint.into()) }
    }
}

/// What is looked at, in the order in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Settings,
    Password,
    Encryption,
    Trust,
    Exposure,
    Certificate,
    BearerTokens,
    JwtKeys,
    Policy,
    Store,
    Version,
    Encoding,
    Primary,
    Connections,
    Disk,
    Migrations,
    Tables,
    Sync,
    Commit,
    Standbys,
    Failover,
    Needed,
    Excess,
    Pooler,
    Authority,
    Owner,
    Members,
    EtcdVersion,
    Memory,
    Epoch,
    Tokens,
    Clock,
}

/// Where a subject is shown, and where to read about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub group: &'static str,
    pub name: &'static str,
    pub docs: &'static str,
}

impl Subject {
    pub const ALL: [Self; 32] = [
        Self::Settings,
        Self::Password,
        Self::Encryption,
        Self::Trust,
        Self::Exposure,
        Self::Certificate,
        Self::BearerTokens,
        Self::JwtKeys,
        Self::Policy,
        Self::Store,
        Self::Version,
        Self::Encoding,
        Self::Primary,
        Self::Connections,
        Self::Disk,
        Self::Migrations,
        Self::Tables,
        Self::Sync,
        Self::Commit,
        Self::Standbys,
        Self::Failover,
        Self::Needed,
        Self::Excess,
        Self::Pooler,
        Self::Authority,
        Self::Owner,
        Self::Members,
        Self::EtcdVersion,
        Self::Memory,
        Self::Epoch,
        Self::Tokens,
        Self::Clock,
    ];

    pub fn place(self) -> Place {
        let (group, name, docs) = match self {
            Self::Settings => ("settings", "readable", "docs/settings.md"),
            Self::Password => ("settings", "password", "docs/postgres.md#passwords"),
            Self::Encryption => ("settings", "encryption", "docs/postgres.md#tls-and-sockets"),
            Self::Trust => ("settings", "trust", "docs/check.md#trust"),
            Self::Exposure => ("access", "exposure", "docs/access.md"),
            Self::Certificate => ("access", "certificate", "docs/access.md#tls"),
            Self::BearerTokens => ("access", "tokens", "docs/access.md#bearer-tokens"),
            Self::JwtKeys => ("access", "jwt keys", "docs/access.md#jwts"),
            Self::Policy => ("access", "policy", "docs/access.md#the-policy"),
            Self::Store => ("store", "reachable", "docs/check.md#store"),
            Self::Version => ("store", "version", "docs/postgres.md"),
            Self::Encoding => ("store", "encoding", "docs/postgres.md"),
            Self::Primary => ("store", "primary", "docs/check.md#store"),
            Self::Connections => ("store", "connections", "docs/check.md#store"),
            Self::Disk => ("store", "disk", "docs/runbooks/store-down.md#a-full-disk"),
            Self::Migrations => ("schema", "version", "docs/postgres.md#upgrades"),
            Self::Tables => ("schema", "guards", "docs/check.md#schema"),
            Self::Sync => ("durability", "sync to disk", "docs/postgres.md#durability"),
            Self::Commit => ("durability", "commit", "docs/postgres.md#durability"),
            Self::Standbys => {
                ("durability", "standbys", "docs/postgres.md#what-a-failover-can-lose")
            }
            Self::Failover => ("durability", "failover", "docs/postgres.md#managed-services"),
            Self::Needed => ("permissions", "enough", "docs/postgres.md#roles"),
            Self::Excess => ("permissions", "no more", "docs/postgres.md#roles"),
            Self::Pooler => ("pooler", "direct", "docs/postgres.md#pgbouncer"),
            Self::Authority => ("authority", "reachable", "docs/check.md#authority"),
            Self::Owner => ("authority", "owner", "docs/check.md#authority"),
            Self::Members => ("authority", "members", "docs/check.md#authority"),
            Self::EtcdVersion => ("authority", "version", "docs/check.md#authority"),
            Self::Memory => ("authority", "memory", "docs/check.md#epochs"),
            Self::Epoch => ("authority", "epoch", "docs/check.md#epochs"),
            Self::Tokens => ("authority", "tokens", "docs/check.md#authority"),
            Self::Clock => ("clock", "agreement", "docs/check.md#clock"),
        };
        Place { group, name, docs }
    }
}
