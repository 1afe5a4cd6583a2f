//! `fencepost compact`.

use std::io::{IsTerminal, Write};

use clap::Args;

use super::{block_on, exit::Failure, output::Format};
use crate::{
    settings::{StoreSettings, Time},
    store::Compacted,
};

#[derive(Args)]
#[command(long_about = "\
Collect the marks of keys that have long been absent.

A deleted key keeps its mark, so that a late write of an old holder stays refused. That adds up.
This drops the marks of keys that have been absent for longer than --older-than, after raising the
floor: one mark under all keys, below which every token is stale. Whoever still holds a lock from
before then must acquire it again, so choose an age that no holder reaches, and compact only if all
tokens come from one counter. The marks of the newest
token among them are kept until a newer one has aged too. A dropped key starts again at version 1.
It is safe to run while fenceposts serve.")]
pub struct Compact {
    #[command(flatten)]
    pub store: StoreSettings,

    /// Only keys that have been absent for longer than this, such as 30d
    #[arg(long, value_name = "TIME")]
    older_than: Time,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    output: Format,
}

impl Compact {
    pub fn run(self) -> Result<(), Failure> {
        let (_, store) = self.store.open().map_err(Failure::settings)?;
        let progress = |so_far: &Compacted| {
            if std::io::stderr().is_terminal() {
                let _ = write!(std::io::stderr(), "\r{} marks dropped", so_far.dropped);
            }
        };
        let compacted = block_on(async {
            store.check().await?;
            store.compact(self.older_than.0, &progress).await
        })??;
        if std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let document = serde_json::json!(compacted);
        self.output.object(&["dropped", "floor"], &document)
    }
}
