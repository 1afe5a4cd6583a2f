//! Between the handlers and the store: refuses from memory what is surely stale, queues the rest,
//! and owns every database connection.
//!
//! A handler's future can be dropped at any await, when its client hangs up. So no handler touches
//! a connection: it hands its work to a lane (`writer.rs`, `reader.rs`) and waits for the answer. Work
//! that a lane has taken is always finished, whether somebody still waits or not.

mod delivery;
mod detour;
mod fenced_read;
mod gather;
mod link;
pub mod marks;
mod queue;
mod reader;
mod succession;
mod trust;
mod writer;
mod writing;

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use bytesize::ByteSize;
use tokio::{runtime::Handle, sync::oneshot};

pub use self::trust::Trust;
use self::{
    delivery::Delivery,
    link::Purpose,
    marks::Marks,
    queue::Queue,
    reader::Reading,
    succession::Succession,
    writing::{Desk, Writing},
};
use crate::{
    authority::{Authority, AuthorityError},
    metrics::{Begun, Metrics},
    rejections::{Caller, Rejections},
    store::{Listed, Page, Settled, Snapshot, Store, StoreError, Unit},
    threads::{self, Lane, Threads},
    token::{Key, Token},
    write::{Rule, Write},
};

/// How many connections read: one on each thread, and one for listings, since a slow one must not delay
/// other reads.
pub fn readers(threads: usize) -> usize {
    threads + 1
}

/// Writes on their way that are better off in one lane, even if there is a processor for another.
const ENOUGH_FOR_ONE_LANE: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs that may wait in one lane; beyond that a request is turned away at once.
    pub queue: usize,
    /// Memory for the cache of marks.
    pub mark_cache: ByteSize,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// The queue is full. Nothing was changed.
    #[error("too many requests are waiting")]
    Overloaded,
    /// There is no memory for a value. Nothing was changed.
    #[error("there is no memory for the value")]
    NoRoom,
    /// The process is about to end. Nothing was changed.
    #[error("shutting down")]
    ShuttingDown,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The token was granted to somebody else, or to nobody who is known. Nothing was changed.
    #[error("the token was granted to somebody else")]
    NotTheirs,
    /// Whether the token can have been issued is not known. Nothing was changed.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// Memory for a value that is to be fetched.
pub trait Reserve: Send {
    /// Whether there is memory for so many bytes in all. They are then taken.
    fn reserve(&mut self, bytes: u64) -> bool;
}

pub struct Engine {
    /// Set once the store has been found fit to use. Until then nothing reaches it.
    open: AtomicBool,
    /// Set while the store belongs to another authority, where that would let foreign tokens in.
    foreign: AtomicBool,
    writers: Vec<Queue<Writing>>,
    /// One on each thread.
    readers: Vec<Queue<Reading>>,
    lister: Queue<Reading>,
    detoured: Arc<AtomicUsize>,
    /// Writes that wait for a lane or for the store.
    writing: AtomicUsize,
    /// Up to so many of them, the first lane takes them all. Two batches of half the size cost Postgres and
    /// us more.
    one_lane: usize,
    marks: Arc<Marks>,
    succession: Arc<Succession>,
    trust: Trust,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// Starts the lanes. They connect when they are first needed, and again after a failure.
    pub fn start(
        store: &Arc<dyn Store>,
        trust: Trust,
        limits: Limits,
        metrics: Arc<Metrics>,
        threads: &Threads,
    ) -> Self {
        let marks = Arc::new(Marks::new(limits.mark_cache));
        metrics.queue_limit.set(i64::try_from(limits.queue).unwrap_or(i64::MAX));
        let detoured = Arc::new(AtomicUsize::new(0));
        let succession = Arc::new(Succession::new(marks.clone()));
        store.settle_with(succession.clone());
        let desk = Desk {
            marks: marks.clone(),
            metrics: metrics.clone(),
            detoured: detoured.clone(),
            succession: succession.clone(),
            losses: Arc::default(),
            delivery: Delivery::start(threads),
        };
        let start_writer =
            |on: &Handle| writer::start(store.clone(), desk.clone(), limits.queue, on);
        let start_reader = |on: &Handle, purpose| {
            reader::start(store.clone(), desk.clone(), limits.queue, on, purpose)
        };
        let runtimes: Vec<&Handle> = threads.runtimes().collect();
        let watched = store.clone();
        runtimes[0].spawn(async move { watched.watch_for_takeover().await });
        Self {
            open: AtomicBool::new(false),
            foreign: AtomicBool::new(false),
            writers: runtimes
                .iter()
                .cycle()
                .take(store.writers())
                .map(|on| start_writer(on))
                .collect(),
            readers: runtimes.iter().map(|on| start_reader(on, Purpose::Reading)).collect(),
            lister: start_reader(runtimes[0], Purpose::Patient),
            detoured,
            writing: AtomicUsize::new(0),
            one_lane: share_of_the_first(threads, limits.queue),
            marks,
            succession,
            trust,
            metrics,
        }
    }

    /// Names who knows the newest token, should another database server take over.
    pub fn consult(&self, authority: Arc<dyn Authority>) {
        self.succession.consult(authority);
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub fn rejections(&self) -> &Arc<Rejections> {
        self.metrics.writes.rejections()
    }

    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Says whether the store belongs to another authority: then nothing reaches it.
    pub fn set_foreign(&self, foreign: bool) {
        self.foreign.store(foreign, Ordering::Release);
    }

    pub fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// Writes, or is refused. A refusal is an answer, not an error.
    pub async fn settle(&self, unit: Unit) -> Result<Settled, EngineError> {
        let begun = Begun::now(&unit);
        if let Some(spans) = &self.metrics.spans {
            spans.parsed(unit.caller());
        }
        if let Some(refused) = self.marks.refuse(&unit) {
            threads::goes_by(Lane::Own);
            self.metrics.writes.stale_by_cache(begun, &unit, &refused);
            return Ok(refused);
        }
        let settled = match self.trust.refuse(&unit, &self.marks, self).await {
            Ok(None) => self.read_if_claimed(&unit).await,
            refused => refused,
        };
        match settled {
            Ok(None) => self.queue(unit, begun).await,
            Ok(Some(settled)) => {
                self.metrics.writes.settled_by_store(begun, &unit, &settled);
                Ok(settled)
            }
            Err(error) => {
                self.metrics.writes.failed(begun);
                Err(error)
            }
        }
    }

    /// Raises a mark to a token that the authority has just granted: nothing more trustworthy.
    pub async fn claim(
        &self,
        name: Key,
        token: Token,
        owner: &str,
    ) -> Result<Settled, EngineError> {
        let owner = (!owner.is_empty()).then(|| owner.into());
        let caller = Caller { client: owner, ..Caller::default() };
        // Above: if an authority that has lost its memory issues a token twice before anybody can
        // notice, the second claim of it is refused, and the grant undone.
        let claim = Write { rule: Rule::Above, ..Write::claim(name, token) };
        let claim = Unit::single(claim).from(Arc::new(caller));
        let begun = Begun::grant(&claim);
        self.queue(claim, begun).await
    }

    async fn queue(&self, unit: Unit, begun: Begun) -> Result<Settled, EngineError> {
        threads::goes_by(Lane::Shared);
        let on_the_way = OnTheWay::of(&self.writing);
        let lane = self.writer_of(&unit.writes()[0].key, on_the_way.before_it);
        let (reply, answer) = oneshot::channel();
        let failed = |error| {
            self.metrics.writes.failed(begun);
            error
        };
        let place = threads::place();
        self.submit(lane, Writing { unit, begun, place, reply }).map_err(failed)?;
        // A lane answers and counts every job it has taken, unless it died with it in its hands.
        answer.await.unwrap_or_else(|_| Err(failed(lost_in_flight())))
    }

    /// The newest committed state of a key, for a client that just wants to read it. A large value is left
    /// out of it: see [`Self::fetch`].
    pub async fn read(&self, key: Key) -> Result<Snapshot, EngineError> {
        threads::goes_by(Lane::Own);
        self.newest(key).await
    }

    /// The same with its value, however large that is, once there is memory for it.
    pub async fn fetch(
        &self,
        key: &Key,
        mut found: Snapshot,
        room: &mut dyn Reserve,
    ) -> Result<Snapshot, EngineError> {
        // It may have become larger on the way.
        while found.lacks_its_value() {
            if !room.reserve(found.size) {
                return Err(EngineError::NoRoom);
            }
            let (reply, answer) = oneshot::channel();
            self.submit(self.reader(), Reading::Value(key.clone(), found.size, reply))?;
            found = answer.await.unwrap_or(Err(EngineError::ShuttingDown))?;
        }
        Ok(found)
    }

    /// The same, on the way to something else.
    async fn newest(&self, key: Key) -> Result<Snapshot, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.submit(self.reader(), Reading::Key(key, reply))?;
        answer.await.unwrap_or(Err(EngineError::ShuttingDown))
    }

    pub async fn list(&self, page: Page) -> Result<Vec<Listed>, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.submit(&self.lister, Reading::List(page, reply))?;
        answer.await.unwrap_or(Err(EngineError::ShuttingDown))
    }

    /// Whether the store answers, and has the right schema.
    pub async fn ping(&self) -> Result<(), EngineError> {
        let (reply, answer) = oneshot::channel();
        self.submit(self.reader(), Reading::Ping(reply))?;
        answer.await.unwrap_or(Err(EngineError::ShuttingDown))
    }

    /// How many requests wait for a lane.
    pub fn queue_depth(&self) -> usize {
        let writes: usize = self.writers.iter().map(Queue::depth).sum();
        let reads: usize = self.readers.iter().chain([&self.lister]).map(Queue::depth).sum();
        writes + reads + self.detoured.load(Ordering::Relaxed)
    }

    fn submit<J>(&self, lane: &Queue<J>, job: J) -> Result<(), EngineError> {
        if !self.is_open() {
            return Err(StoreError::Unavailable("it has not been checked yet".into()).into());
        }
        if self.is_foreign() {
            let reason = "the store belongs to another authority".into();
            return Err(StoreError::OtherAuthority(reason).into());
        }
        lane.submit(job)
    }

    /// All writes of a key take the same lane, so that they do not contend for its row: the first one,
    /// or where there are many, the key's own. Between the two they may meet in the database, as the
    /// writes of two fenceposts do.
    fn writer_of(&self, key: &Key, on_the_way: usize) -> &Queue<Writing> {
        if on_the_way < self.one_lane {
            return &self.writers[0];
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash will do")]
        let hash = hasher.finish() as usize;
        &self.writers[hash % self.writers.len()]
    }

    /// That of this thread: an answer then wakes nobody on another.
    fn reader(&self) -> &Queue<Reading> {
        self.readers.get(threads::place()).unwrap_or(&self.readers[0])
    }
}

/// Something that somebody waits for, until it is answered or the client has hung up.
struct OnTheWay<'a> {
    all: &'a AtomicUsize,
    before_it: usize,
}

impl<'a> OnTheWay<'a> {
    fn of(all: &'a AtomicUsize) -> Self {
        Self { all, before_it: all.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl trust::Reads for Engine {
    async fn snapshot(&self, key: &Key) -> Result<Snapshot, EngineError> {
        self.newest(key.clone()).await
    }
}

fn lost_in_flight() -> EngineError {
    StoreError::Unknown("the task that carried the write has died".into()).into()
}

/// How many writes may be on their way in the first lane before there is one more.
fn share_of_the_first(threads: &Threads, queue: usize) -> usize {
    if threads.have_room_for_two_lanes() { queue.min(ENOUGH_FOR_ONE_LANE) } else { queue }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lane_waits_for_many_writes_and_a_processor() {
        let share = |processors, queue| {
            let (_first, threads, _others) = Threads::start_on(2, processors).unwrap();
            share_of_the_first(&threads, queue)
        };
        assert_eq!((share(4, 1000), share(4, 100)), (256, 100));
        assert_eq!((share(2, 1000), share(1, 100)), (1000, 100));
    }
}
