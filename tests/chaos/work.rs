//! What clients do: take a lock, do things under its token, and sometimes go on for too long.
//!
//! The same work is done against real fenceposts and against stores that are broken on purpose.

mod aftermath;
mod keys;
mod steps;

pub use self::keys::{ITEMS, LOOSE, all_keys, chain, item, lock, loose};

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::history::{Line, Moment, Outcome, Recorder, Request};

/// Whom the requests go to.
pub trait Service {
    /// Which of several instances is next.
    fn choose(&self) -> usize;

    async fn send(&self, via: usize, request: &Request) -> Outcome;

    /// Sends it, and does not wait for the answer for longer than this.
    async fn hang_up(&self, via: usize, request: &Request, patience_us: u64) -> Outcome;

    /// Lets about so much time pass.
    async fn pause(&self, ms: u64);

    fn now(&self) -> Moment;
}

/// How much there is to choose from.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Terms {
    pub locks: usize,
    pub ttl_ms: u64,
    pub wait_ms: u64,
    /// Between two requests, at most.
    pub pause_ms: u64,
}

pub struct Worker<'a, S> {
    name: String,
    service: &'a S,
    recorder: &'a Recorder,
    terms: Terms,
    random: Rng,
    count: AtomicU64,
    seq: i64,
    /// What was held before: a zombie may wake up with it.
    past: VecDeque<Held>,
    pub due: bool,
}

#[derive(Clone, Debug)]
pub struct Held {
    pub lock: String,
    pub token: i64,
}

/// How a step under a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Fine,
    Refused,
    /// It is not known, and must not be built upon.
    Unsure,
}

impl<'a, S: Service> Worker<'a, S> {
    pub fn new(
        name: &str,
        service: &'a S,
        recorder: &'a Recorder,
        terms: Terms,
        seed: u64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            service,
            recorder,
            terms,
            random: Rng::with_seed(seed),
            count: AtomicU64::new(0),
            seq: 0,
            past: VecDeque::new(),
            due: false,
        }
    }

    /// Takes a lock once, and works under it.
    pub async fn turn(&mut self) {
        if self.random.u8(..100) < 15 {
            return self.look_around().await;
        }
        let lock = lock(self.random.usize(..self.terms.locks));
        let Some(held) = self.acquire(&lock).await else {
            return self.rest().await;
        };
        self.past.push_back(held.clone());
        if self.past.len() > 4 {
            self.past.pop_front();
        }
        let mut refusals = 0;
        for _ in 0..self.random.usize(2..10) {
            match self.random_step(&held).await {
                Step::Fine => {}
                // Most stop when they are told to. Some do not believe it.
                Step::Refused if refusals < 2 && self.random.u8(..100) < 40 => refusals += 1,
                Step::Refused | Step::Unsure => break,
            }
            self.rest().await;
        }
        if self.random.u8(..100) < 80 {
            let Held { lock, token } = held;
            self.ask(Request::Release { lock, token }).await;
        }
    }

    pub async fn acquire(&self, lock: &str) -> Option<Held> {
        let Terms { ttl_ms, wait_ms, .. } = self.terms;
        let request = Request::Acquire { lock: lock.to_owned(), ttl_ms, wait_ms };
        match self.ask(request).await {
            Outcome::Granted { token } => Some(Held { lock: lock.to_owned(), token }),
            _ => None,
        }
    }

    async fn rest(&mut self) {
        let ms = self.random.u64(..=self.terms.pause_ms);
        self.service.pause(ms).await;
    }

    /// Reads without a token, and what a zombie does.
    async fn look_around(&mut self) {
        let keys = all_keys(self.terms.locks);
        for _ in 0..3 {
            let key = keys[self.random.usize(..keys.len())].clone();
            self.ask(Request::Read { key, token: None }).await;
        }
        if let Some(held) = self.past.front().cloned() {
            match self.random.u8(..10) {
                0..2 => self.tend_lock(&held).await,
                2 => self.forge(&held).await,
                _ => drop(self.random_step(&held).await),
            }
        }
    }

    /// For whoever has lost it, both must fail.
    async fn tend_lock(&mut self, held: &Held) {
        let Held { lock, token } = held.clone();
        let renews = self.random.bool();
        self.ask(if renews {
            Request::Renew { lock, token }
        } else {
            Request::Release { lock, token }
        })
        .await;
    }

    /// With a token that nobody was ever given, of an epoch that never comes.
    async fn forge(&mut self, held: &Held) {
        let forged = Held { lock: held.lock.clone(), token: held.token | 1 << 61 };
        let value = Some(self.new_name());
        let write = self.scoped(&forged, item(&held.lock, 0), value);
        self.ask(Request::Write(write)).await;
    }

    /// Repeats what has a seq, until it is known what became of it.
    async fn insist(&mut self, request: Request) -> Step {
        for _ in 0..4 {
            let outcome = self.attempt(request.clone()).await;
            match outcome {
                Outcome::Unknown { .. } | Outcome::NotApplied { .. } => self.rest().await,
                _ => return step(&outcome),
            }
        }
        Step::Unsure
    }

    pub async fn ask(&self, request: Request) -> Outcome {
        self.ask_at(self.service.choose(), &request).await
    }

    async fn ask_at(&self, via: usize, request: &Request) -> Outcome {
        let name = self.new_name();
        self.note_sent(&name, via, request);
        let outcome = self.service.send(via, request).await;
        self.note_answered(name, &outcome);
        outcome
    }

    fn note_sent(&self, name: &str, via: usize, request: &Request) {
        let (name, at, due) = (name.to_owned(), self.service.now(), self.due);
        self.recorder.note(Line::Sent { name, at, due, via, request: request.clone() });
    }

    fn note_answered(&self, name: String, outcome: &Outcome) {
        let (at, outcome) = (self.service.now(), outcome.clone());
        self.recorder.note(Line::Answered { name, at, outcome });
    }

    fn new_name(&self) -> String {
        format!("{}-{}", self.name, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

fn step(outcome: &Outcome) -> Step {
    match outcome {
        Outcome::Done(_) | Outcome::Granted { .. } => Step::Fine,
        Outcome::Refused { .. } => Step::Refused,
        Outcome::NotApplied { .. } | Outcome::Unknown { .. } => Step::Unsure,
    }
}

/// When everything is healed: every lock passes on, its holder can write, and every key is read.
pub async fn settle<S: Service>(worker: &mut Worker<'_, S>) {
    worker.due = true;
    for number in 0..worker.terms.locks {
        if let Some(held) = worker.acquire(&lock(number)).await {
            worker.add_to_chain(&held).await;
            worker.ask(Request::Release { lock: held.lock, token: held.token }).await;
        }
    }
    for key in all_keys(worker.terms.locks) {
        worker.ask(Request::Read { key, token: None }).await;
    }
}
