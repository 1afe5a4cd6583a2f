//! `fencepost locks`.

use clap::Args;
use reqwest::Method;
use serde_json::json;

use super::{
    Server,
    events::{Event, Events},
    grants::PATH,
    http,
    pages::{self, Wanted},
};
use crate::cli::{exit::Failure, output};

#[derive(Args)]
#[command(after_help = "\
Without a name: the locks that are held. With one: that lock, held or not, and how many wait for \
it. TTL_MS is what is left of the lease. With --watch: who holds it now, and every change from then \
on, one line for each.

Examples:
  fencepost locks --prefix jobs/
  fencepost locks leader --watch
  fencepost locks jobs/nightly -o json | jq .owner")]
pub struct Locks {
    /// Only this one, held or not
    name: Option<String>,

    /// Only locks whose names start with this [default: all]
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    #[arg(conflicts_with = "name")]
    prefix: String,

    /// Go on telling who gets it, and who gives it back or loses it
    #[arg(long, requires = "name")]
    watch: bool,

    #[command(flatten)]
    server: Server,
}

impl Locks {
    pub async fn run(self) -> Result<(), Failure> {
        match &self.name {
            Some(name) if self.watch => self.watch(name).await,
            Some(name) => self.show(name).await,
            None => self.list().await,
        }
    }

    async fn show(&self, name: &str) -> Result<(), Failure> {
        let request = self.server.request(Method::GET, PATH, name)?;
        let lock = http::json(http::send(request).await?).await?;
        let columns = ["name", "held", "token", "owner", "ttl_ms", "waiters"];
        self.server.output.object(&columns, &lock)
    }

    async fn watch(&self, name: &str) -> Result<(), Failure> {
        let request = self.server.request(Method::GET, PATH, name)?;
        let mut events = Events::of(request, http::PATIENCE).await?;
        while let Some(Event { name, mut data }) = events.next(http::PATIENCE).await? {
            if self.server.output.is_table() {
                let owner = data["owner"].as_str().map(output::printable).unwrap_or_default();
                output::print(&format!("{name:<8}  token {}  {owner}\n", data["token"]))?;
            } else {
                data["event"] = name.into();
                output::print(&format!("{data}\n"))?;
            }
        }
        Err(Failure::Unavailable("the server has ended the watch".into()))
    }

    async fn list(&self) -> Result<(), Failure> {
        let wanted = Wanted { prefix: &self.prefix, after: String::new(), limit: None };
        let (rows, _) = pages::all(&self.server, "/v1/locks", "locks", wanted).await?;
        let columns = ["name", "token", "owner", "ttl_ms"];
        self.server.output.rows(&columns, &rows, &json!({ "locks": rows }))
    }
}
