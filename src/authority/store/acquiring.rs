//! Waiting for one's turn in the queue of the lock table.
//!
//! A grant is handed out only on the word of a committed change that says: this row is the first, and
//! its lease is fresh. Whatever else happens (an answer lost, a place lost, the wait over), no row is
//! left that could hold the lock for longer than a waiting lease.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::{Instant, sleep_until};

use super::{Shared, turns::Waiting};
use crate::{
    authority::{Ask, Grant, Turn},
    store::{
        StoreError,
        lock_table::{Entered, Entry, Place},
    },
    token::{Key, Token},
};

/// The pause before the lock table is asked again after it failed.
const AFTER_A_FAILURE: Duration = Duration::from_millis(200);

/// The pause before a waiter that was woken although it was not its turn can be woken again. Any role of the database
/// can wake it, and every look costs a commit.
const AFTER_A_FALSE_WORD: Duration = Duration::from_millis(100);

/// How long a lost change may take to arrive at the database all the same: it waits there no longer
/// for the queue.
const STRAGGLERS_ARRIVE_WITHIN: Duration = Duration::from_secs(8);

pub async fn acquire(shared: &Arc<Shared>, ask: &Ask) -> Result<Turn, StoreError> {
    loop {
        let place = PlaceInQueue {
            shared,
            ask,
            waiting: shared.turns.wait_as(format!("{:016x}", fastrand::u64(..))),
        };
        if let Some(turn) = place.take().await? {
            return Ok(turn);
        }
        let name = ask.name.as_str();
        tracing::info!(name, "a place in the queue was lost; waiting at its end");
    }
}

struct PlaceInQueue<'a> {
    shared: &'a Arc<Shared>,
    ask: &'a Ask,
    waiting: Waiting,
}

impl PlaceInQueue<'_> {
    /// `None`: the place was lost, since its lease could not be renewed in time.
    async fn take(&self) -> Result<Option<Turn>, StoreError> {
        let entry = Entry {
            name: self.ask.name.clone(),
            lease: self.waiting.lease().to_owned(),
            owner: self.ask.owner.clone(),
            identity: self.ask.identity.clone(),
            ttl: self.ask.ttl,
            stays: !self.is_over(),
        };
        let asked = Instant::now();
        let entered = self
            .shared
            .change(&self.ask.name, |table| Box::pin(async move { table.enter(&entry).await }))
            .await;
        if let Ok(Entered::In { .. }) = entered {
            self.shared.tables.belongs_here();
        }
        match entered {
            Ok(Entered::In { token, place: Place::Holds }) => Ok(Some(self.grant(token, asked))),
            Ok(Entered::In { token, place: Place::Waits { lease, ahead } }) => {
                self.wait(token, asked + until_next_look(lease, ahead)).await
            }
            Ok(Entered::TurnedAway { holder }) => Ok(Some(Turn::Held(Some(holder)))),
            Err(error) => {
                if let StoreError::Unknown(_) = error {
                    self.forget();
                }
                Err(error)
            }
        }
    }

    async fn wait(&self, token: Token, mut look_at: Instant) -> Result<Option<Turn>, StoreError> {
        let mut wakeable_from = Instant::now();
        loop {
            let woken = async {
                sleep_until(wakeable_from).await;
                self.waiting.woken().await;
            };
            tokio::select! {
                () = woken => {}
                () = sleep_until(look_at) => {}
                () = sleep_until(self.ask.until) => {}
                () = self.ask.gone.cancelled() => {}
            }
            if self.is_over() {
                return self.give_up().await;
            }
            let asked = Instant::now();
            match self.look(token).await {
                Ok(Some(Place::Holds)) => return Ok(Some(self.grant(token, asked))),
                Ok(Some(Place::Waits { lease, ahead })) => {
                    look_at = asked + until_next_look(lease, ahead);
                    wakeable_from = asked + AFTER_A_FALSE_WORD;
                }
                Ok(None) => return Ok(None),
                // Whatever came of it, it can be asked again: the row is ours.
                Err(_) => look_at = Instant::now() + AFTER_A_FAILURE,
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ask.gone.is_cancelled() || Instant::now() >= self.ask.until
    }

    async fn look(&self, token: Token) -> Result<Option<Place>, StoreError> {
        let name = self.ask.name.clone();
        self.shared
            .change(&self.ask.name, move |table| {
                Box::pin(async move { table.look(&name, token).await })
            })
            .await
    }

    fn grant(&self, token: Token, renewed: Instant) -> Turn {
        self.shared.newest.learn(token.get());
        Turn::Granted(Grant {
            name: self.ask.name.clone(),
            token,
            owner: self.ask.owner.clone(),
            ttl: self.ask.ttl,
            lease: self.waiting.lease().to_owned(),
            renewed,
        })
    }

    async fn give_up(&self) -> Result<Option<Turn>, StoreError> {
        let (name, lease) = (self.ask.name.clone(), self.waiting.lease().to_owned());
        match self.shared.leave(name, lease).await {
            Ok(holder) => Ok(Some(Turn::Held(holder))),
            Err(error) => {
                self.forget();
                Err(error)
            }
        }
    }

    /// For when the row may be there, and may even hold the lock.
    fn forget(&self) {
        let (name, lease) = (self.ask.name.clone(), self.waiting.lease().to_owned());
        tokio::spawn(forget(self.shared.clone(), name, lease, self.ask.ttl));
    }
}

/// In time to renew, and when the one before may have died.
fn until_next_look(lease: Duration, ahead: Duration) -> Duration {
    (lease / 3).min(ahead + Duration::from_millis(1))
}

/// Removes a row that may exist, or come to exist, unless it dies by itself before. There are never
/// more of these than have had a row, or a connection to make one, when the database went away.
async fn forget(shared: Arc<Shared>, name: Key, lease: String, ttl: Duration) {
    let lost = Instant::now();
    let mut delays = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .without_max_times()
        .with_jitter()
        .build();
    while lost.elapsed() < ttl {
        let left = shared.leave(name.clone(), lease.clone()).await;
        if left.is_ok() && lost.elapsed() > STRAGGLERS_ARRIVE_WITHIN {
            return;
        }
        tokio::time::sleep(delays.next().unwrap_or(STRAGGLERS_ARRIVE_WITHIN)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_is_in_time_for_the_lease_and_for_the_one_before() {
        let (short, long) = (Duration::from_secs(3), Duration::from_secs(30));
        assert_eq!(until_next_look(short, long), Duration::from_secs(1));
        assert_eq!(until_next_look(long, short), Duration::from_millis(3001));
    }
}
