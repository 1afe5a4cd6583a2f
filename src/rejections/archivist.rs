//! The task that keeps the audit table: it appends what was refused, a little at a time, answers
//! those who ask for what the ring has forgotten or another fencepost has seen, and drops the oldest.
//!
//! It has a connection of its own, and a bounded share of the database: at most [`AT_ONCE`] rows
//! in every [`PAUSE`]. What does not fit into its queue is counted, and not written. If the store
//! is away, it tries again; the queue fills up, and the rest is counted.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{Entry, Filter, Owners};
use crate::{
    metrics::{Dropped, Where},
    store::{Audit, Outage, Store, StoreError},
};

/// Rows of one statement: few, since SQLite has one writer, who has better things to do.
const AT_ONCE: usize = 250;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(250);

/// Rejections that may wait for their turn.
const QUEUE: usize = 4096;

/// Between two looks at whether there are too many rows.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// Rows that are dropped by one statement, and looks that may pass with nothing appended.
const DROPPED_AT_ONCE: u64 = 500;
const IDLE_LOOKS: u32 = 120;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    pub rows: u64,
    pub age: Duration,
}

/// The way to the archivist.
pub struct Archive {
    entries: mpsc::Sender<Arc<Entry>>,
    questions: mpsc::Sender<Question>,
}

enum Question {
    Newest(Filter, usize, oneshot::Sender<Vec<Entry>>),
    /// To be answered once all that was handed over before is written.
    Written(oneshot::Sender<()>),
}

pub struct Archivist {
    store: Arc<dyn Store>,
    keep: Keep,
    dropped: Arc<Dropped>,
    owners: Arc<Owners>,
    entries: mpsc::Receiver<Arc<Entry>>,
    questions: mpsc::Receiver<Question>,
    audit: Option<Box<dyn Audit>>,
    outage: Option<Outage>,
    /// Whether the last attempt at anything failed: that is logged once.
    troubled: bool,
    /// Taken from the queue, and not written yet.
    batch: Vec<Arc<Entry>>,
    not_before: Instant,
    appended: bool,
    idle_looks: u32,
}

impl Archive {
    pub fn new(
        store: Arc<dyn Store>,
        keep: Keep,
        dropped: Arc<Dropped>,
        owners: Arc<Owners>,
    ) -> (Self, Archivist) {
        let (entries, to_append) = mpsc::channel(QUEUE);
        // Whoever finds it full is answered from memory.
        let (questions, asked) = mpsc::channel(16);
        let archivist = Archivist {
            store,
            keep,
            dropped,
            owners,
            entries: to_append,
            questions: asked,
            audit: None,
            outage: None,
            troubled: false,
            batch: Vec::with_capacity(AT_ONCE),
            not_before: Instant::now(),
            appended: true,
            idle_looks: 0,
        };
        (Self { entries, questions }, archivist)
    }

    /// Never waits; `false`: there was no place.
    pub fn append(&self, entry: Arc<Entry>) -> bool {
        self.entries.try_send(entry).is_ok()
    }

    /// `None`: the store could not be asked.
    pub async fn newest(&self, filter: Filter, limit: usize) -> Option<Vec<Entry>> {
        let (reply, answer) = oneshot::channel();
        self.questions.try_send(Question::Newest(filter, limit, reply)).ok()?;
        answer.await.ok()
    }

    /// Returns when all that was appended is written, or given up.
    pub async fn written(&self) {
        let (reply, answer) = oneshot::channel();
        if self.questions.send(Question::Written(reply)).await.is_ok() {
            let _ = answer.await;
        }
    }
}

impl Archivist {
    /// To be started when the store has been found fit.
    pub async fn run(mut self) {
        let mut looks = interval(BETWEEN_LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // What a branch has taken, it finishes: only the waiting is given up for another.
            tokio::select! {
                asked = self.questions.recv() => match asked {
                    Some(question) => self.answer(question).await,
                    None => return,
                },
                () = something_to_write(self.not_before, &mut self.entries, &mut self.batch) => {
                    self.write().await;
                }
                _ = looks.tick() => self.look().await,
            }
        }
    }

    async fn answer(&mut self, question: Question) {
        match question {
            Question::Newest(filter, limit, reply) => {
                let found = async { self.audit().await?.newest(&filter, limit).await }.await;
                match found {
                    Ok(entries) => drop(reply.send(entries)),
                    // Whoever asked hears of it by the reply being dropped.
                    Err(error) => self.note(&error),
                }
            }
            Question::Written(reply) => {
                loop {
                    while self.batch.len() < AT_ONCE
                        && let Ok(entry) = self.entries.try_recv()
                    {
                        self.batch.push(entry);
                    }
                    if self.batch.is_empty() || reply.is_closed() {
                        break;
                    }
                    self.write().await;
                    if !self.batch.is_empty() {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                let _ = reply.send(());
            }
        }
    }

    /// What cannot be written now is tried again; what the database will not have is given up.
    async fn write(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let batch: Vec<_> = batch.into_iter().map(|entry| self.owners.complete(entry)).collect();
        let appended = async { self.audit().await?.append(&batch).await }.await;
        // Counted from the end: a database that is slow gets its pause as well.
        self.not_before = Instant::now() + PAUSE;
        match appended {
            Ok(()) => {
                self.appended = true;
                if std::mem::take(&mut self.troubled) {
                    tracing::info!("rejections are kept in the store again");
                }
            }
            Err(error) => {
                self.note(&error);
                if matches!(error, StoreError::Failed(_)) {
                    self.dropped.add(Where::Audit, batch.len() as u64);
                } else {
                    self.batch = batch;
                }
            }
        }
    }

    /// Drops what is too old or too much, in small steps.
    async fn look(&mut self) {
        self.idle_looks += 1;
        if !self.appended && self.idle_looks < IDLE_LOOKS {
            return;
        }
        if let Err(error) = self.drop_the_oldest().await {
            self.note(&error);
            return;
        }
        self.appended = false;
        self.idle_looks = 0;
    }

    async fn drop_the_oldest(&mut self) -> Result<(), StoreError> {
        let Keep { rows, age } = self.keep;
        let before = std::time::SystemTime::now().checked_sub(age);
        let audit = self.audit().await?;
        if before.is_some() {
            while audit.drop_oldest(before, DROPPED_AT_ONCE).await? == DROPPED_AT_ONCE {
                tokio::task::yield_now().await;
            }
        }
        let mut surplus = audit.count().await?.saturating_sub(rows);
        while surplus > 0 {
            let dropped = audit.drop_oldest(None, surplus.min(DROPPED_AT_ONCE)).await?;
            // Somebody else may be at it.
            if dropped == 0 {
                break;
            }
            surplus = surplus.saturating_sub(dropped);
        }
        Ok(())
    }

    fn note(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.troubled, true) {
            tracing::warn!(%error, "rejections cannot be kept in the store");
        }
        if error.ends_the_session() {
            self.audit = None;
        }
    }

    async fn audit(&mut self) -> Result<&mut dyn Audit, StoreError> {
        let audit = match self.audit.take() {
            Some(audit) => audit,
            None => self.connect().await?,
        };
        Ok(self.audit.insert(audit).as_mut())
    }

    async fn connect(&mut self) -> Result<Box<dyn Audit>, StoreError> {
        if let Some(error) = self.outage.as_ref().and_then(Outage::answer) {
            return Err(error);
        }
        match self.store.connect_audit().await {
            Ok(audit) => {
                self.outage = None;
                Ok(audit)
            }
            Err(error) => {
                self.outage = Some(Outage::after(self.outage.take(), error.clone()));
                Err(error)
            }
        }
    }
}

/// Returns once it is time to write, and there is something in the batch.
async fn something_to_write(
    not_before: Instant,
    entries: &mut mpsc::Receiver<Arc<Entry>>,
    batch: &mut Vec<Arc<Entry>>,
) {
    sleep_until(not_before).await;
    if batch.is_empty() && entries.recv_many(batch, AT_ONCE).await == 0 {
        // Closed, as the questions are: the other branch ends it.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
