//! Where tokens come from: a lock service that hands out each lock to one holder at a time, first
//! come first served, with a token that is higher than every one before it.
//!
//! What every authority promises, whatever is underneath:
//! - tokens rise: over all grants of a lock, across restarts, and across a loss of its own memory;
//! - a renewal never resurrects, and a release never frees a successor: both compare the token
//!   where the lock itself is kept, in one transaction;
//! - whoever gives up waiting leaves no trace.
//!
//! What it does not promise is that a holder knows when it has lost: that is what the fence is for.
//! Nothing here knows HTTP; only `etcd.rs` and what is below it know etcd.

pub mod etcd;
mod grantees;
pub mod ownership;
pub mod store;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::grantees::{Belongs, Grantees};
use crate::{
    auth::Identity,
    store::{Page, StoreError},
    token::{Key, Token},
};

/// A wish to hold a lock.
#[derive(Clone, Debug)]
pub struct Ask {
    pub name: Key,
    /// Who asks, in their own words. For people to read; nothing is decided by it.
    pub owner: String,
    /// Who asks, as it was proved, where that is asked for. It is kept with the grant.
    pub identity: Option<Identity>,
    pub ttl: Duration,
    /// When to give up. Not later than that, somebody who did not get the lock is told so.
    pub until: Instant,
    /// Cancelled when nobody waits for the answer any more.
    pub gone: CancellationToken,
}

/// A lock, for as long as its lease is renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub name: Key,
    pub token: Token,
    pub owner: String,
    /// How long the lease lasts after a renewal: what was asked for, or the least that there is.
    pub ttl: Duration,
    /// The lease's own name, as a person would find it in etcd or in the lock table.
    pub lease: String,
    /// When the lease was last renewed, at the earliest: the moment before that was asked for.
    pub renewed: Instant,
}

/// What came of an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    Granted(Grant),
    /// The time was over, or nobody waits any more; the place in the queue has been given up.
    Held(Option<Holder>),
}

/// Who holds a lock now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub name: Key,
    pub token: Token,
    pub owner: String,
    /// What is left of its lease.
    pub remaining: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    pub holder: Option<Holder>,
    /// The holder's identity, if its grant has one.
    pub granted_to: Option<Identity>,
    pub waiters: u64,
}

/// What happens to a lock, as somebody who watches it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    Granted(Holder),
    /// `None` only as the first event of a watch, for a lock that is free.
    Released(Option<Token>),
    Expired(Token),
}

/// What operators see of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub up: bool,
    /// How often the authority was found to have lost its memory. Tokens begin with it.
    pub epoch: u16,
}

/// The text is for the log. What a client may see of it is the API's to say.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It could not be asked. Whatever was asked for may have happened, and will be undone by the
    /// end of its lease.
    #[error("the lock service could not be used: {0}")]
    Unavailable(String),
    /// It answers, but must not be used as it is.
    #[error("{0}")]
    Unfit(String),
    /// The store failed, which keeps the lock table, or what is remembered of another lock service.
    #[error("the store failed a lock request: {0}")]
    Store(StoreError),
    /// The store belongs to another authority. Nothing is granted, and no token is believed.
    #[error("{0}")]
    Foreign(String),
}

impl From<StoreError> for AuthorityError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::OtherAuthority(_) => Self::Foreign(error.to_string()),
            other => Self::Store(other),
        }
    }
}

/// Whoever calls these does so from a task that is not dropped half way: `locks.rs` sees to it.
#[async_trait]
pub trait Authority: Send + Sync + 'static {
    /// Waits for its turn until `ask.until`, or until nobody cares any more. The lease is renewed
    /// meanwhile, and fresh when the grant is handed out.
    async fn acquire(&self, ask: &Ask) -> Result<Turn, AuthorityError>;

    /// The lease lasts for its whole time again, which is returned. `None`: that grant no longer
    /// holds the lock.
    async fn renew(&self, name: &Key, token: Token) -> Result<Option<Duration>, AuthorityError>;

    /// `false`: that grant no longer held the lock.
    async fn release(&self, name: &Key, token: Token) -> Result<bool, AuthorityError>;

    async fn inspect(&self, name: &Key) -> Result<LockState, AuthorityError>;

    /// The locks that are held, by name, in byte order.
    async fn list(&self, page: Page) -> Result<Vec<Holder>, AuthorityError>;

    /// Begins with the state now, and goes on over an outage of the lock service.
    async fn watch(&self, name: &Key) -> Result<BoxStream<'static, LockEvent>, AuthorityError>;

    /// The highest token that can have been issued by now, by a question to the lock service. It is
    /// remembered in the store before it is returned, so that later tokens are higher still.
    async fn newest(&self) -> Result<i64, AuthorityError>;

    /// The same as far as it is known without asking; 0 at first.
    fn newest_known(&self) -> i64;

    fn status(&self) -> Status;

    /// Asks the lock service whether it is the one that the store belongs to, and records it where none is
    /// recorded. [`AuthorityError::Foreign`]: it is another one.
    async fn confirm(&self) -> Result<(), AuthorityError> {
        Ok(())
    }

    /// Whether it issues tokens from the very database that keeps the marks, and may lose both at once.
    fn forgets_with_the_store(&self) -> bool {
        false
    }
}
