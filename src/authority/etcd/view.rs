//! Looking at locks without touching them.
//!
//! Whatever else is kept next to locks may be large, so keys are read without their values, and page
//! by page.

use std::collections::{BTreeMap, btree_map};

use etcd_client::{GetOptions, KeyValue, Txn, TxnOp};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    EtcdAuthority, epoch,
    layout::{Entry, Value},
    leases::TimeLeft,
    pairs_of,
};
use crate::{
    auth::Identity,
    authority::{AuthorityError, Holder, LockState},
    store::{Page, Sighting},
    token::Key,
};

/// Keys per request when there may be many.
pub(super) const KEYS: u16 = 1000;

/// Locks kept of one scan for a page of holders.
const HEADS: usize = 10_000;

/// Holders asked about at the same time.
const AT_ONCE: usize = 16;

/// The entries of a lock, the oldest first, as they were at a revision.
pub(super) struct View {
    pub queue: Vec<Entry>,
    pub revision: i64,
    pub epoch: u16,
}

impl EtcdAuthority {
    /// All entries of a lock, and the epoch that their tokens are of.
    pub(super) async fn queue_of(&self, name: &Key) -> Result<View, AuthorityError> {
        let mut queue = Vec::new();
        let range = self.layout.directory_range(name);
        let (epoch, seen) =
            self.scan(range, |pair| queue.extend(self.layout.entry_of(name, pair))).await?;
        queue.sort_unstable_by_key(|entry| entry.created);
        Ok(View { queue, revision: seen.revision, epoch })
    }

    pub(super) async fn holder(&self, name: &Key) -> Result<Option<Holder>, AuthorityError> {
        Ok(self.state_of(name).await?.holder)
    }

    pub(super) async fn state_of(&self, name: &Key) -> Result<LockState, AuthorityError> {
        let View { queue, revision, epoch } = self.queue_of(name).await?;
        let Some(first) = queue.first() else { return Ok(LockState::default()) };
        let (holder, granted_to) = self.holder_of(name, first, revision, epoch).await?;
        Ok(LockState { holder: Some(holder), granted_to, waiters: queue.len() as u64 - 1 })
    }

    /// Of the keys that are named like entries, some are other data, and those name a lease that does not
    /// exist. So far more entries than fit on a page are kept of each scan, and are gone through until the
    /// page is full.
    pub(super) async fn list_held(&self, page: &Page) -> Result<Vec<Holder>, AuthorityError> {
        let limit = page.limit as usize;
        let (mut page, mut listed) = (page.clone(), Vec::new());
        loop {
            let (heads, epoch, seen) = self.heads_of(&page).await?;
            let all_seen = heads.len() < HEADS;
            if let Some((last, _)) = heads.last_key_value() {
                page.after = last.as_str().into();
            }
            let live: Vec<Holder> = stream::iter(heads)
                .map(|(name, entry)| async move {
                    if self.time_left(&entry).await?.is_none() {
                        return Ok(None);
                    }
                    let (holder, _) = self.holder_of(&name, &entry, seen.revision, epoch).await?;
                    Ok::<_, AuthorityError>(Some(holder))
                })
                .buffered(AT_ONCE)
                .try_filter_map(|found| async move { Ok(found) })
                .take(limit - listed.len())
                .try_collect()
                .await?;
            listed.extend(live);
            if listed.len() >= limit || all_seen {
                return Ok(listed);
            }
        }
    }

    /// The oldest entry of each lock on a page, in the order of their names.
    async fn heads_of(
        &self,
        page: &Page,
    ) -> Result<(BTreeMap<Key, Entry>, u16, Sighting), AuthorityError> {
        let mut heads: BTreeMap<Key, Entry> = BTreeMap::new();
        let range = self.layout.listing(&page.prefix);
        let (epoch, seen) = self
            .scan(range, |pair| {
                let Some(name) = self.layout.name_of(pair) else { return };
                // A prefix may end within a lease's hex digits, which are no part of the name.
                if !name.as_str().starts_with(&page.prefix) || name.as_str() <= &*page.after {
                    return;
                }
                match heads.entry(name) {
                    btree_map::Entry::Vacant(free) => drop(free.insert(Entry::of(pair))),
                    btree_map::Entry::Occupied(mut other) => {
                        if pair.create_revision() < other.get().created {
                            other.insert(Entry::of(pair));
                        }
                    }
                }
                // Keys are not sorted as names are, so any of the rest may belong to the page.
                if heads.len() > HEADS {
                    heads.pop_last();
                }
            })
            .await?;
        Ok((heads, epoch, seen))
    }

    /// The entry as its lock's holder, and whose grant it is.
    async fn holder_of(
        &self,
        name: &Key,
        entry: &Entry,
        revision: i64,
        epoch: u16,
    ) -> Result<(Holder, Option<Identity>), AuthorityError> {
        let (left, value) = tokio::join!(
            Box::pin(self.time_left(entry)),
            Box::pin(self.value_of(entry, revision)),
        );
        let Value { owner, identity } = value?;
        let holder = Holder {
            name: name.clone(),
            token: epoch::token(epoch, entry.created)?,
            owner,
            remaining: left?.map(|left| left.remaining).unwrap_or_default(),
        };
        Ok((holder, identity))
    }

    /// What is left of an entry's lease. `None`: the lease has ended, or the entry names none.
    pub(super) async fn time_left(
        &self,
        entry: &Entry,
    ) -> Result<Option<TimeLeft>, AuthorityError> {
        match entry.lease {
            Some(lease) => Ok(self.leases.time_left(lease).await?),
            None => Ok(None),
        }
    }

    /// What an entry says that was there at this revision, whether it still is or not. A key that does
    /// not hang on the lease it names is other data, and its value is not for clients to see.
    pub(super) async fn value_of(
        &self,
        entry: &Entry,
        revision: i64,
    ) -> Result<Value, AuthorityError> {
        if let Some(value) = &entry.value {
            return Ok(value.clone());
        }
        let then = GetOptions::new().with_revision(revision);
        let get = TxnOp::get(entry.key.clone(), Some(then));
        let [pairs] = pairs_of(&self.transact(Txn::new().and_then([get])).await?)?;
        let own = pairs.first().filter(|pair| Some(pair.lease()) == entry.lease);
        Ok(own.map(Value::of).unwrap_or_default())
    }

    /// Visits each key of a range without its value, all as they were at the revision that is
    /// returned, with the epoch they are of.
    async fn scan(
        &self,
        (mut start, end): (Vec<u8>, Vec<u8>),
        mut visit: impl FnMut(&KeyValue),
    ) -> Result<(u16, Sighting), AuthorityError> {
        let row = self.lookout.known().await?;
        let mut first: Option<(u16, Sighting)> = None;
        loop {
            let mut options =
                GetOptions::new().with_range(end.clone()).with_limit(KEYS.into()).with_keys_only();
            if let Some((_, seen)) = &first {
                options = options.with_revision(seen.revision);
            }
            let get = TxnOp::get(start.clone(), Some(options));
            let answer = self.transact(Txn::new().and_then([get])).await?;
            let seen = if let Some(seen) = first.take() {
                seen
            } else {
                let seen = epoch::sighting(answer.header())?;
                let backwards = epoch::has_gone_backwards(&row, &seen)?;
                let epoch = if backwards { self.lookout.look().await?.epoch } else { row.epoch };
                (epoch, seen)
            };
            let [pairs] = pairs_of(&answer)?;
            pairs.iter().for_each(&mut visit);
            let Some(last) = pairs.last().filter(|_| pairs.len() == usize::from(KEYS)) else {
                return Ok(seen);
            };
            start = [last.key(), b"\0"].concat();
            first = Some(seen);
        }
    }
}
