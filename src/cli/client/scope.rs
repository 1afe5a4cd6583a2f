//! `--scope` and `--no-scope`, and the scope of commands that run under `fencepost run`.

use clap::Args;

/// What `fencepost run` tells its command.
const LOCK: &str = "FENCEPOST_LOCK";
const TOKEN: &str = "FENCEPOST_TOKEN";

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
    /// may hold other locks too: their tokens must not raise the mark of this one.
    pub fn under(self, token: Option<&str>) -> Option<String> {
        if self.no_scope || self.scope.is_some() {
            return self.scope;
        }
        let granted = std::env::var(TOKEN).ok()?;
        let lock = std::env::var(LOCK).ok().filter(|lock| !lock.is_empty())?;
        (token?.trim() == granted.trim()).then_some(lock)
    }
}
