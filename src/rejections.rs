//! What was refused: every write that the cache, the store or the parser has turned down.
//!
//! A rejection is recorded where it is counted (`metrics/writes.rs`), once, whether its client still
//! waits or not. The request's path pays for a place in a bounded queue and no more. A task takes
//! them out, names them, and puts them into the ring (`ring.rs`), from which they are listed and
//! followed (`follower.rs`); into the log (`log.rs`); and into the queue of another task that keeps
//! them in the store (`archivist.rs`).
//!
//! Whatever cannot keep up drops and counts. Nothing here can slow a write.

mod archivist;
mod filter;
mod follower;
mod inquiry;
mod log;
mod owners;
mod record;
mod rest;
mod ring;

use std::{
    cmp::Reverse,
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytesize::ByteSize;
use crossbeam_queue::ArrayQueue;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};

use self::{archivist::Archive, inquiry::Inquiry, log::Log, rest::Rest, ring::Ring};
pub use self::{
    archivist::{Archivist, Keep},
    filter::Filter,
    follower::Follower,
    inquiry::Inquirer,
    owners::Owners,
    record::{Caller, Entry, Id, Refused, Rejection},
    ring::News,
};
use crate::{
    authority::Authority,
    metrics::{Dropped, Where},
    store::Store,
};

/// Rejections that may wait to be taken in.
const QUEUE: usize = 4096;

/// Between two rounds of taking them in. Whoever asks does not wait for it.
const PAUSE: Duration = Duration::from_millis(5);

/// How long the store may take to say what it has kept.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connections that may follow the record at once: of clients, and of operators.
const FOLLOWERS: usize = 64;

struct Book {
    ring: Ring,
    log: Log,
}

pub struct Rejections {
    arrived: ArrayQueue<Rejection>,
    /// Whether the recorder waits for the bell. While it is busy, nobody needs to ring.
    rest: Rest,
    bell: Notify,
    book: Mutex<Book>,
    /// The number that the next entry will have.
    next: watch::Sender<u64>,
    fencepost: u64,
    owners: Arc<Owners>,
    followers: Arc<Semaphore>,
    operators: Arc<Semaphore>,
    dropped: Arc<Dropped>,
    /// Where they are kept in the store, too.
    archive: Option<Archive>,
    /// Where there is an authority.
    inquiry: Option<Inquiry>,
}

impl Rejections {
    /// `memory`: for the newest ones.
    pub fn new(memory: ByteSize) -> Self {
        let fencepost = fastrand::u64(..);
        let capacity = usize::try_from(memory.as_u64()).unwrap_or(usize::MAX);
        Self {
            arrived: ArrayQueue::new(QUEUE),
            rest: Rest::new(),
            bell: Notify::new(),
            book: Mutex::new(Book { ring: Ring::new(fencepost, capacity), log: Log::default() }),
            next: watch::Sender::new(1),
            fencepost,
            owners: Arc::default(),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            operators: Arc::new(Semaphore::new(FOLLOWERS)),
            dropped: Arc::default(),
            archive: None,
            inquiry: None,
        }
    }

    /// Keeps them in the store as well. The archivist is to be run once the store is fit to use.
    pub fn keep_in(&mut self, store: Arc<dyn Store>, keep: Keep) -> Archivist {
        let (archive, archivist) =
            Archive::new(store, keep, self.dropped.clone(), self.owners.clone());
        self.archive = Some(archive);
        archivist
    }

    /// Has the lock service asked who overtook a write, if that is not known here.
    pub fn ask(&mut self, authority: Arc<dyn Authority>) -> Inquirer {
        let (inquiry, inquirer) = Inquiry::new(authority, self.owners.clone());
        self.inquiry = Some(inquiry);
        inquirer
    }

    /// What tells this fencepost from the others on the store.
    pub fn fencepost(&self) -> u64 {
        self.fencepost
    }

    /// Who was granted which token.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// How many were left out, by where.
    pub fn dropped(&self) -> &Dropped {
        &self.dropped
    }

    /// Never waits. What finds no place is counted.
    pub fn record(&self, rejection: Rejection) {
        if self.arrived.push(rejection).is_err() {
            self.dropped.add(Where::Record, 1);
        }
        if self.rest.interrupt() {
            self.bell.notify_one();
        }
    }

    /// Takes in what has arrived, for as long as the process lives.
    pub async fn keep(self: Arc<Self>) {
        loop {
            self.rest.begin();
            if self.arrived.is_empty() {
                let rings = self.bell.notified();
                if self.book().log.owes_a_line() {
                    let _ = tokio::time::timeout(log::PERIOD, rings).await;
                } else {
                    rings.await;
                }
            }
            self.rest.end();
            self.take_in();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The newest that are remembered here.
    pub fn newest(&self, filter: &Filter, limit: usize) -> Vec<Arc<Entry>> {
        self.take_in();
        let newest = self.book().ring.newest_first(filter, limit);
        newest.into_iter().map(|entry| self.owners.complete(entry)).collect()
    }

    /// The newest of all fenceposts on the store: what is kept there, and what is here and perhaps
    /// not written yet. `None`: the store could not be asked, or nothing is kept there.
    pub async fn newest_anywhere(&self, filter: &Filter, limit: usize) -> Option<Vec<Arc<Entry>>> {
        let kept = self.archive.as_ref()?.newest(filter.clone(), limit);
        let kept = tokio::time::timeout(PATIENCE, kept).await.ok()??;
        let mut all = self.newest(filter, limit);
        let here: HashSet<Id> = all.iter().map(|entry| entry.id).collect();
        let elsewhere = kept.into_iter().filter(|entry| !here.contains(&entry.id));
        all.extend(elsewhere.map(|entry| self.owners.complete(Arc::new(entry))));
        all.sort_by_key(|entry| Reverse((entry.rejection.at, entry.id)));
        all.truncate(limit);
        Some(all)
    }

    /// Returns when all that was recorded until now is kept, as far as it can be.
    pub async fn finish(&self) {
        self.take_in();
        if let Some(archive) = &self.archive {
            archive.written().await;
        }
    }

    /// Follows the record from now on, or from after `last`, if that was one of ours. `None`: there
    /// are as many followers as there may be.
    ///
    /// `by_operator`: they have places of their own, so that no client keeps them from looking.
    pub fn follow(
        self: &Arc<Self>,
        filter: Filter,
        last: Option<Id>,
        by_operator: bool,
    ) -> Option<Follower> {
        let places = if by_operator { &self.operators } else { &self.followers };
        let place = places.clone().try_acquire_owned().ok()?;
        self.take_in();
        let now = self.book().ring.next();
        let last = last.filter(|id| id.fencepost == self.fencepost);
        let next = last.map_or(now, |id| id.number.saturating_add(1).min(now));
        Some(Follower {
            rejections: self.clone(),
            filter,
            next,
            newest: self.next.subscribe(),
            not_before: Instant::now(),
            _place: place,
        })
    }

    fn news(&self, from: u64, filter: &Filter, limit: usize, bytes: usize) -> News {
        let news = self.book().ring.news(from, filter, limit, bytes);
        self.dropped.add(Where::Stream, news.dropped);
        news
    }

    fn take_in(&self) {
        let mut book = self.book();
        let Book { ring, log } = &mut *book;
        // No more than there was room for, or a flood would never let go.
        let arrived = (0..QUEUE).map_while(|_| self.arrived.pop());
        let taken_in = arrived.map(|rejection| {
            let overtaken_by = rejection.overtaken_at().and_then(|token| self.owners.of(token));
            if let (None, Some(inquiry)) = (&overtaken_by, &self.inquiry) {
                inquiry.wonder(&rejection);
            }
            let entry = ring.push(rejection, overtaken_by);
            if self.archive.as_ref().is_some_and(|archive| !archive.append(entry.clone())) {
                self.dropped.add(Where::Audit, 1);
            }
            entry
        });
        let lines = log.choose(taken_in);
        let next = ring.next();
        self.next.send_if_modified(|known| std::mem::replace(known, next) != next);
        drop(book);
        // Whoever reads the log may be slow.
        lines.write();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Rejections {
    fn default() -> Self {
        Self::new(ByteSize::mib(4))
    }
}
