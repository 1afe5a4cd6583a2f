//! The queue for a lock: everyone who wants it enters a key under a lease of its own, and the oldest
//! key holds.
//!
//! A waiter watches only the entry just before its own, so that a release wakes one and not all.
//! Whatever happens to etcd meanwhile, it goes on waiting; if its entry is lost, it enters again.
//! When it gives up, its lease is revoked, and its key goes with it.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use tokio::time::{Instant, sleep};

use super::{
    EtcdAuthority, Held, epoch,
    layout::{Entry, Value},
    leases::Lease,
    members::PATIENCE,
    pairs_of,
    trouble::Trouble,
    view::KEYS,
    vigil::Watched,
};
use crate::{
    authority::{Ask, AuthorityError, Grant, Turn},
    store::{Remembered, Sighting},
    token::Key,
};

/// How long to wait before etcd is asked again after it did not answer.
const PAUSE: Duration = Duration::from_millis(300);

/// How often a place is confirmed anew because the epoch moved meanwhile.
const ATTEMPTS: usize = 5;

/// A place in the queue.
pub(super) struct Place {
    pub key: Vec<u8>,
    pub created: i64,
    pub lease: Lease,
}

/// What etcd showed when it was asked about a place.
struct Survey {
    seen: Sighting,
    /// The entry just before it.
    before: Option<Entry>,
}

/// How a place was entered.
enum Entered {
    /// With nobody before it; what was remembered, and what etcd showed afterwards.
    AtTheHead(Remembered, Sighting),
    /// With somebody before it, in this epoch.
    Behind(u16, Sighting),
    /// The place showed that etcd had gone backwards. It is part of the epoch that has begun.
    OverAMove,
}

enum Waited {
    Granted(Grant),
    /// The entry has gone: its lease ran out while etcd could not be reached, or etcd lost it.
    Displaced,
    /// The time is over, or nobody waits any more.
    Over,
}

impl EtcdAuthority {
    pub(super) async fn queue_up(&self, ask: &Ask) -> Result<Turn, AuthorityError> {
        if is_over(ask) && self.believed_held.get(&ask.name).is_some() {
            // A look is cheaper than to enter and to leave again.
            if let Some(holder) = self.holder(&ask.name).await? {
                return Ok(Turn::Held(Some(holder)));
            }
            self.believed_held.remove(&ask.name);
        }
        // Leases that were granted ahead are lost with an etcd that was wiped. That is no reason to call
        // a lock held: even who has no time to wait gets another try.
        let mut once_more = true;
        loop {
            let (mut place, entered) = match self.enter(ask).await? {
                Some(entered) => entered,
                None if is_over(ask) && !std::mem::take(&mut once_more) => {
                    return Ok(Turn::Held(None));
                }
                None => continue,
            };
            match self.wait(ask, &mut place, entered).await {
                Ok(Waited::Granted(grant)) => return Ok(Turn::Granted(grant)),
                Ok(Waited::Displaced) => self.abandon(ask, place.lease).await,
                Ok(Waited::Over) => return self.leave(ask, &place).await,
                Err(error) => {
                    self.abandon(ask, place.lease).await;
                    return Err(error);
                }
            }
        }
    }

    /// Enters the queue. `None`: etcd lost the lease before it could be used.
    async fn enter(&self, ask: &Ask) -> Result<Option<(Place, Entered)>, AuthorityError> {
        // What is remembered is read before etcd is asked for a place, so that the place proves
        // whether etcd still remembers as much.
        let (row, lease) = tokio::join!(self.lookout.row(), self.leases.grant(ask.ttl));
        let lease = lease?;
        let entered = match row {
            Ok(row) => self.enter_under(ask, lease, row).await,
            Err(error) => Err(error),
        };
        if !matches!(entered, Ok(Some(_))) {
            self.abandon(ask, lease).await;
        }
        entered
    }

    /// One transaction makes the entry and says who is at the head of the queue: mostly nobody, and
    /// to find that out costs etcd the least.
    async fn enter_under(
        &self,
        ask: &Ask,
        lease: Lease,
        row: Remembered,
    ) -> Result<Option<(Place, Entered)>, AuthorityError> {
        let key = self.layout.key(&ask.name, lease.id);
        let directory = self.layout.directory(&ask.name);
        let value = Value { owner: ask.owner.clone(), identity: ask.identity.clone() }.encode();
        let entered = self
            .members
            .ask(PATIENCE, |mut client| {
                let put = PutOptions::new().with_lease(lease.id);
                let put = TxnOp::put(key.clone(), value.clone(), Some(put));
                let mine = TxnOp::get(key.clone(), Some(GetOptions::new().with_keys_only()));
                let head = TxnOp::get(directory.clone(), Some(oldest()));
                let nothing = Compare::create_revision(directory.clone(), CompareOp::Equal, 0);
                let txn = Txn::new()
                    .when([nothing.with_prefix()])
                    .and_then([put.clone(), mine.clone()])
                    // If our entry is there, made by a request whose answer was lost, it keeps its
                    // place.
                    .or_else([put, mine, head]);
                async move { client.txn(txn).await }
            })
            .await;
        let entered = match entered {
            Err(Trouble::NoSuchLease) => return Ok(None),
            entered => entered?,
        };
        let [mine, head] = pairs_of(&entered)?;
        // Read back, never taken from the header: that is later where the request was repeated.
        let Some(mine) = mine.first() else { return Ok(None) };
        let place = Place { key, created: mine.create_revision(), lease };
        // Our own entry is no sign of memory: what counts is how far etcd had come before it. One
        // that was wiped might otherwise just reach what is remembered, and issue a token twice.
        let seen = Sighting { revision: place.created - 1, ..epoch::sighting(entered.header())? };
        if epoch::has_gone_backwards(&row, &seen)? {
            self.lookout.move_on(row, &seen).await?;
            return Ok(Some((place, Entered::OverAMove)));
        }
        let before = match head.first() {
            _ if entered.succeeded() => None,
            Some(head) if head.create_revision() == place.created => None,
            Some(head) if self.layout.entry_of(&ask.name, head).is_some() => Some(Entry::of(head)),
            // A key further below this lock is older. It takes a closer look.
            _ => match self.survey(&ask.name, &place).await? {
                None => return Ok(None),
                Some(survey) => survey.before,
            },
        };
        let entered = match before {
            None => Entered::AtTheHead(row, seen),
            Some(_) => Entered::Behind(row.epoch, Sighting { revision: place.created, ..seen }),
        };
        Ok(Some((place, entered)))
    }

    async fn wait(
        &self,
        ask: &Ask,
        place: &mut Place,
        entered: Entered,
    ) -> Result<Waited, AuthorityError> {
        // Whether it may be our turn: then what is remembered is read before etcd is asked.
        let mut perhaps = matches!(entered, Entered::OverAMove);
        match entered {
            Entered::AtTheHead(row, seen) => {
                if let Some(waited) = self.take_turn(ask, place, row, seen).await? {
                    return Ok(waited);
                }
            }
            Entered::Behind(epoch, seen) if !is_over(ask) => self.note_ahead(epoch, seen),
            Entered::Behind(..) | Entered::OverAMove => {}
        }
        while perhaps || !is_over(ask) {
            if self.lookout.is_foreign() {
                // An error, unless that has just changed.
                self.lookout.look().await?;
            }
            let (row, kept) = tokio::join!(
                async { if perhaps { Some(self.lookout.row().await) } else { None } },
                self.keep(place, if perhaps { 10 } else { 3 }),
            );
            if kept == Some(false) {
                return Ok(Waited::Displaced);
            }
            let Survey { seen, before } = match self.survey(&ask.name, place).await {
                Ok(Some(survey)) => survey,
                Ok(None) => return Ok(Waited::Displaced),
                // It is away. That is no reason to lose a place in the queue.
                Err(AuthorityError::Unavailable(_)) if !is_over(ask) => {
                    pause(ask).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(before) = before else {
                match row {
                    None => perhaps = true,
                    Some(row) => {
                        if let Some(waited) = self.take_turn(ask, place, row?, seen).await? {
                            return Ok(waited);
                        }
                    }
                }
                continue;
            };
            perhaps = match self.watch_until_gone(ask, place, &before, seen.revision).await {
                Watched::Gone => true,
                Watched::Unsure => false,
                Watched::Displaced => return Ok(Waited::Displaced),
                Watched::Over => break,
            };
        }
        Ok(Waited::Over)
    }

    /// Nobody is before us. The grant stands once its revision is remembered, in the epoch that
    /// etcd was in when it showed us at the head. `None`: somebody is before us after all.
    async fn take_turn(
        &self,
        ask: &Ask,
        place: &Place,
        mut row: Remembered,
        mut seen: Sighting,
    ) -> Result<Option<Waited>, AuthorityError> {
        for _ in 0..ATTEMPTS {
            let epoch = row.epoch;
            if epoch::has_gone_backwards(&row, &seen)? {
                self.lookout.move_on(row, &seen).await?;
            } else {
                let noted = Sighting { revision: place.created, ..seen };
                if self.keeper.note(epoch, noted).await?.epoch == epoch {
                    return self.granted(ask, place, epoch).map(Some);
                }
            }
            // The epoch has moved. Whether our entry is part of the new one, only etcd knows.
            row = self.lookout.row().await?;
            match self.survey(&ask.name, place).await? {
                None => return Ok(Some(Waited::Displaced)),
                Some(Survey { before: Some(_), .. }) => return Ok(None),
                Some(survey) => seen = survey.seen,
            }
        }
        Err(AuthorityError::Unavailable("the epoch has no rest".into()))
    }

    fn granted(&self, ask: &Ask, place: &Place, epoch: u16) -> Result<Waited, AuthorityError> {
        let token = epoch::token(epoch, place.created)?;
        let held = Held { key: place.key.clone(), lease: place.lease.id, ttl: place.lease.ttl };
        self.grants.insert(token, held);
        self.believed_held.insert(ask.name.clone(), ());
        self.leases.prepare(ask.ttl);
        Ok(Waited::Granted(Grant {
            name: ask.name.clone(),
            token,
            owner: ask.owner.clone(),
            ttl: place.lease.ttl,
            lease: format!("{:x}", place.lease.id),
            renewed: place.lease.renewed,
        }))
    }

    /// By the time our turn comes, our revision is remembered already.
    fn note_ahead(&self, epoch: u16, seen: Sighting) {
        let keeper = self.keeper.clone();
        tokio::spawn(async move { keeper.note(epoch, seen).await });
    }

    /// Keeps a waiter's lease, if a fair share of its time has passed. `Some(false)`: it has ended.
    /// No answer is no news: the entry itself will tell.
    pub(super) async fn keep(&self, place: &mut Place, share: u32) -> Option<bool> {
        if place.lease.renewed.elapsed() < place.lease.ttl / share {
            return None;
        }
        let renewed = Instant::now();
        let patience = PATIENCE.min(place.lease.ttl);
        let kept = self.leases.keep_alive(place.lease.id, patience).await.ok();
        if kept == Some(true) {
            place.lease.renewed = renewed;
        }
        kept
    }

    /// Where we are in the queue. `None`: nowhere.
    ///
    /// Among the older keys may be many that belong to locks below this one, or to nobody. They are
    /// gone through from the youngest on. No older entry can appear meanwhile, so that the last
    /// answer, which shows our own, speaks for them all.
    async fn survey(&self, name: &Key, place: &Place) -> Result<Option<Survey>, AuthorityError> {
        let directory = self.layout.directory(name);
        let mut youngest = place.created - 1;
        let mut limit = 1;
        loop {
            let older = GetOptions::new()
                .with_prefix()
                .with_max_create_revision(youngest)
                .with_sort(SortTarget::Create, SortOrder::Descend)
                .with_limit(limit)
                .with_keys_only();
            let older = TxnOp::get(directory.clone(), Some(older));
            let mine = TxnOp::get(place.key.clone(), Some(GetOptions::new().with_keys_only()));
            let answer = self.transact(Txn::new().and_then([mine, older])).await?;
            let [mine, pairs] = pairs_of(&answer)?;
            if mine.first().is_none_or(|mine| mine.create_revision() != place.created) {
                return Ok(None);
            }
            let seen = epoch::sighting(answer.header())?;
            let before = pairs.iter().find_map(|pair| self.layout.entry_of(name, pair));
            let more = i64::try_from(pairs.len()).is_ok_and(|count| count == limit);
            let Some(last) = pairs.last().filter(|_| before.is_none() && more) else {
                return Ok(Some(Survey { seen, before }));
            };
            if limit > 1 {
                // Several keys can be of one revision, and the page may have ended between them.
                youngest = last.create_revision().min(youngest - 1);
            }
            limit = KEYS.into();
        }
    }

    /// Sees to it that an entry, if there is one, goes. Where nobody waits for an answer any more, as
    /// when the process is about to end, the first attempt is waited for.
    async fn abandon(&self, ask: &Ask, lease: Lease) {
        if !ask.gone.is_cancelled() || self.leases.revoke(lease.id).await.is_err() {
            self.leases.abandon(lease);
        }
    }

    /// Gives up the place, at once.
    async fn leave(&self, ask: &Ask, place: &Place) -> Result<Turn, AuthorityError> {
        if let Err(trouble) = self.leases.revoke(place.lease.id).await {
            self.leases.abandon(place.lease);
            return Err(trouble.into());
        }
        self.believed_held.insert(ask.name.clone(), ());
        if ask.gone.is_cancelled() {
            return Ok(Turn::Held(None));
        }
        Ok(Turn::Held(self.holder(&ask.name).await?))
    }
}

/// The head of a queue, or something else that is older.
pub(super) fn oldest() -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
        .with_limit(1)
        .with_keys_only()
}

fn is_over(ask: &Ask) -> bool {
    ask.gone.is_cancelled() || ask.until <= Instant::now()
}

async fn pause(ask: &Ask) {
    tokio::select! {
        () = sleep(PAUSE) => {}
        () = tokio::time::sleep_until(ask.until) => {}
        () = ask.gone.cancelled() => {}
    }
}
