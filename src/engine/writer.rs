//! A lane for writes: a task that owns one database session and a share of the keys.
//!
//! What it takes from the queue it finishes, whether somebody still waits for the answer or not. Only
//! a store's own deadline ends a statement early, and the connection with it. A write that would
//! have to wait for somebody else's lock takes a detour (`detour.rs`), and the lane goes on.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use tokio::{runtime::Handle, sync::mpsc};

use super::{
    EngineError,
    detour::Detours,
    gather,
    link::{Link, Purpose},
    queue::{Queue, Waiting},
    writing::{Desk, Writing},
};
use crate::store::Store;

pub fn start(store: Arc<dyn Store>, desk: Desk, capacity: usize, on: &Handle) -> Queue<Writing> {
    let (queue, jobs) = Queue::new(capacity);
    let writer = Writer {
        gathers: store.gathers(),
        detours: Detours::new(store.clone(), desk.clone(), capacity),
        link: Link::new(store, Purpose::Shared, desk.succession.clone(), desk.losses.clone()),
        desk,
    };
    on.spawn(writer.run(jobs));
    queue
}

struct Writer {
    /// How much it takes at a time.
    gathers: usize,
    detours: Detours,
    link: Link,
    desk: Desk,
}

impl Writer {
    async fn run(mut self, mut jobs: mpsc::Receiver<Waiting<Writing>>) {
        // A bug that panics must not leave a share of the keys without a lane. Whoever waited for
        // the jobs at hand is told that their outcome is unknown.
        while AssertUnwindSafe(self.work(&mut jobs)).catch_unwind().await.is_err() {
            tracing::error!("a lane has panicked; it goes on with a new session");
            self.link.forget_session();
        }
    }

    async fn work(&mut self, jobs: &mut mpsc::Receiver<Waiting<Writing>>) {
        loop {
            let mut taken = gather::next(jobs, self.gathers).await;
            if taken.is_empty() {
                return;
            }
            self.send_away(&mut taken);
            if taken.is_empty() {
                continue;
            }
            for blocked in self.desk.settle(&mut self.link, taken).await {
                self.detours.send(blocked);
            }
        }
    }

    /// Those that have waited for too long, and those that follow others on a detour.
    fn send_away(&mut self, taken: &mut Vec<Waiting<Writing>>) {
        self.detours.tidy();
        let goes = |waiting: &mut Waiting<Writing>| {
            waiting.is_late() || self.detours.concern(&waiting.job.unit)
        };
        let gone: Vec<_> = taken.extract_if(.., goes).collect();
        for waiting in gone {
            if waiting.is_late() {
                self.desk.turn_away(waiting.job, EngineError::Overloaded);
            } else {
                self.detours.send(waiting);
            }
        }
    }
}
