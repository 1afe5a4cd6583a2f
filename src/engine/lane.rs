//! A task that owns one database session, and the bounded queue in front of it.
//!
//! What it takes from the queue it finishes, whether somebody still waits for the answer or not. Only
//! a store's own deadline ends a statement early, and the connection with it.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{EngineError, marks::Marks};
use crate::{
    metrics::{Begun, Metrics},
    store::{Listed, Outage, Page, Session, Settled, Snapshot, Store, StoreError, Unit},
    token::Key,
};

/// A job that has waited for longer is turned away unbegun: each one before it may have waited for
/// a lock, and its client is not served by waiting for all of them.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

pub enum Job {
    Settle(Unit, Begun, Reply<Settled>),
    Read(Reading),
}

pub enum Reading {
    Key(Key, Reply<Snapshot>),
    List(Page, Reply<Vec<Listed>>),
    Ping(Reply<()>),
}

impl Job {
    /// Whoever asked may have hung up, and need not hear of it.
    fn turn_away(self, error: EngineError, metrics: &Metrics) {
        match self {
            Self::Settle(_, begun, reply) => {
                metrics.writes.failed(begun);
                drop(reply.send(Err(error)));
            }
            Self::Read(Reading::Key(_, reply)) => drop(reply.send(Err(error))),
            Self::Read(Reading::List(_, reply)) => drop(reply.send(Err(error))),
            Self::Read(Reading::Ping(reply)) => drop(reply.send(Err(error))),
        }
    }
}

struct Waiting {
    since: Instant,
    job: Job,
}

pub struct Lane {
    queue: mpsc::Sender<Waiting>,
}

impl Lane {
    pub fn start(
        store: Arc<dyn Store>,
        marks: Arc<Marks>,
        metrics: Arc<Metrics>,
        capacity: usize,
    ) -> Self {
        let (queue, jobs) = mpsc::channel(capacity);
        let worker = Worker {
            store,
            marks,
            metrics,
            session: None,
            last_used: Instant::now(),
            outage: None,
        };
        tokio::spawn(worker.run(jobs));
        Self { queue }
    }

    /// Never waits: a full queue is the caller's answer.
    pub fn submit(&self, job: Job) -> Result<(), EngineError> {
        let waiting = Waiting { since: Instant::now(), job };
        self.queue.try_send(waiting).map_err(|error| match error {
            TrySendError::Full(_) => EngineError::Overloaded,
            TrySendError::Closed(_) => EngineError::ShuttingDown,
        })
    }

    /// How many jobs wait.
    pub fn depth(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

/// A session that has rested for longer is tried before it is used: if the database was restarted
/// meanwhile, that costs a reconnect instead of an unknown outcome.
const RESTED: Duration = Duration::from_secs(1);

struct Worker {
    store: Arc<dyn Store>,
    marks: Arc<Marks>,
    metrics: Arc<Metrics>,
    session: Option<Box<dyn Session>>,
    last_used: Instant,
    outage: Option<Outage>,
}

impl Worker {
    async fn run(mut self, mut jobs: mpsc::Receiver<Waiting>) {
        // A bug that panics must not leave a share of the keys without a lane. Whoever waited for
        // the job at hand is told that its outcome is unknown.
        while AssertUnwindSafe(self.work(&mut jobs)).catch_unwind().await.is_err() {
            tracing::error!("a lane has panicked; it goes on with a new session");
            self.session = None;
        }
    }

    async fn work(&mut self, jobs: &mut mpsc::Receiver<Waiting>) {
        let at_once = self.store.gathers();
        let mut taken = Vec::with_capacity(at_once);
        while jobs.recv_many(&mut taken, at_once).await > 0 {
            let mut units = Vec::new();
            let mut replies = Vec::new();
            for Waiting { since, job } in taken.drain(..) {
                match job {
                    late if since.elapsed() > LONGEST_WAIT => {
                        late.turn_away(EngineError::Overloaded, &self.metrics);
                    }
                    Job::Settle(unit, begun, reply) => {
                        units.push(unit);
                        replies.push((begun, reply));
                    }
                    Job::Read(reading) => self.read(reading).await,
                }
            }
            if !units.is_empty() {
                self.settle(&units, replies).await;
            }
        }
    }

    async fn settle(&mut self, units: &[Unit], replies: Vec<(Begun, Reply<Settled>)>) {
        let answers = match self.session().await {
            Ok(session) => {
                let since = Instant::now();
                let answers = session.settle(units).await;
                self.metrics.settled_together(units, since.elapsed());
                answers
            }
            Err(error) => units.iter().map(|_| Err(error.clone())).collect(),
        };
        debug_assert_eq!(answers.len(), units.len(), "every unit has an answer of its own");
        for ((unit, answer), (begun, reply)) in units.iter().zip(answers).zip(replies) {
            match &answer {
                Ok(settled) => {
                    self.marks.learn(unit, settled);
                    self.metrics.writes.settled_by_store(begun, unit, settled);
                }
                Err(error) => {
                    self.metrics.writes.failed(begun);
                    self.note(error);
                }
            }
            // Whoever asked may have hung up. The write stands all the same.
            let _ = reply.send(answer.map_err(EngineError::from));
        }
    }

    async fn read(&mut self, reading: Reading) {
        match reading {
            Reading::Key(key, reply) => {
                let answer = async { self.session().await?.read(&key).await }.await;
                if let Ok(snapshot) = &answer {
                    self.marks.learn_from_read(&key, snapshot);
                }
                self.answer(reply, answer);
            }
            Reading::List(page, reply) => {
                let answer = async { self.session().await?.list(&page).await }.await;
                self.answer(reply, answer);
            }
            Reading::Ping(reply) => {
                let answer = async { self.session().await?.ping().await }.await;
                self.answer(reply, answer);
            }
        }
    }

    fn answer<T>(&mut self, reply: Reply<T>, answer: Result<T, StoreError>) {
        if let Err(error) = &answer {
            self.note(error);
        }
        let _ = reply.send(answer.map_err(EngineError::from));
    }

    fn note(&mut self, error: &StoreError) {
        // During an outage everybody gets the same answer, and it has been logged once.
        if self.outage.is_none() {
            tracing::warn!(%error, "the store failed a request");
        }
        if error.ends_the_session() {
            self.session = None;
        }
    }

    /// The session, connecting if there is none. During an outage most callers are answered at
    /// once, and one in a while finds out whether it is over.
    async fn session(&mut self) -> Result<&mut dyn Session, StoreError> {
        if self.last_used.elapsed() > RESTED
            && let Some(session) = &mut self.session
            && let Err(error) = session.ping().await
        {
            tracing::info!(%error, "a session did not survive its rest; opening another");
            self.session = None;
        }
        self.last_used = Instant::now();
        let session = match self.session.take() {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(self.session.insert(session).as_mut())
    }

    async fn connect(&mut self) -> Result<Box<dyn Session>, StoreError> {
        if let Some(error) = self.outage.as_ref().and_then(Outage::answer) {
            return Err(error);
        }
        let connected = async {
            let mut session = self.store.connect().await?;
            // It may not be the database that was checked at the start: restored, or upgraded.
            session.ping().await?;
            Ok::<_, StoreError>(session)
        };
        match connected.await {
            Ok(session) => {
                if self.outage.take().is_some() {
                    tracing::info!("the store can be reached again");
                }
                Ok(session)
            }
            Err(error) => {
                if self.outage.is_none() {
                    tracing::warn!(%error, "the store cannot be reached");
                }
                self.outage = Some(Outage::after(self.outage.take(), error.clone()));
                Err(error)
            }
        }
    }
}
