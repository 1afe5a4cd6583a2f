//! How asking for a lock can fail. What the authority or the store said stays in the log.

use std::time::Duration;

use super::super::problem::{Kind, OTHER_AUTHORITY, Problem};
use crate::{
    authority::{AuthorityError, Holder},
    engine::EngineError,
    locks::LockError,
    sparse_log::SparseLog,
    store::{DiskTrouble, StoreError},
    token::{Key, Token},
};

impl Problem {
    /// Somebody else has the lock, and the time to wait for it is over.
    pub(super) fn lock_held(name: Key, holder: Option<&Holder>) -> Self {
        let detail = match holder {
            Some(holder) => format!(
                "it is held under token {}; ask again, or wait longer with wait_ms",
                holder.token
            ),
            None => "it was not free in time; ask again, or wait longer with wait_ms".into(),
        };
        // The holder may renew, so this is when asking begins to make sense.
        let retry_after = holder.map_or(Duration::ZERO, |holder| holder.remaining);
        Self::new(Kind::LockHeld, detail)
            .about(name)
            .held_by(holder.map(Into::into))
            .retry_after(retry_after)
    }

    /// The grant with this token does not hold the lock, or does so no longer.
    pub(super) fn lock_lost(name: Key, token: Token) -> Self {
        let detail = format!(
            "token {token} does not hold this lock: its lease has ended, or it was released; stop \
             what was done under it, and acquire the lock again"
        );
        Self::new(Kind::LockLost, detail).about(name).under(token)
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Behind { name, token, mark } => {
                let detail = format!(
                    "the lock was not granted: its token would be {token}, but its key has seen \
                     {mark}, which came from elsewhere; writes under this lock would be refused"
                );
                Self::new(Kind::StaleToken, detail).about(name).under(token).against(mark)
            }
            LockError::Authority(error) => {
                static LOG: SparseLog = SparseLog::new();
                LOG.write(|left_out| tracing::warn!(%error, left_out, "lock request failed"));
                failed(&error)
            }
            LockError::NotTheirs => Self::new(
                Kind::Forbidden,
                "nothing was changed: this lock was not granted to you; acquire it yourself",
            ),
            LockError::TooLate => {
                unavailable("the lock's lease ended before it could be handed over; try again")
            }
            LockError::ShuttingDown => Self::new(
                Kind::ShuttingDown,
                "the lock was not granted in time; try again with another instance",
            ),
            LockError::Lost => unavailable("the request was lost on its way; try again"),
            LockError::OverLimit(over) => over.into(),
            LockError::Claim(error) => not_claimed(&error),
        }
    }
}

/// Names the part that failed: the lock service, or the store that it depends on.
fn failed(error: &AuthorityError) -> Problem {
    match error {
        AuthorityError::Unavailable(_) | AuthorityError::Unfit(_) => {
            unavailable("the lock service cannot be asked; try again")
        }
        AuthorityError::Store(StoreError::Disk(trouble, _)) => on_the_disk(*trouble),
        AuthorityError::Store(StoreError::Unknown(_)) => Problem::new(
            Kind::StoreUnavailable,
            "the connection to the store was lost around the commit: the lock may have been granted, \
             renewed or released; repeat the request, or look at the lock",
        ),
        AuthorityError::Store(_) => Problem::new(
            Kind::StoreUnavailable,
            "the store cannot be used, and no lock is granted or changed without it; try again",
        ),
        AuthorityError::Foreign(_) => Problem::new(Kind::AuthorityMismatch, OTHER_AUTHORITY),
    }
}

fn on_the_disk(trouble: DiskTrouble) -> Problem {
    match trouble {
        DiskTrouble::Full => Problem::new(
            Kind::StoreFull,
            "no lock was granted or changed: the disk of the store has no room left; free some, then \
             try again",
        ),
        DiskTrouble::ReadOnly | DiskTrouble::Failing | DiskTrouble::Damaged => Problem::new(
            Kind::StoreUnavailable,
            format!("no lock was granted or changed: {trouble}; see the server's log"),
        ),
    }
}

fn unavailable(detail: &str) -> Problem {
    Problem::new(Kind::AuthorityUnavailable, detail)
}

/// Whether or not the claim took effect, the grant has been undone: nobody has that token, and the
/// next one is higher. So even an unknown outcome is one that may simply be tried again.
fn not_claimed(error: &EngineError) -> Problem {
    let kind = match error {
        EngineError::Overloaded | EngineError::NoRoom => Kind::Overloaded,
        EngineError::ShuttingDown => Kind::ShuttingDown,
        EngineError::NotTheirs => Kind::Forbidden,
        EngineError::Authority(error) => return failed(error),
        EngineError::Store(StoreError::OtherAuthority(_)) => Kind::AuthorityMismatch,
        EngineError::Store(StoreError::Disk(trouble @ DiskTrouble::Full, _)) => {
            return on_the_disk(*trouble);
        }
        EngineError::Store(
            StoreError::Unavailable(_)
            | StoreError::Disk(..)
            | StoreError::Busy
            | StoreError::Locked
            | StoreError::Conflict
            | StoreError::Failed(_)
            | StoreError::Unknown(_)
            | StoreError::Unfit(_)
            | StoreError::Denied(_),
        ) => Kind::StoreUnavailable,
    };
    let detail = "the lock was not granted, since the store did not confirm its token; try again";
    Problem::new(kind, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_the_store(error: StoreError) -> Problem {
        LockError::Authority(AuthorityError::Store(error)).into()
    }

    #[test]
    fn only_a_definite_failure_says_that_nothing_was_changed() {
        let lost = of_the_store(StoreError::Unknown("cut".into()));
        assert_eq!(lost.kind(), Kind::StoreUnavailable);
        assert!(lost.detail().contains("may have been granted, renewed or released"));
        assert!(!lost.detail().contains("no lock"));
        let down = of_the_store(StoreError::Unavailable("down".into()));
        assert!(down.detail().contains("no lock is granted or changed"));
        let full = of_the_store(StoreError::Disk(DiskTrouble::Full, String::new()));
        assert_eq!(full.kind(), Kind::StoreFull);
        assert!(full.detail().starts_with("no lock was granted or changed"));
    }
}
