//! Renewing and releasing. Both compare the key's `create_revision` in the transaction that decides,
//! so a renewal never resurrects, and a release never frees a successor.
//!
//! A grant is found by its token, so it does not matter which fencepost has handed it out. The token
//! of somebody who still waits is no grant, and can be guessed: only the head of a queue counts. That
//! may be looked at before the transaction, since the head stays the head until it goes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tokio::time::Instant;

use super::{EtcdAuthority, epoch, members::PATIENCE, pairs_of, queue::oldest};
use crate::{
    authority::AuthorityError,
    store::Remembered,
    token::{Key, Token},
};

/// What the last question of a renewal gets at least. With no time at all it would fail at once, and
/// etcd would be taken for lost.
const A_MOMENT: Duration = Duration::from_millis(500);

/// Where a grant is in etcd.
#[derive(Clone, Debug)]
pub struct Held {
    pub key: Vec<u8>,
    pub lease: i64,
    pub ttl: Duration,
}

/// An entry with a token.
struct Found {
    /// The row as it was known before etcd was asked.
    row: Remembered,
    held: Held,
    /// Whether it is known to be the head of its queue. If not, it may be somebody who waits.
    granted: bool,
}

impl EtcdAuthority {
    pub(super) async fn renew_held(
        &self,
        name: &Key,
        token: Token,
    ) -> Result<Option<Duration>, AuthorityError> {
        let Some(Found { row, held, .. }) = self.find(name, token).await? else { return Ok(None) };
        // An answer that comes when the lease is over already helps nobody.
        let deadline = Instant::now() + PATIENCE.min(held.ttl);
        let left = || deadline.saturating_duration_since(Instant::now());
        if !self.leases.keep_alive(held.lease, left()).await? {
            self.forget(name, token);
            return Ok(None);
        }
        let created = epoch::parts(token).1;
        let directory = self.layout.directory(name);
        let answer = self
            .members
            .ask(left().max(A_MOMENT), |mut client| {
                let txn = Txn::new()
                    .when([is_ours(&held, created)])
                    .and_then([TxnOp::get(directory.clone(), Some(oldest()))]);
                async move { client.txn(txn).await }
            })
            .await?;
        if epoch::has_gone_backwards(&row, &epoch::sighting(answer.header())?)? {
            let row = self.lookout.look().await?;
            if row.epoch != epoch::parts(token).0 {
                return Ok(None);
            }
        }
        let [oldest] = pairs_of(&answer)?;
        let first = match oldest.first() {
            _ if !answer.succeeded() => false,
            Some(pair) if pair.create_revision() == created => true,
            Some(pair) if self.layout.entry_of(name, pair).is_some() => false,
            // Something else is older. It takes a closer look.
            _ => self.is_head(name, token).await?,
        };
        if !first {
            self.forget(name, token);
            return Ok(None);
        }
        let ttl = held.ttl;
        self.grants.insert(token, held);
        Ok(Some(ttl))
    }

    pub(super) async fn release_held(
        &self,
        name: &Key,
        token: Token,
    ) -> Result<bool, AuthorityError> {
        let Some(Found { row, held, granted }) = self.find(name, token).await? else {
            return Ok(false);
        };
        if !granted && !self.is_head(name, token).await? {
            return Ok(false);
        }
        let created = epoch::parts(token).1;
        let repeated = AtomicBool::new(false);
        let once = AtomicBool::new(false);
        let answer = self
            .members
            .ask(PATIENCE, |mut client| {
                repeated.store(once.swap(true, Ordering::Relaxed), Ordering::Relaxed);
                let txn = Txn::new()
                    .when([is_ours(&held, created)])
                    .and_then([TxnOp::delete(held.key.clone(), None)]);
                async move { client.txn(txn).await }
            })
            .await?;
        self.forget(name, token);
        if epoch::has_gone_backwards(&row, &epoch::sighting(answer.header())?)? {
            self.lookout.look().await?;
        }
        let mut released = answer.succeeded();
        if !released && repeated.load(Ordering::Relaxed) {
            // Perhaps the first attempt has done it, and its answer was lost. An end of the lease
            // would have taken the lease, too.
            released = self.leases.time_left(held.lease).await?.is_some();
        }
        if released {
            self.leases.revoke_later(held.lease);
        }
        Ok(released)
    }

    /// `None`: there is no such entry.
    async fn find(&self, name: &Key, token: Token) -> Result<Option<Found>, AuthorityError> {
        let mut row = self.lookout.known().await?;
        let (epoch, created) = epoch::parts(token);
        if row.epoch < epoch {
            // A token that is not ours, or another fencepost has noticed something that we have not.
            row = self.lookout.row().await?;
        }
        if row.epoch != epoch {
            return Ok(None);
        }
        if let Some(held) = self.grants.get(&token)
            && held.key == self.layout.key(name, held.lease)
        {
            return Ok(Some(Found { row, held, granted: true }));
        }
        let options = GetOptions::new()
            .with_prefix()
            .with_min_create_revision(created)
            .with_max_create_revision(created)
            .with_keys_only();
        let directory = self.layout.directory(name);
        let found =
            self.transact(Txn::new().and_then([TxnOp::get(directory, Some(options))])).await?;
        let [pairs] = pairs_of(&found)?;
        let mut entries = pairs.iter().filter_map(|pair| self.layout.entry_of(name, pair));
        // A key that is not named after a lease is no grant.
        let Some((key, lease)) = entries.find_map(|entry| Some((entry.key, entry.lease?))) else {
            return Ok(None);
        };
        let Some(left) = self.leases.time_left(lease).await? else { return Ok(None) };
        let held = Held { key, lease, ttl: left.ttl };
        Ok(Some(Found { row, held, granted: false }))
    }

    async fn is_head(&self, name: &Key, token: Token) -> Result<bool, AuthorityError> {
        let view = self.queue_of(name).await?;
        let head = view.queue.first().map(|head| (view.epoch, head.created));
        Ok(head == Some(epoch::parts(token)))
    }

    fn forget(&self, name: &Key, token: Token) {
        self.grants.remove(&token);
        self.believed_held.remove(name);
    }
}

fn is_ours(held: &Held, created: i64) -> Compare {
    Compare::create_revision(held.key.clone(), CompareOp::Equal, created)
}
