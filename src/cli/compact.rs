//! `fencepost compact`.

use std::io::{IsTerminal, Write};

use clap::Args;
use serde_json::json;

use super::{
    block_on,
    exit::Failure,
    output::Format,
    tokens_in_use::{self, ISSUED_BY_NOBODY, TokenSettings, TokensInUse},
};
use crate::{
    settings::{StoreSettings, Time},
    store::{Compacted, Reading},
    token::Token,
};

#[derive(Args)]
#[command(long_about = "\
Collect the marks of keys that have long been absent.

A deleted key keeps its mark, so that a late write of an old holder stays refused. That adds up.
This drops the marks of keys that have been absent for longer than --older-than, after raising the
floor: one mark under all keys, below which every token is stale. A dropped key starts again at
version 1. It is safe to run while servers serve.

The floor never rises above a token that is held or waits for a lock, nor above the newest token that
was issued, nor above 2^62: old marks that are not below all three are kept. So this command asks the
authority, and takes the same --authority as the servers. If it cannot be asked, nothing is changed. With
--authority none it cannot know which tokens are held: --below says from which token on they may be.

With --dry-run it says what it would do, and what holds the floor back.")]
pub struct Compact {
    #[command(flatten)]
    pub store: StoreSettings,

    #[command(flatten)]
    pub tokens: TokenSettings,

    /// Only keys that have been absent for longer than this, such as 30d
    #[arg(long, value_name = "TIME")]
    older_than: Time,

    /// Keep all marks from this token on: the floor does not rise above it
    #[arg(long, value_name = "TOKEN", value_parser = tokens_in_use::token)]
    below: Option<Token>,

    /// Change nothing; say what would be done
    #[arg(long)]
    dry_run: bool,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    output: Format,
}

impl Compact {
    pub fn run(self) -> Result<(), Failure> {
        if let Some(below) = self.below.map(Token::get).filter(|below| *below >= ISSUED_BY_NOBODY) {
            return Err(Failure::settings(format!(
                "--below {below} is above every token that an authority ever issues (2^62), and the \
                 floor never falls; nothing was changed"
            )));
        }
        let (_, store) = self.store.open().map_err(Failure::settings)?;
        let progress = |so_far: &Compacted| {
            if std::io::stderr().is_terminal() {
                let _ = write!(std::io::stderr(), "\r{} marks dropped", so_far.dropped);
            }
        };
        let (compacted, bound) = block_on(async {
            store.check().await?;
            let tokens = tokens_in_use::ask(&self.tokens, store.as_ref(), Reading::Exact).await?;
            let bound = Bound::of(tokens, self.below)?;
            let age = self.older_than.0;
            let compacted = if self.dry_run {
                store.plan_compaction(age, bound.token).await?
            } else {
                let compacted = store.compact(age, bound.token, &progress).await;
                compacted.map_err(|error| Failure::of_change(error, "fencepost floor"))?
            };
            Ok::<_, Failure>((compacted, bound))
        })??;
        if std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let mut document = json!(compacted);
        document["bound"] = bound.token.into();
        document["bound_by"] = bound.by.into();
        if self.dry_run {
            document["dry_run"] = true.into();
        }
        self.output.object(&["dropped", "kept", "floor", "bound", "bound_by"], &document)
    }
}

/// How far the floor may rise, and why no further.
struct Bound {
    token: i64,
    by: String,
}

impl Bound {
    /// No token below it is held, or will be granted. What is asked for may lower it.
    fn of(tokens: TokensInUse, below: Option<Token>) -> Result<Self, Failure> {
        let TokensInUse { settled, lowest_held, .. } = tokens;
        if settled.is_none() && below.is_none() {
            return Err(Failure::settings(
                "with --authority none, Fencepost does not know which tokens are held: name with --below \
                 the lowest token that may be held. The floor will not rise above it",
            ));
        }
        let held = lowest_held.map(|held| Self {
            token: held.token,
            by: format!("token {} holds or waits for the lock {:?}", held.token, held.lock),
        });
        let settled = settled.map(|token| Self {
            token,
            by: match token {
                0 => "the authority has issued no token".into(),
                token => format!("the newest token that was issued is {token}"),
            },
        });
        let below =
            below.map(Token::get).map(|token| Self { token, by: format!("--below {token}") });
        let last = Self {
            token: ISSUED_BY_NOBODY,
            by: "no authority issues a token of 2^62 or more".into(),
        };
        let bounds = held.into_iter().chain(below).chain(settled);
        Ok(bounds.chain([last]).min_by_key(|bound| bound.token).expect("at least the last one"))
    }
}
