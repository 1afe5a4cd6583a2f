//! `fencepost floor`: shows the floor under all keys, and raises it.
//!
//! It never falls, so a mistake cannot be taken back. What would fence off a holder, or tokens that were
//! not issued yet, has to be asked for in so many words.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    block_on,
    exit::Failure,
    output::Format,
    tokens_in_use::{self, ISSUED_BY_NOBODY, TokenSettings, TokensInUse},
};
use crate::{
    settings::{AuthorityUrl, StoreSettings},
    store::{Reading, Store},
    token::Token,
};

/// Where tokens went back with the store, how far above the newest known one the next must be. A random
/// number of 48 bits is added: two restores of one backup must not issue the same tokens.
const LEAP: i64 = 1 << 32;

#[derive(Args)]
#[command(long_about = "\
Show the floor under all keys, or raise it.

A token below the floor is stale for every key. `compact` raises the floor when it drops old marks,
and servers do when another database server has taken over. It never falls.

  fencepost floor                        the floor, the newest token, the lowest one that is held
  fencepost floor raise 41000            every token below 41000 is stale from now on
  fencepost floor raise --above-all      every token that was ever issued is: after a restored backup

A restored store has old marks, so tokens that had been fenced off would be accepted again.
--above-all makes every holder acquire its lock again. With --authority none, Fencepost does not know
which tokens were issued: give a number above all of them.

It takes the same --store and --authority as the servers, and to raise the floor, the role that owns
the schema.")]
pub struct Floor {
    #[arg(value_enum, default_value = "show")]
    action: Action,

    /// To which token; lower ones become stale
    #[arg(value_name = "TOKEN", value_parser = tokens_in_use::token)]
    to: Option<Token>,

    /// Above every token that can have been issued, whether it is held or not
    #[arg(long, conflicts_with = "to")]
    above_all: bool,

    /// With --above-all and etcd: the epoch that its tokens had reached before the store was set back, as
    /// `fencepost_authority_epoch` showed it. Only needed where the epoch has moved since the backup
    #[arg(long, value_name = "EPOCH", requires = "above_all")]
    epoch: Option<u16>,

    /// Even if that fences off tokens that are held, or those that will be issued next
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    pub store: StoreSettings,

    #[command(flatten)]
    pub tokens: TokenSettings,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    Show,
    Raise,
}

impl Floor {
    pub fn run(self) -> Result<(), Failure> {
        let (_, store) = self.store.open().map_err(Failure::settings)?;
        match self.action {
            Action::Show if self.to.is_some() || self.above_all || self.force => {
                Err(Failure::settings("to raise the floor, say so: fencepost floor raise …"))
            }
            Action::Show => block_on(self.show(store.as_ref()))?,
            Action::Raise => block_on(self.raise(store.as_ref()))?,
        }
    }

    async fn show(&self, store: &dyn Store) -> Result<(), Failure> {
        store.check().await?;
        let tokens = tokens_in_use::ask(&self.tokens, store, Reading::Quick).await?;
        let document = json!({
            "floor": tokens.floor,
            "authority": self.tokens.url()?.to_string(),
            "newest": tokens.newest,
            "lowest_held": tokens.lowest_held.as_ref().map(|held| held.token),
            "held_lock": tokens.lowest_held.map(|held| held.lock),
        });
        let columns = ["floor", "authority", "newest", "lowest_held", "held_lock"];
        self.output.object(&columns, &document)
    }

    async fn raise(&self, store: &dyn Store) -> Result<(), Failure> {
        store.check().await?;
        let authority = self.tokens.url()?;
        let (before, to) = match (self.to, self.above_all) {
            (Some(to), _) => self.to_token(store, &authority, to).await?,
            (None, true) => self.above_all(store, &authority).await?,
            (None, false) => {
                return Err(Failure::settings(
                    "say how far: fencepost floor raise TOKEN, or --above-all after a restored \
                     backup",
                ));
            }
        };
        let raised = store.raise_floor(to, authority == AuthorityUrl::Store).await;
        let floor = raised.map_err(|error| Failure::of_change(error, "fencepost floor"))?;
        self.output.object(&["floor", "before"], &json!({ "floor": floor, "before": before }))
    }

    /// The floor as it is, and to what it should rise.
    async fn to_token(
        &self,
        store: &dyn Store,
        authority: &AuthorityUrl,
        to: Token,
    ) -> Result<(i64, i64), Failure> {
        let to = to.get();
        if to >= ISSUED_BY_NOBODY && *authority != AuthorityUrl::None {
            return Err(Failure::failed(format!(
                "{to} is above every token that an authority ever issues (2^62), so every later \
                 write would be stale; nothing was changed"
            )));
        }
        let tokens = tokens_in_use::ask(&self.tokens, store, Reading::Exact).await?;
        for objection in objections(&tokens, to) {
            if !self.force {
                return Err(Failure::failed(format!(
                    "{objection}; nothing was changed. Give --force if that is what you want"
                )));
            }
            super::output::warn(&objection);
        }
        Ok((tokens.floor, to))
    }

    async fn above_all(
        &self,
        store: &dyn Store,
        authority: &AuthorityUrl,
    ) -> Result<(i64, i64), Failure> {
        let floor = store.floor(Reading::Quick).await?.floor;
        let newest = match (authority, self.epoch) {
            (AuthorityUrl::None, _) => {
                return Err(Failure::settings(
                    "with --authority none, Fencepost does not know which tokens were issued; give a number \
                     above all of them: fencepost floor raise TOKEN",
                ));
            }
            (_, Some(epoch)) => tokens_in_use::newest_in_epoch(&self.tokens, store, epoch).await?,
            (AuthorityUrl::Etcd(_), None) => self.newest(store).await?,
            // The tokens went back with the store. The next ones are where they cannot have been.
            (AuthorityUrl::Store, None) => {
                let known = self.newest(store).await?.max(floor);
                let leap = LEAP + fastrand::i64(0..1 << 48);
                known.saturating_add(leap)
            }
        };
        if newest >= ISSUED_BY_NOBODY {
            return Err(Failure::failed(format!(
                "no token below 2^62 is left above {newest}; nothing was changed"
            )));
        }
        Ok((floor, newest + 1))
    }

    async fn newest(&self, store: &dyn Store) -> Result<i64, Failure> {
        let tokens = tokens_in_use::ask(&self.tokens, store, Reading::Exact).await?;
        Ok(tokens.newest.unwrap_or_default())
    }
}

/// What is to be said against this floor.
fn objections(tokens: &TokensInUse, to: i64) -> Vec<String> {
    let mut objections = Vec::new();
    if let Some(held) = tokens.lowest_held.as_ref().filter(|held| held.token < to) {
        objections.push(format!(
            "token {} holds or waits for the lock {:?}, and would be stale below {to}: it and all other \
             holders below would have to acquire their locks again",
            held.token, held.lock
        ));
    }
    match tokens.newest {
        Some(newest) if to > newest.saturating_add(1) => objections.push(format!(
            "no token above {newest} was issued yet, and the floor never falls: see whether {to} has a \
             digit too many"
        )),
        None if to >= ISSUED_BY_NOBODY => objections.push(format!(
            "{to} is 2^62 or more, and the floor never falls: see whether it has a digit too many"
        )),
        _ => {}
    }
    objections
}
