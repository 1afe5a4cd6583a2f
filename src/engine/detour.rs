//! The way round a row that somebody else has locked.
//!
//! A lane serves many keys, so it must not wait for one of them. A unit that needs a locked row goes
//! on by itself, in a task with a session that does wait, and whatever comes for the same keys
//! follows it there. The task ends when nothing is left. There are only so many of them; beyond that
//! they share.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
};

use futures_util::FutureExt;
use tokio::sync::mpsc;

use super::{
    EngineError, gather,
    link::{Link, Purpose},
    queue::{Queue, Waiting},
    writing::{Desk, Writing},
};
use crate::{
    store::{Store, Unit},
    token::Key,
};

/// Detours that one lane may have at once. Each may open a connection.
pub const DETOURS: usize = 4;

pub struct Detours {
    store: Arc<dyn Store>,
    desk: Desk,
    capacity: usize,
    open: Vec<Queue<Writing>>,
    /// Who comes for these keys follows.
    keys: HashMap<Key, Queue<Writing>>,
    turn: usize,
}

impl Detours {
    pub fn new(store: Arc<dyn Store>, desk: Desk, capacity: usize) -> Self {
        Self { store, desk, capacity, open: Vec::new(), keys: HashMap::new(), turn: 0 }
    }

    /// Forgets those that have come to their end.
    pub fn tidy(&mut self) {
        if !self.open.is_empty() {
            self.open.retain(|detour| !detour.is_closed());
            self.keys.retain(|_, detour| !detour.is_closed());
        }
    }

    /// Whether one of the unit's keys is on a detour.
    pub fn concern(&self, unit: &Unit) -> bool {
        !self.keys.is_empty() && unit.keys().any(|key| self.keys.contains_key(key))
    }

    pub fn send(&mut self, waiting: Waiting<Writing>) {
        let keys: Vec<Key> = waiting.job.unit.keys().cloned().collect();
        let known = keys.iter().find_map(|key| self.keys.get(key)).cloned();
        let detour = known.unwrap_or_else(|| self.another());
        // Counted before it can be taken, or the number would for a moment be below zero.
        self.desk.detoured.fetch_add(1, Ordering::Relaxed);
        let Err((error, waiting)) = detour.pass_on(waiting) else {
            self.keys.extend(keys.into_iter().map(|key| (key, detour.clone())));
            return;
        };
        self.desk.detoured.fetch_sub(1, Ordering::Relaxed);
        match error {
            // It has just come to its end.
            EngineError::ShuttingDown => {
                self.tidy();
                self.send(waiting);
            }
            error => self.desk.turn_away(waiting.job, error),
        }
    }

    fn another(&mut self) -> Queue<Writing> {
        self.tidy();
        if self.open.len() >= DETOURS {
            self.turn += 1;
            return self.open[self.turn % DETOURS].clone();
        }
        let (queue, jobs) = Queue::new(self.capacity);
        let Desk { succession, losses, .. } = self.desk.clone();
        let link = Link::new(self.store.clone(), Purpose::Patient, succession, losses);
        let most = self.store.gathers();
        let detour = drive(link, self.desk.clone(), most, jobs);
        tokio::spawn(AssertUnwindSafe(detour).catch_unwind().map(|ended| {
            if ended.is_err() {
                tracing::error!("a detour has panicked");
            }
        }));
        self.open.push(queue.clone());
        queue
    }
}

async fn drive(
    mut link: Link,
    desk: Desk,
    most: usize,
    mut jobs: mpsc::Receiver<Waiting<Writing>>,
) {
    loop {
        if jobs.is_empty() {
            // What slipped in before this is still taken. What comes later is turned back to the lane.
            jobs.close();
        }
        let mut taken = gather::next(&mut jobs, most).await;
        if taken.is_empty() {
            return;
        }
        desk.detoured.fetch_sub(taken.len(), Ordering::Relaxed);
        let late: Vec<_> = taken.extract_if(.., |waiting| waiting.is_late()).collect();
        for late in late {
            desk.turn_away(late.job, EngineError::Overloaded);
        }
        if taken.is_empty() {
            continue;
        }
        for blocked in desk.settle(&mut link, taken).await {
            // A patient session does not say so.
            desk.turn_away(blocked.job, EngineError::Overloaded);
        }
    }
}
