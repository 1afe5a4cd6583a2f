//! `fencepost migrate`.

use clap::Args;

use super::{block_on, exit::Failure, output};
use crate::{settings::StoreSettings, store::Schema};

#[derive(Args)]
#[command(after_help = "On Postgres this needs a direct connection, not one through a pooler, \
    and a role that may create a schema.")]
pub struct Migrate {
    #[command(flatten)]
    pub store: StoreSettings,

    /// Change nothing; exit with 1 if the schema is not this version's
    #[arg(long)]
    check: bool,
}

impl Migrate {
    pub fn run(self) -> Result<(), Failure> {
        let (url, store) = self.store.open().map_err(Failure::settings)?;
        block_on(async {
            if !self.check {
                store.migrate().await?;
            }
            match store.schema().await? {
                Schema::Current => output::print(&format!("{url}: the schema is up to date\n")),
                Schema::Behind => Err(Failure::failed(format!(
                    "{url}: the schema is missing or older; run `fencepost migrate`"
                ))),
                Schema::Ahead => output::print(&format!(
                    "{url}: the schema is a newer fencepost's, on which this version may serve\n"
                )),
                Schema::TooNew => Err(Failure::failed(format!(
                    "{url}: the schema belongs to a newer fencepost; use that version"
                ))),
            }
        })?
    }
}
