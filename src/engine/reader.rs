//! A lane for reads: what waits is read together, as writes are, and a lone read goes straight.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::{runtime::Handle, sync::mpsc};

use super::{
    EngineError,
    link::{Link, Purpose},
    marks::Marks,
    queue::{Queue, Reply, Waiting},
    writing::Desk,
};
use crate::{
    store::{INLINE_BYTES, Listed, Page, Snapshot, Store, StoreError},
    token::Key,
};

/// Reads that are answered together. The values of all of them are in memory at once, and those that
/// are too large for that are left out.
const MOST: usize = 256;

/// The values of reads that are answered together: so many bytes at most, unless there are so many of them
/// that each has less than the least.
const BYTES_TOGETHER: u64 = 1 << 20;
const LEAST_BYTES: u64 = 8 << 10;

pub enum Reading {
    Key(Key, Reply<Snapshot>),
    /// With a value of so many bytes at most, for which there is memory.
    Value(Key, u64, Reply<Snapshot>),
    List(Page, Reply<Vec<Listed>>),
    Ping(Reply<()>),
}

pub fn start(
    store: Arc<dyn Store>,
    desk: Desk,
    capacity: usize,
    on: &Handle,
    purpose: Purpose,
) -> Queue<Reading> {
    let (queue, jobs) = Queue::new(capacity);
    let at_once = store.gathers().min(MOST);
    let link = Link::new(store, purpose, desk.succession, desk.losses);
    let reader = Reader { link, marks: desk.marks, at_once };
    on.spawn(reader.run(jobs));
    queue
}

struct Reader {
    link: Link,
    marks: Arc<Marks>,
    at_once: usize,
}

impl Reader {
    async fn run(mut self, mut jobs: mpsc::Receiver<Waiting<Reading>>) {
        while AssertUnwindSafe(self.work(&mut jobs)).catch_unwind().await.is_err() {
            tracing::error!("a lane has panicked; it goes on with a new session");
            self.link.forget_session();
        }
    }

    async fn work(&mut self, jobs: &mut mpsc::Receiver<Waiting<Reading>>) {
        let mut taken = Vec::with_capacity(self.at_once);
        while jobs.recv_many(&mut taken, self.at_once).await > 0 {
            let mut reads = Vec::with_capacity(taken.len());
            let mut large = Vec::new();
            for waiting in taken.drain(..) {
                let late = waiting.is_late();
                match waiting.job {
                    late_one if late => turn_away(late_one),
                    Reading::Key(key, reply) => reads.push((key, reply)),
                    Reading::Value(key, most, reply) => large.push((key, most, reply)),
                    Reading::List(page, reply) => {
                        let answer = async { self.link.session().await?.list(&page).await }.await;
                        self.answer(reply, answer);
                    }
                    Reading::Ping(reply) => {
                        let answer = async {
                            let session = self.link.session().await?;
                            session.ping().await?;
                            session.can_write().await
                        };
                        let answer = answer.await;
                        self.answer(reply, answer);
                    }
                }
            }
            self.read(reads).await;
            // One by one: each is in memory twice while it is taken out of Postgres's answer.
            for (key, most, reply) in large {
                // A client that hung up has given its room back.
                if !reply.is_closed() {
                    let read = async { self.link.session().await?.read(&key, most).await }.await;
                    self.answer(reply, read);
                }
            }
        }
    }

    async fn read(&mut self, mut reads: Vec<(Key, Reply<Snapshot>)>) {
        reads.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut keys: Vec<Key> = reads.iter().map(|(key, _)| key.clone()).collect();
        keys.dedup();
        let most = match keys.len() as u64 {
            0 => return,
            count => (BYTES_TOGETHER / count).clamp(LEAST_BYTES, INLINE_BYTES),
        };
        let snapshots = match &keys[..] {
            [key] => async { Ok(vec![self.link.session().await?.read(key, most).await?]) }.await,
            _ => async { self.link.session().await?.read_together(&keys, most).await }.await,
        };
        let snapshots: Vec<Snapshot> = match snapshots {
            Ok(snapshots) => snapshots,
            Err(error) => {
                for (_, reply) in reads {
                    self.answer(reply, Err(error.clone()));
                }
                return;
            }
        };
        debug_assert_eq!(snapshots.len(), keys.len(), "every key has a snapshot");
        for (key, snapshot) in keys.iter().zip(&snapshots) {
            self.marks.learn_from_read(key, snapshot);
        }
        let mut found = keys.iter().zip(snapshots).peekable();
        let mut askers = reads.into_iter().peekable();
        while let Some((key, reply)) = askers.next() {
            while found.next_if(|(other, _)| **other != key).is_some() {}
            let more = askers.peek().is_some_and(|(next, _)| *next == key);
            let snapshot = if more {
                found.peek().map(|(_, snapshot)| snapshot.clone())
            } else {
                found.next().map(|(_, snapshot)| snapshot)
            };
            let missing = || StoreError::Failed("a read left a key without an answer".into());
            self.answer(reply, snapshot.ok_or_else(missing));
        }
    }

    fn answer<T>(&mut self, reply: Reply<T>, answer: Result<T, StoreError>) {
        if let Err(error) = &answer {
            self.link.note(error);
        }
        let _ = reply.send(answer.map_err(EngineError::from));
    }
}

/// Whoever asked may have hung up, and need not hear of it.
fn turn_away(reading: Reading) {
    let error = EngineError::Overloaded;
    match reading {
        Reading::Key(_, reply) | Reading::Value(_, _, reply) => drop(reply.send(Err(error))),
        Reading::List(_, reply) => drop(reply.send(Err(error))),
        Reading::Ping(reply) => drop(reply.send(Err(error))),
    }
}
