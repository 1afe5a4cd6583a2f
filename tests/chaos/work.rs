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

    async fn random_step(&mut self, held: &Held) -> Step {
        match self.random.u8(..100) {
            0..30 => self.add_to_chain(held).await,
            30..37 => {
                let number = self.random.usize(..ITEMS);
                self.write(held, vec![(number, true)], false).await
            }
            37..43 => self.replace_what_was_read(held).await,
            43..45 => self.send_and_hang_up(held).await,
            45..53 => {
                let number = self.random.usize(..ITEMS);
                self.write(held, vec![(number, false)], false).await
            }
            53..65 => {
                let mut puts: Vec<(usize, bool)> =
                    (0..ITEMS).map(|number| (number, self.random.u8(..4) > 0)).collect();
                // Whoever locked rows in the order of the request would meet others in the middle.
                self.random.shuffle(&mut puts);
                self.write(held, puts, true).await
            }
            65..80 => self.burst(held).await,
            80..88 => {
                let key = item(&held.lock, self.random.usize(..ITEMS));
                let token = Some(held.token);
                step(&self.ask(Request::Read { key, token }).await)
            }
            88..93 => {
                let key = item(&held.lock, self.random.usize(..ITEMS));
                step(&self.ask(Request::Claim { key, token: held.token }).await)
            }
            93..97 => {
                let Held { lock, token } = held.clone();
                self.ask(Request::Renew { lock, token }).await;
                Step::Fine
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
        // By its key's own mark alone: that is one statement, and another way through the store.
        if !batch && self.random.u8(..4) == 0 {
            writes[0].scope = None;
        }
        let earlier = writes[0].clone();
        if batch && self.random.u8(..5) == 0 {
            // One that cannot pass, perhaps after others that could: none may.
            let place = self.random.usize(..writes.len());
            writes[place].expects = Some(1 << 40);
        }
        let request = if batch { Request::Batch(writes) } else { Request::Write(earlier.clone()) };
        let outcome = self.insist(request).await;
        // Some mesh sends it twice: the second is told what the first was.
        if !batch && outcome == Step::Fine && self.random.u8(..100) < 25 {
            self.ask(Request::Write(earlier.clone())).await;
        }
        // Another one under the same seq, by mistake.
        if !batch && outcome == Step::Fine && earlier.value.is_some() && self.random.u8(..100) < 8 {
            let mistaken = Write { value: Some(self.new_name()), ..earlier.clone() };
            self.ask(Request::Write(mistaken)).await;
        }
        // A copy of it that some mesh sends again, after something else.
        if !batch && outcome == Step::Fine && self.random.u8(..100) < 30 {
            let value = Some(self.new_name());
            let later = self.scoped(held, earlier.key.clone(), value);
            self.insist(Request::Write(later)).await;
            self.ask(Request::Write(earlier)).await;
        }
        outcome
    }

    /// Only if it is still as it was read, or, now and then, as it cannot be.
    async fn replace_what_was_read(&mut self, held: &Held) -> Step {
        let key = item(&held.lock, self.random.usize(..ITEMS));
        let outcome = self.ask(Request::Read { key: key.clone(), token: None }).await;
        let Outcome::Done(seen) = &outcome else { return step(&outcome) };
        let version = seen[0].version.unwrap_or(0);
        let name = self.new_name();
        let mut write = self.scoped(held, key, Some(name));
        let wrong = i64::from(self.random.u8(..4) == 0);
        write.expects = Some(version + wrong);
        if self.random.bool() {
            (write.scope, write.seq) = (None, 0);
            // Without a seq it must not be repeated.
            return step(&self.ask(Request::Write(write)).await);
        }
        self.insist(Request::Write(write)).await
    }

    /// Whatever becomes of it, the holder does not know, and goes on with its next seq.
    async fn send_and_hang_up(&mut self, held: &Held) -> Step {
        let name = self.new_name();
        let key = item(&held.lock, self.random.usize(..ITEMS));
        let write = self.scoped(held, key, Some(name));
        let patience_us = self.random.u64(..4_000);
        let (request, name) = (Request::Write(write), self.new_name());
        let via = self.service.choose();
        self.note_sent(&name, via, &request);
        let outcome = self.service.hang_up(via, &request, patience_us).await;
        self.note_answered(name, &outcome);
        Step::Fine
    }

    fn scoped(&mut self, held: &Held, key: String, value: Option<String>) -> Write {
        self.seq += 1;
        let scope = Some(held.lock.clone());
        Write { key, scope, token: held.token, seq: self.seq, value, expects: None }
    }

    /// Many plain writes at once, some of the same key.
    async fn burst(&mut self, held: &Held) -> Step {
        let count = self.random.usize(2..7);
        let requests: Vec<Request> = (0..count)
            .map(|_| {
                let key = loose(&held.lock, self.random.usize(..LOOSE));
                let value = Some(self.new_name());
                let token = held.token;
                Request::Write(Write { key, scope: None, token, seq: 0, value, expects: None })
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
        let via = self.service.choose();
        self.note_sent(&name, via, &request);
        let outcome = self.service.send(via, &request).await;
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
