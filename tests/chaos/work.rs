//! What clients do: take a lock, do things under its token, and sometimes go on for too long.
//!
//! The same work is done against real fenceposts and against stores that are broken on purpose.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use fastrand::Rng;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::{
    check::chains,
    history::{Line, Moment, Outcome, Recorder, Request, Write},
};

/// Whom the requests go to.
pub trait Service {
    async fn send(&self, request: &Request) -> Outcome;

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

/// Keys that one lock guards, beside its chain: written with a seq and under its scope.
pub const ITEMS: usize = 3;
/// And those that are written in bursts, without either.
pub const LOOSE: usize = 3;

pub fn lock(number: usize) -> String {
    format!("lock-{number}")
}

pub fn chain(lock: &str) -> String {
    format!("{lock}{}", chains::SUFFIX)
}

pub fn item(lock: &str, number: usize) -> String {
    format!("{lock}/item-{number}")
}

pub fn loose(lock: &str, number: usize) -> String {
    format!("{lock}/loose-{number}")
}

/// Every key that is ever written.
pub fn all_keys(locks: usize) -> Vec<String> {
    let of = |lock: String| {
        let items = (0..ITEMS).map(|number| item(&lock, number)).collect::<Vec<_>>();
        let loose = (0..LOOSE).map(|number| loose(&lock, number)).collect::<Vec<_>>();
        [vec![chain(&lock)], items, loose].concat()
    };
    (0..locks).map(lock).flat_map(of).collect()
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
            self.random_step(&held).await;
        }
    }

    async fn random_step(&mut self, held: &Held) -> Step {
        match self.random.u8(..100) {
            0..30 => self.add_to_chain(held).await,
            30..45 => {
                let number = self.random.usize(..ITEMS);
                self.write(held, vec![(number, true)], false).await
            }
            45..53 => {
                let number = self.random.usize(..ITEMS);
                self.write(held, vec![(number, false)], false).await
            }
            53..65 => {
                let puts = (0..ITEMS).map(|number| (number, self.random.u8(..4) > 0)).collect();
                self.write(held, puts, true).await
            }
            65..80 => self.burst(held).await,
            80..88 => {
                let key = item(&held.lock, self.random.usize(..ITEMS));
                let token = Some(held.token);
                step(&self.ask(Request::Read { key, token }).await)
            }
            88..97 => {
                let key = item(&held.lock, self.random.usize(..ITEMS));
                step(&self.ask(Request::Claim { key, token: held.token }).await)
            }
            // For longer than the lease: a holder that does not know what time it is.
            _ => {
                self.service.pause(self.terms.ttl_ms * 3 / 2).await;
                Step::Fine
            }
        }
    }

    /// Reads under the lock, adds to what is there, writes it back.
    pub async fn add_to_chain(&mut self, held: &Held) -> Step {
        let key = chain(&held.lock);
        let read = Request::Read { key: key.clone(), token: Some(held.token) };
        let outcome = self.ask(read).await;
        let Outcome::Done(seen) = &outcome else { return step(&outcome) };
        let value = chains::link(&self.new_name(), seen[0].value.as_deref());
        let mut write = self.scoped(held, key, Some(value));
        // Without a scope, the fenced read alone must keep older holders out.
        if self.random.bool() {
            write.scope = None;
        }
        self.insist(Request::Write(write)).await
    }

    async fn write(&mut self, held: &Held, which: Vec<(usize, bool)>, batch: bool) -> Step {
        let mut writes = Vec::new();
        for (number, put) in which {
            let value = put.then(|| self.new_name());
            writes.push(self.scoped(held, item(&held.lock, number), value));
        }
        let earlier = writes[0].clone();
        let request = if batch { Request::Batch(writes) } else { Request::Write(earlier.clone()) };
        let outcome = self.insist(request).await;
        // A copy of it that some mesh sends again, after something else.
        if !batch && outcome == Step::Fine && self.random.u8(..100) < 30 {
            let value = Some(self.new_name());
            let later = self.scoped(held, earlier.key.clone(), value);
            self.insist(Request::Write(later)).await;
            self.ask(Request::Write(earlier)).await;
        }
        outcome
    }

    fn scoped(&mut self, held: &Held, key: String, value: Option<String>) -> Write {
        self.seq += 1;
        Write { key, scope: Some(held.lock.clone()), token: held.token, seq: self.seq, value }
    }

    /// Many plain writes at once, some of the same key.
    async fn burst(&mut self, held: &Held) -> Step {
        let count = self.random.usize(2..7);
        let requests: Vec<Request> = (0..count)
            .map(|_| {
                let key = loose(&held.lock, self.random.usize(..LOOSE));
                let value = Some(self.new_name());
                Request::Write(Write { key, scope: None, token: held.token, seq: 0, value })
            })
            .collect();
        let outcomes = join_all(requests.into_iter().map(|request| self.ask(request))).await;
        outcomes.iter().map(step).find(|step| *step != Step::Fine).unwrap_or(Step::Fine)
    }

    /// Repeats what has a seq, until it is known what became of it.
    async fn insist(&mut self, request: Request) -> Step {
        for _ in 0..4 {
            let outcome = self.ask(request.clone()).await;
            match outcome {
                Outcome::Unknown { .. } | Outcome::NotApplied { .. } => self.rest().await,
                _ => return step(&outcome),
            }
        }
        Step::Unsure
    }

    pub async fn ask(&self, request: Request) -> Outcome {
        let name = self.new_name();
        let (at, due) = (self.service.now(), self.due);
        self.recorder.note(Line::Sent { name: name.clone(), at, due, request: request.clone() });
        let outcome = self.service.send(&request).await;
        let at = self.service.now();
        self.recorder.note(Line::Answered { name, at, outcome: outcome.clone() });
        outcome
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
