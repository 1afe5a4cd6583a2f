//! `fencepost migrate`.

use clap::Args;

use super::{block_on, exit::Failure, output};
use crate::{
    settings::{StoreSettings, StoreUrl},
    store::{Migrated, Rights, Schema, Store},
};

#[derive(Args)]
#[command(after_help = "\
On Postgres this needs a direct connection, not one through a pooler, and the role that is to own the
schema. From the binary alone, on an empty database:

  fencepost roles | psql -d app        # as a superuser, once: makes fencepost_owner and fencepost_serve
  fencepost migrate --store postgres://fencepost_owner@db.example/app --store-password-file owner
  fencepost serve   --store postgres://fencepost_serve@db.example/app --store-password-file serve

With one role for everything, leave out `fencepost roles`; `fencepost serve --migrate` is the same in one step.")]
pub struct Migrate {
    #[command(flatten)]
    pub store: StoreSettings,

    /// Make the schema for a role other than `fencepost_owner`: it serves too, or you give rights yourself
    #[arg(long)]
    one_role: bool,

    /// Change nothing; exit with 1 if the schema is not this version's
    #[arg(long)]
    check: bool,
}

impl Migrate {
    pub fn run(self) -> Result<(), Failure> {
        let (url, store) = self.store.open().map_err(Failure::settings)?;
        block_on(async {
            if !self.check {
                self.migrate(&url, store.as_ref()).await?;
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

    /// Does it, and says what was done.
    async fn migrate(&self, url: &StoreUrl, store: &dyn Store) -> Result<(), Failure> {
        if !self.one_role
            && let Some(obstacle) = store.migration_obstacle().await?
        {
            return Err(Failure::failed(format!("{url}: nothing was changed: {obstacle}")));
        }
        let Migrated { applied, rights } = store.migrate().await?;
        match applied.as_slice() {
            [] => output::print(&format!("{url}: there was nothing to apply\n"))?,
            names => output::print(&format!("{url}: applied {}\n", names.join(", ")))?,
        }
        match rights {
            Rights::Untouched => Ok(()),
            Rights::Given => {
                output::print(&format!("{url}: fencepost_serve has the rights that it needs\n"))
            }
            Rights::NotGiven(why) => {
                output::print(&format!("{url}: no rights were given: {why}\n"))
            }
        }
    }
}
