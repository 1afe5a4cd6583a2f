//! `--scope` and `--no-scope`, and the scope of commands that run under `fencepost run`.

use std::env::{VarError, var};

use clap::Args;

use crate::cli::exit::Failure;

/// What `fencepost run` tells its command: the lock, and the token that it was granted with.
const LOCK: &str = "FENCEPOST_LOCK";
const LOCK_TOKEN: &str = "FENCEPOST_LOCK_TOKEN";

#[derive(Args)]
pub struct Scope {
    /// Key whose mark guards this as well: the one that the lock is named after
    /// [default: the lock of `fencepost run`, under its token]
    #[arg(long, value_name = "KEY")]
    scope: Option<String>,

    /// Guard this by the mark of its own key alone, also under `fencepost run`
    #[arg(long, conflicts_with = "scope")]
    no_scope: bool,
}

impl Scope {
    pub fn is_given(&self) -> bool {
        self.scope.is_some()
    }

    /// The scope of a request under this token.
    ///
    /// The lock that `run` holds is the scope only of requests under the token that it was granted with. A script
    /// may hold other locks too: their tokens must not raise the mark of this one. Where the variables do not
    /// name a lock and its token, the request is not sent: without a scope it would not be fenced by the lock.
    pub fn under(self, token: Option<&str>) -> Result<Option<String>, Failure> {
        if self.no_scope || self.scope.is_some() {
            return Ok(self.scope);
        }
        let Some(token) = token else { return Ok(None) };
        let lock = match var(LOCK) {
            Ok(lock) if !lock.is_empty() => lock,
            Err(VarError::NotPresent) => return Ok(None),
            Ok(_) => return Err(unusable(LOCK, "is empty")),
            Err(VarError::NotUnicode(_)) => return Err(unusable(LOCK, "is not UTF-8")),
        };
        let granted = var(LOCK_TOKEN).map_err(|_| {
            unusable(LOCK_TOKEN, "does not hold the token of the lock that FENCEPOST_LOCK names")
        })?;
        Ok((token.trim() == granted.trim()).then_some(lock))
    }
}

fn unusable(variable: &str, how: &str) -> Failure {
    Failure::settings(format!(
        "{variable} {how}, so the scope is not known; give --scope KEY, or --no-scope"
    ))
}
