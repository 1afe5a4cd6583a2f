//! The words of the lock table: a queue for each lock, in the store's own database.
//!
//! Everybody who wants a lock has a row with a token of its own, drawn while nobody else could draw
//! one for that lock. Of the live rows of a lock, the one with the lowest token holds it. A row lives
//! as long as its lease, by the database's clock; whoever comes by collects the dead ones.
//!
//! Every change of a queue is made by one caller at a time, so each sees what the last one left.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::Page;
use super::StoreError;
use crate::{
    auth::Identity,
    authority::{Holder, LockEvent, LockState},
    token::{Key, Token},
};

/// The longest lease of a row that waits. It is renewed meanwhile; if its fencepost dies, those
/// behind it should not have to wait for as long as a holder could have been silent.
const LONGEST_WAITING_LEASE: Duration = Duration::from_secs(15);

/// Tokens above this come from no authority, only from clients with a number of their own.
pub(super) const ISSUED_BY_NOBODY: i64 = 1 << 62;

/// A wish for a place in the queue.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Key,
    /// The row's own name, chosen before it exists, so that it can be found whatever happens.
    pub lease: String,
    pub owner: String,
    /// Whose grant it will be, where that was proved.
    pub identity: Option<Identity>,
    pub ttl: Duration,
    /// Whether to wait where somebody else is first. If not, no row is left.
    pub stays: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entered {
    In { token: Token, place: Place },
    TurnedAway { holder: Holder },
}

/// Where in the queue a row stands, and what is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the first, and its lease is fresh.
    Holds,
    /// Its lease is fresh, for `lease`. The row before it lives for `ahead`, unless it is renewed.
    Waits { lease: Duration, ahead: Duration },
}

/// What came of a change, and whom it concerns.
#[derive(Clone, Debug)]
pub struct Changed<T> {
    pub outcome: T,
    /// The lease of the row that is first now, where rows before it have gone: it may not know yet.
    pub next: Option<String>,
    /// What those who watch are to be told. Empty where the database tells them itself.
    pub events: Vec<LockEvent>,
}

/// One connection's worth of work at a time. Its owner drops it after an error that says so.
#[async_trait]
pub trait LockTable: Send {
    /// Makes sure that the next token is above everything that was issued elsewhere: by an etcd that
    /// was the authority before, or by whoever made tokens before there was one; and above `known`,
    /// in case the database has lost what it once issued.
    async fn adopt(&mut self, known: i64) -> Result<(), StoreError>;

    async fn enter(&mut self, entry: &Entry) -> Result<Changed<Entered>, StoreError>;

    /// Renews a row's lease, and says where it stands. `None`: it is gone.
    async fn look(
        &mut self,
        name: &Key,
        token: Token,
    ) -> Result<Changed<Option<Place>>, StoreError>;

    /// Removes a row, wherever it stands, and says who holds the lock now.
    async fn leave(
        &mut self,
        name: &Key,
        lease: &str,
    ) -> Result<Changed<Option<Holder>>, StoreError>;

    /// Only for the row that holds the lock. `None`: it does not.
    async fn renew(
        &mut self,
        name: &Key,
        token: Token,
    ) -> Result<Changed<Option<Duration>>, StoreError>;

    /// Only for the row that holds the lock. `false`: it does not.
    async fn release(&mut self, name: &Key, token: Token) -> Result<Changed<bool>, StoreError>;

    async fn inspect(&mut self, name: &Key) -> Result<LockState, StoreError>;

    async fn list(&mut self, page: &Page) -> Result<Vec<Holder>, StoreError>;

    /// Those of `leases` that are first in their queues.
    async fn first_among(&mut self, leases: &[String]) -> Result<Vec<String>, StoreError>;

    /// Removes rows that died so long ago that nobody seems to ask for their locks any more.
    async fn sweep(&mut self) -> Result<(), StoreError>;

    /// The last token that was issued; 0 if none was.
    async fn newest(&mut self) -> Result<i64, StoreError>;

    /// Proves that the database answers and that its schema is still the right one.
    async fn ping(&mut self) -> Result<(), StoreError>;

    /// Whether another server has taken over from the one that this connection was opened on.
    fn is_deposed(&self) -> bool {
        false
    }
}

/// What a database says by itself. Anyone who can connect to it may have said it, so it is only a reason to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The row with this lease may be the first now.
    Turn { lease: String },
    /// This lock may have another holder now, or none.
    Changed { name: Key },
}

/// A connection that only listens. After an error it is of no further use.
#[async_trait]
pub trait LockNews: Send {
    /// Nothing is lost when this is dropped before it has answered.
    async fn next(&mut self) -> Result<News, StoreError>;

    /// When this has returned `true`, whatever happens to the lock is told. `false`: it could not be arranged until then.
    /// It is tried at least once.
    async fn watch(&mut self, name: &Key, until: Instant) -> Result<bool, StoreError>;

    async fn watch_nothing(&mut self) -> Result<(), StoreError>;
}

/// How long the row of somebody who waits lives without being renewed.
pub(super) fn waiting_lease(ttl: Duration) -> Duration {
    ttl.min(LONGEST_WAITING_LEASE)
}

pub(super) fn other_authority() -> StoreError {
    StoreError::OtherAuthority("the store does not belong to the lock table".into())
}

pub(super) fn from_millis(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).unsigned_abs())
}

pub(super) fn to_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Names and tokens were valid when they were stored, and the database checks them.
pub(super) fn stored_key(name: &str) -> Result<Key, StoreError> {
    Key::new(name).map_err(StoreError::unavailable)
}

pub(super) fn stored_token(token: i64) -> Result<Token, StoreError> {
    Token::new(token).ok_or_else(|| StoreError::unavailable("a token that is not positive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_to_the_database_and_come_back() {
        assert_eq!(to_millis(Duration::from_secs(2)), 2000);
        assert_eq!(to_millis(Duration::MAX), i64::MAX);
        assert_eq!(from_millis(2000), Duration::from_secs(2));
        assert_eq!(from_millis(-1), Duration::ZERO);
    }

    #[test]
    fn who_waits_lives_no_longer_than_that_without_a_sign() {
        assert_eq!(waiting_lease(Duration::from_secs(3)), Duration::from_secs(3));
        assert_eq!(waiting_lease(Duration::from_mins(1)), LONGEST_WAITING_LEASE);
    }

    #[test]
    fn what_was_stored_is_checked_again() {
        assert!(stored_key("").is_err());
        assert_eq!(stored_key("lock").unwrap().as_str(), "lock");
        assert!(stored_token(0).is_err());
        assert_eq!(stored_token(7).unwrap().get(), 7);
    }
}
