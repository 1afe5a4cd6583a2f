//! A fenced store and its locks in memory, with one flaw, or none. It has crashes and lost answers of
//! its own, so that the work meets unknown outcomes here too.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use fastrand::Rng;

use crate::{
    history::{Moment, Outcome, Request, Seen, Takeover, Write},
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
    /// A refusal names a mark that the key had long ago.
    OldMarkNamed,
    /// A seq that comes again is a replay, whatever it brings.
    SeqReuseBelieved,
    PreconditionIgnored,
    /// A stale write is told that its version does not match, and not that it is stale.
    PreconditionFirst,
    /// A token that nobody was granted passes.
    ForgeryBelieved,
    /// Whoever has lost a lock can still renew or release it.
    LostLockRenewed,
    LostLockReleased,
    /// To two at once.
    LockGrantedTwice,
    /// A standby takes over that lacks the latest, and every token is as good as before.
    FloorStays,
    /// A standby that was said to have everything does not.
    SilentLoss,
}

impl Flaw {
    /// Grants are none of a register's business, a lock that stays is no wrong answer, and what may have
    /// been lost in a takeover explains much.
    pub fn changes_an_answer(self) -> bool {
        !matches!(
            self,
            Self::TokenReused
                | Self::LockNeverPassesOn
                | Self::OldMarkNamed
                | Self::ForgeryBelieved
                | Self::LostLockRenewed
                | Self::LostLockReleased
                | Self::LockGrantedTwice
                | Self::FloorStays
        )
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
    floor: i64,
    requests: usize,
    takeovers: Vec<Takeover>,
    late: Vec<Write>,
    healed: bool,
}

/// What a tick of the clock is, in nanoseconds. Leases are short.
const TICK: Moment = 250_000;

/// After so many requests a standby takes over, if there is one.
const TAKEOVER: usize = 600;

pub struct Broken {
    flaw: Option<Flaw>,
    /// Whether a standby takes over in the middle, and whether it may lack the latest.
    takeover: Option<bool>,
    /// A clock that ticks when it is looked at.
    clock: Mutex<Moment>,
    state: Mutex<State>,
    random: Mutex<Rng>,
}

impl Broken {
    pub fn new(flaw: Option<Flaw>, takeover: Option<bool>, seed: u64) -> Self {
        let random = Mutex::new(Rng::with_seed(!seed));
        Self { flaw, takeover, clock: Mutex::default(), state: Mutex::default(), random }
    }

    pub fn takeovers(&self) -> Vec<Takeover> {
        self.state.lock().expect("the state").takeovers.clone()
    }

    fn take_over(&self, state: &mut State, lossy: bool) {
        let from = self.now();
        if lossy || self.has(Flaw::SilentLoss) {
            state.keys = state.copy.clone();
        }
        if !self.has(Flaw::FloorStays) {
            state.floor = state.last_token;
        }
        let till = self.now();
        state.takeovers.push(Takeover { from, till, lossy, floor: state.floor });
    }

    /// From now on nothing goes wrong any more, and all leases are over.
    pub fn heal(&self) {
        *self.clock.lock().expect("the clock") += 1_000_000_000;
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
        state.requests += 1;
        if let Some(lossy) = self.takeover.filter(|_| state.requests == TAKEOVER) {
            self.take_over(&mut state, lossy);
        }
        let tokens = request.tokens();
        if tokens.iter().any(|token| *token > state.last_token) && !self.has(Flaw::ForgeryBelieved)
        {
            let key =
                request.key().and_then(|key| state.keys.get(key)).cloned().unwrap_or_default();
            return refused("unissued-token", 0, key.token, &key, state.floor);
        }
        let floor = state.floor;
        match request {
            Request::Read { key, token: None } => {
                let lags = self.has(Flaw::StaleRead) && self.happens(3);
                let keys = if lags { &state.copy } else { &state.keys };
                Outcome::Done(vec![seen(keys.get(key), floor)])
            }
            Request::Read { key, token: Some(token) } | Request::Claim { key, token } => {
                self.claim(&mut state, key, *token, matches!(request, Request::Read { .. }))
            }
            Request::Write(write) => self.single(&mut state, write, now),
            Request::Batch(writes) => self.batch(&mut state, writes, now),
            Request::Acquire { lock, ttl_ms, .. } => self.acquire(&mut state, lock, *ttl_ms, now),
            Request::Renew { lock, token } | Request::Release { lock, token } => {
                let renews = matches!(request, Request::Renew { .. });
                let anybody = if renews { Flaw::LostLockRenewed } else { Flaw::LostLockReleased };
                let holds = state.locks.get(lock).is_some_and(|(held, _)| held == token);
                if !holds && !self.has(anybody) {
                    return Outcome::NotApplied { reason: "lock-lost".into() };
                }
                if !renews {
                    state.locks.remove(lock);
                }
                Outcome::Done(Vec::new())
            }
        }
    }

    fn claim(&self, state: &mut State, key: &str, token: i64, read: bool) -> Outcome {
        let register = state.keys.get(key).cloned().unwrap_or_default();
        if read && self.has(Flaw::ReadDoesNotClaim) {
            return Outcome::Done(vec![Seen { mark: None, ..seen(Some(&register), 0) }]);
        }
        let (verdict, after) = register.claim(token, state.floor);
        let floor = state.floor;
        if let Verdict::Refused(reason) = verdict {
            return refused(reason, 0, after.token.max(floor), &after, floor);
        }
        let seen = seen(Some(&after), floor);
        state.keys.insert(key.to_owned(), after);
        Outcome::Done(vec![Seen { value: seen.value.filter(|_| read), ..seen }])
    }

    fn single(&self, state: &mut State, write: &Write, now: Moment) -> Outcome {
        if self.has(Flaw::FalseRefusal) && self.happens(10) {
            let register = state.keys.get(&write.key).cloned().unwrap_or_default();
            return refused("stale-token", 0, write.token, &register, state.floor);
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
            let old = self.has(Flaw::OldMarkNamed) && mark > write.token + 1;
            let mark = if header { mark + 1000 } else { mark - i64::from(old) };
            return refused(reason, 0, mark, &after, state.floor);
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
                // That its holder was seen has been undone with the rest.
                let undone = reason == "version-mismatch";
                let mark = if undone { register.token.max(state.floor) } else { mark };
                return refused(reason, index, mark, &register, state.floor);
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
        let guard = guard.max(state.floor);
        let touched = state.touched.insert(write.key.clone(), now).unwrap_or(now);
        let forgotten = self.has(Flaw::NoFence)
            || (self.has(Flaw::MarkExpires) && now - touched > 400 * TICK)
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
        if self.has(Flaw::SeqReuseBelieved) && write.seq > 0 && register.seq == write.seq {
            let value = write.value.as_deref().unwrap_or("deleted");
            register.by = Some(value.into());
        }
        let mut write = write.clone();
        if self.has(Flaw::PreconditionIgnored) {
            write.expects = None;
        }
        let (mut verdict, after) = register.write(&write, guard);
        if self.has(Flaw::PreconditionFirst)
            && verdict == Verdict::Refused("stale-token")
            && write.expects.is_some_and(|version| version != register.version)
        {
            verdict = Verdict::Refused("version-mismatch");
        }
        let mark = after.token.max(guard);
        let seen = verdict == Verdict::Refused("version-mismatch") && after.token == write.token;
        if verdict == Verdict::Accepted || seen {
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
        let twice = self.has(Flaw::LockGrantedTwice) && self.happens(4);
        let held = state.locks.get(lock).is_some_and(|(_, ends)| *ends > now || never) && !twice;
        if held {
            return Outcome::NotApplied { reason: "lock-held".into() };
        }
        state.last_token += 1;
        if self.has(Flaw::TokenReused) && self.happens(20) {
            state.last_token = (state.last_token - 3).max(1);
        }
        let token = state.last_token;
        state.locks.insert(lock.to_owned(), (token, now + ttl_ms * 1_000_000));
        let (_, after) = state.keys.get(lock).cloned().unwrap_or_default().claim(token, 0);
        state.keys.insert(lock.to_owned(), after);
        Outcome::Granted { token }
    }
}

impl Service for Broken {
    fn choose(&self) -> usize {
        0
    }

    async fn hang_up(&self, via: usize, request: &Request, _: u64) -> Outcome {
        self.send(via, request).await
    }

    async fn send(&self, _: usize, request: &Request) -> Outcome {
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
        *clock += TICK;
        *clock
    }
}

fn seen(register: Option<&Register>, floor: i64) -> Seen {
    let Some(register) = register else { return Seen { mark: Some(floor), ..Seen::default() } };
    let value = register.value.as_deref().map(str::to_owned);
    let version = value.is_some().then_some(register.version);
    Seen { mark: Some(register.token.max(floor)), version, value }
}

fn written(register: &Register) -> Seen {
    Seen { value: None, ..seen(Some(register), 0) }
}

fn refused(reason: &str, index: usize, mark: i64, register: &Register, floor: i64) -> Outcome {
    let seen = Seen { value: None, ..seen(Some(register), floor) };
    Outcome::Refused { reason: reason.into(), index, mark, seen }
}
