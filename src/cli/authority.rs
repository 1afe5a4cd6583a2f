//! `fencepost authority`: which authority a store belongs to, and the move to another.

use std::io::{BufRead, IsTerminal, Write};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{block_on, exit::Failure, output::Format};
use crate::{
    authority::{self, AuthorityError},
    settings::{AuthorityUrl, EtcdSettings, Source, StoreSettings},
    store::{OwningAuthority, Sighting},
};

#[derive(Args)]
#[command(long_about = "\
Show which authority a store belongs to, or move the store to another one.

A store belongs to one authority at a time: two would grant one lock twice. The first server that starts on
a store claims it for its --authority. Every server with another authority is refused from then on, and so is
an etcd with another cluster id, or under another key prefix.

`fencepost authority move --to AUTHORITY` makes the store belong to another authority. Every lock that is held
is lost with it, and every token that was issued before becomes stale: holders must acquire their locks again.
Servers that run with the former authority grant nothing any more. Restart them with the new one. Programs that
take their locks from etcd directly, past Fencepost, must be stopped first.")]
pub struct Authority {
    #[command(flatten)]
    pub store: StoreSettings,

    /// What to do
    #[arg(value_name = "ACTION", default_value = "show", hide_default_value = true)]
    action: Action,

    /// With `move`: the authority that the store shall belong to: `store`, `etcd://HOST:PORT[,HOST:PORT]`,
    /// `etcds://HOST:PORT`, or `none` where tokens come from elsewhere
    #[arg(long, value_name = "AUTHORITY", required_if_eq("action", "move"))]
    to: Option<AuthorityUrl>,

    /// With `move`: do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    etcd: EtcdSettings,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Print the authority that the store belongs to
    Show,
    /// Make the store belong to another authority
    Move,
}

impl Authority {
    pub fn choose(&mut self, source: impl Fn(&str) -> Source) -> Result<(), String> {
        if self.to.as_ref().is_some_and(AuthorityUrl::has_password) {
            return Err(
                "--to must not hold a password, since everybody can read the arguments of a \
                 process; give it with --etcd-user and --etcd-password-file"
                    .into(),
            );
        }
        self.etcd.choose(source)
    }

    pub fn run(self) -> Result<(), Failure> {
        match (self.action, self.to.clone()) {
            (Action::Move, Some(to)) => block_on(self.move_to(&to))?,
            (Action::Move, None) => Err(Failure::settings("name the authority with --to")),
            (Action::Show, Some(_)) => {
                Err(Failure::settings("--to goes with `fencepost authority move`"))
            }
            (Action::Show, None) => block_on(self.show())?,
        }
    }

    async fn show(&self) -> Result<(), Failure> {
        let (url, store) = self.store.open().map_err(Failure::settings)?;
        store.check().await?;
        match store.owning_authority().await? {
            Some(recorded) => self.output.object(&FIELDS, &document(&recorded)),
            None => Err(Failure::failed(format!(
                "{url} belongs to no authority yet; the first server that starts on it claims it"
            ))),
        }
    }

    async fn move_to(&self, to: &AuthorityUrl) -> Result<(), Failure> {
        let (url, store) = self.store.open().map_err(Failure::settings)?;
        store.check().await?;
        let (mut named, mut seen) = self.target(to).await?;
        let recorded = store.owning_authority().await?;
        let in_doubt = |error| Failure::of_change(error, "fencepost authority");
        if recorded
            .as_ref()
            .is_some_and(|recorded| recorded.is_complete() && recorded.may_be(&named))
        {
            // By a move, perhaps, whose outcome was unknown.
            store.wait_for_standbys().await.map_err(in_doubt)?;
            say(&format!("{url} belongs to {named} already; nothing was changed"));
            return self.output.object(&FIELDS, &document(&named));
        }
        let recorded_identity = recorded.as_ref().and_then(|recorded| recorded.identity.clone());
        let from = recorded.map_or_else(|| "no authority yet".into(), |from| from.to_string());
        say(&format!(
            "{url} belongs to {from}, and will belong to {named}.\n\
             Every lock that is held is lost: its holder must acquire it again.\n\
             Every token that was issued before becomes stale.\n\
             Servers that run with another authority grant nothing any more: restart them with the new one."
        ));
        if !self.is_confirmed() {
            return Err(Failure::failed("nothing was changed: confirm the move with --yes"));
        }
        let is_alike = recorded_identity.is_some() && recorded_identity == named.identity;
        if let AuthorityUrl::Etcd(url) = to
            && (is_alike || named.instance.is_none())
        {
            // A new number, which none that was in use before can follow.
            let options = self.etcd.options(url).map_err(Failure::settings)?;
            authority::etcd::renew_instance(options).await.map_err(unanswered)?;
            (named, seen) = self.target(to).await?;
        }
        let floor = store.move_authority(&named, seen.as_ref()).await.map_err(in_doubt)?;
        let mut moved = document(&named);
        moved["floor"] = json!(floor);
        self.output.object(&["kind", "identity", "namespace", "floor"], &moved)
    }

    /// The authority as it names itself, and what it shows now.
    async fn target(
        &self,
        to: &AuthorityUrl,
    ) -> Result<(OwningAuthority, Option<Sighting>), Failure> {
        match to {
            AuthorityUrl::None => Ok((OwningAuthority::none(), None)),
            AuthorityUrl::Store => Ok((OwningAuthority::store(), None)),
            AuthorityUrl::Etcd(url) => {
                let options = self.etcd.options(url).map_err(Failure::settings)?;
                let (named, seen) = authority::etcd::identify(options).await.map_err(unanswered)?;
                Ok((named, Some(seen)))
            }
        }
    }

    fn is_confirmed(&self) -> bool {
        if self.yes {
            return true;
        }
        if !std::io::stdin().is_terminal() {
            return false;
        }
        let _ = write!(std::io::stderr(), "Move it? [y/N] ");
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }
}

const FIELDS: [&str; 3] = ["kind", "identity", "namespace"];

fn document(recorded: &OwningAuthority) -> Value {
    json!({
        "kind": recorded.kind,
        "identity": recorded.identity,
        "namespace": recorded.namespace,
    })
}

/// For the person at the terminal. What a program needs goes to standard output.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn unanswered(error: AuthorityError) -> Failure {
    match error {
        AuthorityError::Unavailable(reason) => Failure::Unavailable(format!(
            "etcd does not answer, so it cannot be recorded: {reason}"
        )),
        error => Failure::failed(error.to_string()),
    }
}
