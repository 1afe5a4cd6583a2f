//! The commands that speak to a running server.

mod credentials;
mod delete;
mod events;
mod get;
pub mod grants;
pub mod http;
mod list;
mod lock;
mod locks;
mod mark;
mod pages;
mod put;
mod rejections;
mod scope;

use clap::{Args, Subcommand};
use reqwest::Url;

pub use self::credentials::{Credentials, Trusted};
use super::{block_on, exit::Failure, output::Format};
use crate::write::Rule;

#[derive(Subcommand)]
pub enum Client {
    /// Read a resource
    Get(get::Get),
    /// Write a resource
    Put(put::Put),
    /// Delete a resource; its mark stays
    Delete(delete::Delete),
    /// List resources by prefix
    List(list::List),
    /// Show a key's mark
    Mark(mark::Show),
    /// Raise a key's mark without writing a value
    Claim(mark::Claim),
    /// Take a lock, and get its fencing token
    Lock(lock::Lock),
    /// Keep a lock for another while
    Renew(lock::Renew),
    /// Give a lock back
    Unlock(lock::Unlock),
    /// Show who holds which lock
    Locks(locks::Locks),
    /// Show which writes were refused, and why
    Rejections(rejections::Rejections),
}

impl Client {
    pub fn run(self) -> Result<(), Failure> {
        block_on(async {
            match self {
                Self::Get(get) => get.run().await,
                Self::Put(put) => put.run().await,
                Self::Delete(delete) => delete.run().await,
                Self::List(list) => list.run().await,
                Self::Mark(show) => show.run().await,
                Self::Claim(claim) => claim.run().await,
                Self::Lock(lock) => lock.run().await,
                Self::Renew(renew) => renew.run().await,
                Self::Unlock(unlock) => unlock.run().await,
                Self::Locks(locks) => locks.run().await,
                Self::Rejections(rejections) => rejections.run().await,
            }
        })?
    }
}

/// Which server.
#[derive(Args, Clone)]
pub struct Address {
    /// Address of the server
    #[arg(
        long,
        env = "FENCEPOST_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:7420",
        value_parser = http::server_url
    )]
    pub url: Url,

    #[command(flatten)]
    pub credentials: Credentials,
}

/// Which server, and how to print what it says.
#[derive(Args)]
pub struct Server {
    #[command(flatten)]
    pub address: Address,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    pub output: Format,
}

/// What the fence needs to know of a write.
#[derive(Args)]
pub struct Fencing {
    /// Fencing token of the lock that this is done under
    #[arg(long, env = "FENCEPOST_TOKEN", value_name = "TOKEN")]
    token: String,

    /// Number of this write under its token, rising; to repeat a write safely, repeat its seq
    #[arg(long, value_name = "SEQ")]
    seq: Option<String>,

    #[command(flatten)]
    scope: scope::Scope,

    /// May a token that equals the mark, with no seq, write again? [default: the server's]
    #[arg(long, value_name = "RULE")]
    rule: Option<Rule>,

    /// Who is writing, for the record of refusals
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
}

/// What must be true of the value.
#[derive(Args)]
pub struct Precondition {
    /// Only if the resource is at this version
    #[arg(long, value_name = "VERSION", conflicts_with = "if_absent")]
    if_version: Option<i64>,

    /// Only if the resource has no value
    #[arg(long)]
    if_absent: bool,
}
