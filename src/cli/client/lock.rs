//! `fencepost lock`, `fencepost renew` and `fencepost unlock`.

use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Address, Server,
    events::Events,
    grants::{self, PATH, Terms},
    http,
};
use crate::cli::{
    exit::{self, Failure},
    output::{self, Format},
};

const GRANT: [&str; 5] = ["name", "token", "owner", "ttl_ms", "lease"];

#[derive(Args)]
#[command(after_help = "\
The lock is held until it is given back, or until its time is over and nobody has renewed it. To \
hold one while a program runs, use `fencepost run`, which renews it. With --hold the server renews \
it for as long as this command runs; when it ends, however it ends, the lock is given back.

In a script:
  TOKEN=$(fencepost lock orders --ttl 1m --wait 10s -o token) || exit
  fencepost put --token \"$TOKEN\" --scope orders orders/42 paid
  fencepost unlock orders --token \"$TOKEN\"

Exit codes:
  75 somebody else held it for as long as --wait   76 it was lost while held with --hold
  69 the server is away   64 usage")]
pub struct Lock {
    /// Name of the lock: best that of the key or keys it guards, such as orders
    name: String,

    #[command(flatten)]
    terms: Terms,

    /// Hold the lock until this command is ended
    #[arg(long)]
    hold: bool,

    #[command(flatten)]
    address: Address,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    output: GrantFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum GrantFormat {
    /// A table on a terminal, JSON elsewhere
    Auto,
    /// A table, for people
    Table,
    /// JSON, for programs
    Json,
    /// The token alone, for shell scripts
    Token,
}

impl Lock {
    pub async fn run(self) -> Result<(), Failure> {
        if self.hold {
            return self.hold().await;
        }
        self.print(&self.terms.acquire(&self.address, &self.name).await?)
    }

    /// The server renews the lock while the connection is open.
    async fn hold(&self) -> Result<(), Failure> {
        let wait = self.terms.wait.0;
        let request = self.terms.request(&self.address, &self.name, wait)?;
        let mut events = Events::of(request, wait + http::PATIENCE).await?;
        let ttl = self.terms.ttl.0;
        let Some(granted) = events.next(ttl).await? else { return Err(lost("it was not granted")) };
        self.print(&granted.data)?;
        loop {
            match events.next(ttl).await {
                Ok(Some(event)) if event.name != "lost" => {}
                Ok(Some(event)) => return Err(lost(&format!("{}", event.data["reason"]))),
                Ok(None) => return Err(lost("the server has ended it")),
                Err(failure) => return Err(lost(&failure.message())),
            }
        }
    }

    fn print(&self, grant: &Value) -> Result<(), Failure> {
        match self.output {
            GrantFormat::Auto => Format::Auto.object(&GRANT, grant),
            GrantFormat::Table => Format::Table.object(&GRANT, grant),
            GrantFormat::Json => Format::Json.object(&GRANT, grant),
            GrantFormat::Token => output::print(&format!("{}\n", grant["token"])),
        }
    }
}

fn lost(why: &str) -> Failure {
    exit::say(&format!("the lock is lost: {why}"));
    Failure::Told(exit::LOST)
}

/// A lock that is held.
#[derive(Args)]
struct Held {
    /// Name of the lock
    name: String,

    /// Fencing token that it was granted with
    #[arg(long, env = "FENCEPOST_TOKEN", value_name = "TOKEN")]
    token: String,

    #[command(flatten)]
    server: Server,
}

#[derive(Args)]
#[command(after_help = "\
From now on the lock is held for its whole time again. One that was lost stays lost: exit code 76.")]
pub struct Renew {
    #[command(flatten)]
    held: Held,
}

impl Renew {
    pub async fn run(self) -> Result<(), Failure> {
        let Held { name, token, server } = self.held;
        let request = server.request(Method::PUT, PATH, &name)?;
        let renewed = grants::renew(request, &token).await?;
        let ttl = &renewed["ttl_ms"];
        let document = json!({ "name": name, "token": number(&token), "ttl_ms": ttl });
        server.output.object(&["name", "token", "ttl_ms"], &document)
    }
}

#[derive(Args)]
#[command(after_help = "\
Gives back what was granted with this token, never what a successor holds: exit code 76 if it was \
lost before. Writes under the token are accepted until the next holder gets the lock.")]
pub struct Unlock {
    #[command(flatten)]
    held: Held,
}

impl Unlock {
    pub async fn run(self) -> Result<(), Failure> {
        let Held { name, token, server } = self.held;
        let request = server.request(Method::DELETE, PATH, &name)?;
        grants::release(request, &token).await?;
        let document = json!({ "name": name, "token": number(&token) });
        server.output.object(&["name", "token"], &document)
    }
}

/// The server has accepted it, so it is one.
fn number(token: &str) -> Option<i64> {
    token.trim().parse().ok()
}
