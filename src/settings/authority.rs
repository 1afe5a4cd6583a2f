//! Where tokens come from.

use std::path::PathBuf;

use clap::Args;

use super::{AuthorityUrl, FENCE, Source, source};

/// Every command that has to know which tokens were issued takes these.
#[derive(Args, Clone, Debug)]
pub struct AuthoritySettings {
    /// Where tokens come from: `store` (a lock table in the store's database),
    /// `etcd://HOST:PORT[,HOST:PORT]` (`etcds://` for TLS), or `none` (a lock service of your own)
    #[arg(
        long,
        env = "FENCEPOST_AUTHORITY",
        value_name = "AUTHORITY",
        default_value = "store",
        help_heading = FENCE
    )]
    pub authority: AuthorityUrl,

    /// File that holds the value of --authority, to keep a password out of the process list
    #[arg(long, env = "FENCEPOST_AUTHORITY_FILE", value_name = "FILE", help_heading = FENCE)]
    pub authority_file: Option<PathBuf>,
}

impl AuthoritySettings {
    pub fn choose(&mut self, source: impl Fn(&str) -> Source) -> Result<(), String> {
        source::choose("authority", &mut self.authority_file, &source)?;
        if self.authority_file.is_none() && self.authority.has_password() {
            source::refuse_as_argument("authority", source("authority"))?;
        }
        Ok(())
    }

    /// What `--authority` or `--authority-file` says.
    pub fn url(&self) -> Result<AuthorityUrl, String> {
        match &self.authority_file {
            None => Ok(self.authority.clone()),
            Some(path) => {
                AuthorityUrl::from_file(path).map_err(|error| format!("--authority-file {error}"))
            }
        }
    }
}
