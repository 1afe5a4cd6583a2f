//! A fenced store and its locks in memory, with one flaw, or none. It has crashes and lost answers of
//! its own, so that the work meets unknown outcomes here too.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use fastrand::Rng;

use crate::{
    history::{Moment, Outcome, Request, Seen, Write},
    register::{Register, Verdict},
    work::Service,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Every token passes.
    NoFence,
    /// A scope's mark guards nothing.
    ScopeIgnored,
    MarkResetOnDelete,
    /// After a while a mark is forgotten.
    MarkExpires,
    /// And then it crashes.
    AnsweredBeforeCommit,
    /// A whole batch is acknowledged and forgotten.
    BatchDropped,
    /// One of a batch is refused, and those before it stay.
    BatchHalfDone,
    /// "Not applied", and then it is.
    RefusedButApplied,
    /// A repeated request is carried out again.
    AppliedTwice,
    /// From a copy that lags.
    StaleRead,
    VersionRepeated,
    /// A late copy overwrites.
    SeqIgnored,
    /// A fenced read only reads.
    ReadDoesNotClaim,
    /// The lock service was restored from a backup.
    TokenReused,
    /// A refusal names a mark that was never committed.
    MarkFromHeader,
    /// The rightful holder is turned away.
    FalseRefusal,
    LockNeverPassesOn,
}

impl Flaw {
    /// Grants are none of a register's business, and a lock that stays is no wrong answer.
    pub fn changes_an_answer(self) -> bool {
        !matches!(self, Self::TokenReused | Self::LockNeverPassesOn)
    }
}

#[derive(Default)]
struct State {
    keys: BTreeMap<String, Register>,
    /// As they were a while ago.
    copy: BTreeMap<String, Register>,
    touched: HashMap<String, Moment>,
    locks: HashMap<String, (i64, Moment)>,
    last_token: i64,
    late: Vec<Write>,
    healed: bool,
}

pub struct Broken {
    flaw: Option<Flaw>,
    /// A clock that ticks when it is looked at.
    clock: Mutex<Moment>,
    state: Mutex<State>,
    random: Mutex<Rng>,
}

impl Broken {
    pub fn new(flaw: Option<Flaw>, seed: u64) -> Self {
        let random = Mutex::new(Rng::with_seed(!seed));
        Self { flaw, clock: Mutex::default(), state: Mutex::default(), random }
    }

    pub fn heal(&self) {
        self.state.lock().expect("the state").healed = true;
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// One time in `times`.
    fn happens(&self, times: u32) -> bool {
        self.random.lock().expect("the dice").u32(..times) == 0
    }

    fn settle(&self, request: &Request) -> Outcome {
        let now = self.now();
        let mut state = self.state.lock().expect("the state");
        if self.happens(40) {
            let copy = state.keys.clone();
            if self.has(Flaw::AnsweredBeforeCommit) && !state.healed {
                // A crash: what had not been synced is gone.
                state.keys = std::mem::take(&mut state.copy);
            } else {
                state.copy = copy;
            }
        }
        for write in std::mem::take(&mut state.late) {
            self.write(&mut state, &write, now);
        }
        match request {
            Request::Read { key, token: None } => {
                let lags = self.has(Flaw::StaleRead) && self.happens(3);
                let keys = if lags { &state.copy } else { &state.keys };
                Outcome::Done(vec![seen(keys.get(key))])
            }
            Request::Read { key, token: Some(token) } | Request::Claim { key, token } => {
                self.claim(&mut state, key, *token, matches!(request, Request::Read { .. }))
            }
            Request::Write(write) => self.single(&mut state, write, now),
            Request::Batch(writes) => self.batch(&mut state, writes, now),
            Request::Acquire { lock, ttl_ms, .. } => self.acquire(&mut state, lock, *ttl_ms, now),
            Request::Release { lock, token } => {
                if state.locks.get(lock).is_some_and(|(held, _)| held == token) {
                    state.locks.remove(lock);
                    return Outcome::Done(Vec::new());
                }
                Outcome::NotApplied { reason: "lock-lost".into() }
            }
        }
    }

    fn claim(&self, state: &mut State, key: &str, token: i64, read: bool) -> Outcome {
        let register = state.keys.get(key).cloned().unwrap_or_default();
        if read && self.has(Flaw::ReadDoesNotClaim) {
            return Outcome::Done(vec![Seen { mark: None, ..seen(Some(&register)) }]);
        }
        let (verdict, after) = register.claim(token, 0);
        if let Verdict::Refused(reason) = verdict {
            return refused(reason, 0, after.token, &after);
        }
        let seen = seen(Some(&after));
        state.keys.insert(key.to_owned(), after);
        Outcome::Done(vec![Seen { value: seen.value.filter(|_| read), ..seen }])
    }

    fn single(&self, state: &mut State, write: &Write, now: Moment) -> Outcome {
        if self.has(Flaw::FalseRefusal) && self.happens(10) {
            let register = state.keys.get(&write.key).cloned().unwrap_or_default();
            return refused("stale-token", 0, write.token, &register);
        }
        if self.has(Flaw::RefusedButApplied) && self.happens(10) && !state.healed {
            state.late.push(write.clone());
            return Outcome::NotApplied { reason: "store-unavailable".into() };
        }
        let before = state.keys.get(&write.key).cloned();
        let (verdict, mark) = self.write(state, write, now);
        let after = state.keys.get(&write.key).cloned().unwrap_or_default();
        if let Verdict::Refused(reason) = verdict {
            let header = self.has(Flaw::MarkFromHeader) && self.happens(4);
            return refused(reason, 0, if header { mark + 1000 } else { mark }, &after);
        }
        if let Some(before) = before
            && self.has(Flaw::VersionRepeated)
            && self.happens(10)
        {
            // It is there, under the number of the one before it.
            let repeated = Register { version: before.version, ..after };
            state.keys.insert(write.key.clone(), repeated.clone());
            return Outcome::Done(vec![written(&repeated)]);
        }
        Outcome::Done(vec![written(&after)])
    }

    fn batch(&self, state: &mut State, writes: &[Write], now: Moment) -> Outcome {
        let before = state.keys.clone();
        let mut answers = Vec::new();
        for (index, write) in writes.iter().enumerate() {
            let (verdict, mark) = self.write(state, write, now);
            if let Verdict::Refused(reason) = verdict {
                if !self.has(Flaw::BatchHalfDone) {
                    state.keys = before;
                }
                let register = state.keys.get(&write.key).cloned().unwrap_or_default();
                return refused(reason, index, mark, &register);
            }
            answers.push(written(&state.keys[&write.key]));
        }
        if self.has(Flaw::BatchHalfDone) && self.happens(3) {
            let last = writes.last().expect("a batch has writes");
            state.keys.insert(last.key.clone(), before.get(&last.key).cloned().unwrap_or_default());
            return Outcome::NotApplied { reason: "store-unavailable".into() };
        }
        if self.has(Flaw::BatchDropped) && self.happens(3) {
            state.keys = before;
        }
        Outcome::Done(answers)
    }

    /// The verdict, and the mark that it was held against.
    fn write(&self, state: &mut State, write: &Write, now: Moment) -> (Verdict, i64) {
        let mut register = state.keys.get(&write.key).cloned().unwrap_or_default();
        let scope = write.scope.as_ref().filter(|_| !self.has(Flaw::ScopeIgnored));
        let guard = scope.and_then(|scope| Some(state.keys.get(scope)?.token)).unwrap_or(0);
        let touched = state.touched.insert(write.key.clone(), now).unwrap_or(now);
        let forgotten = self.has(Flaw::NoFence)
            || (self.has(Flaw::MarkExpires) && now - touched > 400)
            || (self.has(Flaw::MarkResetOnDelete) && register.value.is_none());
        let mut guard = guard;
        if forgotten {
            (register.token, register.seq, guard) = (0, 0, 0);
        }
        if self.has(Flaw::SeqIgnored) {
            register.seq = 0;
        }
        if self.has(Flaw::AppliedTwice) && register.seq == write.seq {
            register.seq -= 1;
        }
        let (verdict, after) = register.write(write, guard);
        let mark = after.token.max(guard);
        if verdict == Verdict::Accepted {
            state.keys.insert(write.key.clone(), after);
            if let Some(scope) = scope {
                let register = state.keys.entry(scope.clone()).or_default();
                *register = register.seen(write.token.max(if forgotten { 0 } else { guard }));
            }
        }
        (verdict, mark)
    }

    fn acquire(&self, state: &mut State, lock: &str, ttl_ms: u64, now: Moment) -> Outcome {
        let never = self.has(Flaw::LockNeverPassesOn);
        let held = state.locks.get(lock).is_some_and(|(_, ends)| *ends > now || never);
        if held && (never || !state.healed) {
            return Outcome::NotApplied { reason: "lock-held".into() };
        }
        state.last_token += 1;
        if self.has(Flaw::TokenReused) && self.happens(20) {
            state.last_token = (state.last_token - 3).max(1);
        }
        let token = state.last_token;
        state.locks.insert(lock.to_owned(), (token, now + ttl_ms * 4));
        let (_, after) = state.keys.get(lock).cloned().unwrap_or_default().claim(token, 0);
        state.keys.insert(lock.to_owned(), after);
        Outcome::Granted { token }
    }
}

impl Service for Broken {
    async fn send(&self, request: &Request) -> Outcome {
        self.pause(3).await;
        let healed = self.state.lock().expect("the state").healed;
        let fate = if healed { 99 } else { self.random.lock().expect("the dice").u8(..100) };
        match fate {
            // It never arrives, or its answer does not.
            0..3 => return Outcome::Unknown { reason: "lost on the way".into() },
            3..6 => {
                self.settle(request);
                return Outcome::Unknown { reason: "lost on the way back".into() };
            }
            _ => {}
        }
        let outcome = self.settle(request);
        self.pause(3).await;
        outcome
    }

    async fn pause(&self, ms: u64) {
        let count = self.random.lock().expect("the dice").u64(..=ms);
        for _ in 0..count {
            tokio::task::yield_now().await;
        }
    }

    fn now(&self) -> Moment {
        let mut clock = self.clock.lock().expect("the clock");
        *clock += 1;
        *clock
    }
}

fn seen(register: Option<&Register>) -> Seen {
    let Some(register) = register else { return Seen { mark: Some(0), ..Seen::default() } };
    let value = register.value.as_deref().map(str::to_owned);
    let version = value.is_some().then_some(register.version);
    Seen { mark: Some(register.token), version, value }
}

fn written(register: &Register) -> Seen {
    Seen { value: None, ..seen(Some(register)) }
}

fn refused(reason: &str, index: usize, mark: i64, register: &Register) -> Outcome {
    let seen = Seen { value: None, ..seen(Some(register)) };
    Outcome::Refused { reason: reason.into(), index, mark, seen }
}
