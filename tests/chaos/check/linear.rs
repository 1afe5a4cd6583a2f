//! I9, and with it all the others at once: is there an order, true to time, in which registers without
//! a clock give these very answers?
//!
//! The search is Wing and Gong's, with memory: a set of requests that are through and the state that
//! they led to need be tried only once. What nobody knows the outcome of may come at any later place,
//! or at none. Keys that share a scope or a batch are searched together.
//!
//! A takeover is a step like any other. It may raise the floor, which is a register of its own; and if
//! the standby lagged, it puts everything back to what it was after one of the latest steps.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{Findings, Promise};
use crate::{
    history::{History, Moment, NEVER, Op, Outcome, Request, Seen, Takeover, name_of},
    register::{Register, Verdict},
};

/// How much is looked at before a search is given up.
const PATIENCE: usize = 6_000_000;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Searched {
    pub groups: usize,
    /// Those for which the search was given up.
    pub undecided: usize,
}

pub fn check(history: &History, findings: &mut Findings) -> Searched {
    let mut searched = Searched::default();
    for steps in groups(history) {
        searched.groups += 1;
        let keys: Vec<&str> = steps.iter().flat_map(|step| step.op.keys()).collect();
        let name = keys.iter().min().copied().unwrap_or_default().to_owned();
        match Search::new(&steps).run() {
            Answer::Found => {}
            Answer::GivenUp => searched.undecided += 1,
            Answer::None { furthest, stuck } => findings.add(
                Promise::I9,
                format!(
                    "no order explains what was answered around {name}: {furthest} of {} fit, then \
                     none of {stuck:?}",
                    steps.len()
                ),
            ),
        }
    }
    searched
}

/// One request, as the search takes it, or something that nobody asked for.
struct Step {
    op: Op,
    event: Option<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The floor rises to this.
    Floor(i64),
    /// A standby takes over that may not have heard the latest: of what was acknowledged, or only of what
    /// was not, but may have been seen by readers.
    Loss { lossy: bool },
}

impl Step {
    fn is_loss(&self) -> bool {
        matches!(self.event, Some(Event::Loss { .. }))
    }
}

/// The floor's name in a state. No key begins like this.
const FLOOR: &str = "\0floor";

/// How long before a takeover something can have been acknowledged that the standby had not heard of.
const LAG: Moment = 4_000_000_000;

impl Op {
    fn keys(&self) -> Vec<&str> {
        match &self.request {
            Request::Read { key, .. } | Request::Claim { key, .. } => vec![key],
            Request::Acquire { lock, .. } => vec![lock],
            Request::Renew { .. } | Request::Release { .. } => Vec::new(),
            Request::Write(_) | Request::Batch(_) => self
                .writes()
                .iter()
                .flat_map(|write| [Some(write.key.as_str()), write.scope.as_deref()])
                .flatten()
                .collect(),
        }
    }

    /// Whether the search can learn from it, or needs it.
    fn matters(&self) -> bool {
        match (&self.request, &self.outcome) {
            (Request::Renew { .. } | Request::Release { .. }, _)
            | (_, Outcome::NotApplied { .. }) => false,
            // Whoever grants tokens decides that, and not the register.
            (_, Outcome::Refused { reason, .. }) if reason == "unissued-token" => false,
            (Request::Acquire { .. }, outcome) => matches!(outcome, Outcome::Granted { .. }),
            (Request::Read { token: None, .. }, outcome) => matches!(outcome, Outcome::Done(_)),
            _ => true,
        }
    }
}

/// The requests that touch the same keys, each group by itself.
fn groups(history: &History) -> Vec<Vec<Step>> {
    let mut leaders: HashMap<String, String> = HashMap::new();
    let ops: Vec<Op> = history.ops.iter().filter(|op| op.matters()).cloned().collect();
    for op in &ops {
        let keys = op.keys();
        for key in &keys {
            let (first, other) = (leader(&leaders, keys[0]), leader(&leaders, key));
            leaders.insert(other, first);
        }
    }
    let mut groups: BTreeMap<String, Vec<Step>> = BTreeMap::new();
    for op in ops.into_iter().chain(hidden_claims(history)) {
        let group = leader(&leaders, op.keys()[0]);
        groups.entry(group).or_default().push(Step { op, event: None });
    }
    let mut groups: Vec<Vec<Step>> = groups.into_values().collect();
    for steps in &mut groups {
        steps.extend(takeovers(history, steps));
        steps.sort_by_key(|step| step.op.from);
    }
    groups
}

/// What each takeover may have done to these. The floor may have risen more than once, and to what is
/// known from the end of the round, and from whoever was held against it before.
fn takeovers(history: &History, steps: &[Step]) -> Vec<Step> {
    let Some(first) = history.takeovers.iter().map(|takeover| takeover.from).min() else {
        return Vec::new();
    };
    let highest = history.takeovers.iter().map(|takeover| takeover.floor).max().unwrap_or(0);
    let named = steps.iter().filter(|step| step.op.till > first).flat_map(|step| {
        let (mark, seen) = match &step.op.outcome {
            Outcome::Refused { mark, seen, .. } => (Some(*mark), std::slice::from_ref(seen)),
            Outcome::Done(seen) => (None, seen.as_slice()),
            _ => (None, &[][..]),
        };
        mark.into_iter().chain(seen.iter().filter_map(|seen| seen.mark))
    });
    let floors: BTreeSet<i64> =
        named.filter(|mark| (1..highest).contains(mark)).chain([highest]).collect();
    let step = |event, from, till| {
        let key = FLOOR.to_owned();
        let outcome = Outcome::Unknown { reason: "nobody asked for it".into() };
        let request = Request::Claim { key, token: 0 };
        let name = format!("{event:?}");
        let op = Op { name, request, outcome, from, till, due: false, via: 0 };
        Step { op, event: Some(event) }
    };
    let floors = floors.into_iter().map(|floor| step(Event::Floor(floor), first, NEVER));
    let losses = history.takeovers.iter().map(|Takeover { lossy, from, till, .. }| {
        step(Event::Loss { lossy: *lossy }, *from, *till)
    });
    floors.chain(losses).collect()
}

/// Who stands for the group that a key belongs to.
fn leader(leaders: &HashMap<String, String>, key: &str) -> String {
    let mut key = key.to_owned();
    while let Some(next) = leaders.get(&key).filter(|next| **next != key) {
        key.clone_from(next);
    }
    key
}

/// A lock that was granted to somebody who never heard of it has been claimed all the same. Its token
/// is known from whoever was held against it.
fn hidden_claims(history: &History) -> Vec<Op> {
    let mut since: HashMap<&str, Moment> = HashMap::new();
    let mut known: HashSet<(&str, i64)> = HashSet::new();
    let mut named: HashSet<(&str, i64)> = HashSet::new();
    for op in &history.ops {
        match (&op.request, &op.outcome) {
            (Request::Acquire { lock, .. }, Outcome::Granted { token }) => {
                known.insert((lock, *token));
            }
            (Request::Acquire { lock, .. }, _) => drop(since.entry(lock).or_insert(op.from)),
            (_, Outcome::Refused { mark, .. }) => {
                named.extend(op.keys().into_iter().map(|key| (key, *mark)));
            }
            _ => {}
        }
    }
    let hidden = named.difference(&known).filter_map(|(key, token)| {
        Some(Op {
            name: format!("hidden-{token}"),
            request: Request::Claim { key: (*key).to_owned(), token: *token },
            outcome: Outcome::Unknown { reason: "a grant that got lost".into() },
            from: *since.get(key)?,
            till: NEVER,
            due: false,
            via: 0,
        })
    });
    hidden.collect()
}

type State = BTreeMap<String, Register>;

/// A step that may come next, and the state that it leads to.
type Moves = std::vec::IntoIter<(usize, State)>;

enum Answer {
    Found,
    GivenUp,
    None { furthest: usize, stuck: Vec<String> },
}

struct Search<'a> {
    steps: &'a [Step],
    done: Vec<bool>,
    /// The states that the path has led through, each with the step that led to it, and the moment
    /// from which on a loss may go back to one of them.
    trail: Vec<(u64, State, Option<usize>)>,
    losable: Option<Moment>,
    /// Steps before this one are all done.
    first: usize,
    tried: HashSet<u64>,
    furthest: usize,
    stuck: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(steps: &'a [Step]) -> Self {
        let done = vec![false; steps.len()];
        let losses = steps.iter().filter(|step| step.is_loss());
        let losable = losses.map(|step| step.op.from.saturating_sub(LAG)).min();
        let (tried, stuck) = (HashSet::new(), Vec::new());
        Self { steps, done, trail: Vec::new(), losable, first: 0, tried, furthest: 0, stuck }
    }

    /// Depth first, with a path of its own: histories are longer than a thread's stack is deep.
    fn run(mut self) -> Answer {
        let mut path: Vec<(usize, Moves)> = Vec::new();
        let mut moves = match self.moves(&State::new()) {
            Some(moves) => moves.into_iter(),
            None => return Answer::Found,
        };
        self.trail.push((0, State::new(), None));
        loop {
            let patience = if self.losable.is_some() { PATIENCE / 10 } else { PATIENCE };
            if self.tried.len() > patience / self.steps.len() {
                return Answer::GivenUp;
            }
            if let Some((step, state)) = moves.next() {
                self.done[step] = true;
                if !self.tried.insert(self.digest(&state)) {
                    self.done[step] = false;
                    continue;
                }
                let Some(next) = self.moves(&state) else { return Answer::Found };
                self.trail.push((hash_of(&state), state, Some(step)));
                path.push((step, std::mem::replace(&mut moves, next.into_iter())));
            } else {
                let Some((step, before)) = path.pop() else {
                    return Answer::None { furthest: self.furthest, stuck: self.stuck };
                };
                self.trail.pop();
                self.done[step] = false;
                self.first = self.first.min(step);
                moves = before;
            }
        }
    }

    /// What may come next, what is known to have happened first. `None`: nothing is left to explain.
    fn moves(&mut self, state: &State) -> Option<Vec<(usize, State)>> {
        while self.done.get(self.first) == Some(&true) {
            self.first += 1;
        }
        let open: Vec<usize> =
            (self.first..self.steps.len()).filter(|place| !self.done[*place]).collect();
        let till = |place: &usize| self.steps[*place].op.till;
        // Whoever was answered first must not come after those who began later.
        let deadline = open.iter().map(till).min().filter(|till| *till != NEVER)?;
        let mut open: Vec<usize> =
            open.into_iter().take_while(|place| self.steps[*place].op.from <= deadline).collect();
        open.sort_by_key(till);
        let moves: Vec<_> = open
            .iter()
            .flat_map(|place| self.outcomes(*place, state).into_iter().map(|after| (*place, after)))
            .collect();
        let count = self.done.iter().filter(|done| **done).count();
        if moves.is_empty() && count >= self.furthest {
            self.furthest = count;
            self.stuck = open.iter().map(|place| self.steps[*place].op.name.clone()).collect();
        }
        Some(moves)
    }

    /// The states that this step may lead to.
    fn outcomes(&self, place: usize, state: &State) -> Vec<State> {
        let Step { op, event } = &self.steps[place];
        match event {
            None => apply(op, state).into_iter().collect(),
            Some(Event::Floor(floor)) => {
                let risen = Register { token: *floor, ..Register::default() };
                if floor_of(state) >= *floor {
                    return Vec::new();
                }
                vec![with(state, FLOOR, risen)]
            }
            // Nothing may be lost, or the last, or the last two...
            Some(Event::Loss { lossy }) => {
                // Whoever held a lock before must acquire again: the floor is not below any of them.
                let newest = state.values().map(|register| register.token).max().unwrap_or(0);
                let risen = Register { token: newest, ..Register::default() };
                let mut states = vec![with(state, FLOOR, risen.clone())];
                // What the last step led to is where we are.
                let mut later = self.trail.last();
                for earlier in self.trail.iter().rev().skip(1).take(self.recent()) {
                    let undone = later.and_then(|(.., step)| *step);
                    let known = undone.is_some_and(|step| !self.steps[step].op.is_unknown());
                    if known && !lossy && later.is_some_and(|(_, later, _)| *later != earlier.1) {
                        break;
                    }
                    later = Some(earlier);
                    let earlier = with(&earlier.1, FLOOR, risen.clone());
                    if states.last() != Some(&earlier) {
                        states.push(earlier);
                    }
                }
                states
            }
        }
    }

    /// How many of the last states a loss may go back to.
    fn recent(&self) -> usize {
        let Some(since) = self.losable else { return 0 };
        let late = |place: &usize| self.done[*place] && self.steps[*place].op.till > since;
        (0..self.steps.len()).filter(late).count() + 1
    }

    fn digest(&self, state: &State) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.done[self.first..].hash(&mut hasher);
        self.first.hash(&mut hasher);
        state.hash(&mut hasher);
        // As long as it may be lost, it matters by which way it has come.
        let lost = |place: usize| self.steps[place].is_loss() && !self.done[place];
        if self.losable.is_some() && (0..self.steps.len()).any(lost) {
            for (earlier, ..) in self.trail.iter().rev().take(self.recent()) {
                earlier.hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

/// The state after this request; `None` where it would have been answered otherwise, or where nobody
/// knows its answer and it would change nothing.
fn apply(op: &Op, state: &State) -> Option<State> {
    let register = |key: &str| state.get(key).cloned().unwrap_or_default();
    let changed = |key: &str, register: Register| with(state, key, register);
    let floor = floor_of(state);
    let unless_unknown = |after: State| (!op.is_unknown() || after != *state).then_some(after);
    match &op.request {
        Request::Renew { .. } | Request::Release { .. } => None,
        Request::Acquire { lock, .. } => {
            let Outcome::Granted { token } = op.outcome else { return None };
            let (verdict, after) = register(lock).claim(token, floor);
            (verdict == Verdict::Accepted).then(|| changed(lock, after))
        }
        Request::Claim { key, token } | Request::Read { key, token: Some(token) } => {
            let (verdict, after) = register(key).claim(*token, floor);
            match (&op.outcome, verdict) {
                (Outcome::Unknown { .. }, _) => unless_unknown(changed(key, after)),
                (Outcome::Done(seen), Verdict::Accepted) => {
                    let claim = matches!(op.request, Request::Claim { .. });
                    (claim || is_seen(seen.first()?, &after, floor)).then(|| changed(key, after))
                }
                (Outcome::Refused { reason, mark, .. }, Verdict::Refused(because)) => {
                    (reason == because && is_held_against(*mark, *token, after.token.max(floor)))
                        .then(|| state.clone())
                }
                _ => None,
            }
        }
        Request::Read { key, token: None } => match &op.outcome {
            Outcome::Done(seen) => {
                is_seen(seen.first()?, &register(key), floor).then(|| state.clone())
            }
            _ => None,
        },
        Request::Write(_) | Request::Batch(_) => unless_unknown(write(op, state)?),
    }
}

/// All of its writes, or none.
fn write(op: &Op, before: &State) -> Option<State> {
    let mut state = before.clone();
    let floor = floor_of(before);
    // Of a batch that is refused nothing stays, not even that its holder was seen.
    let single = op.writes().len() == 1;
    for (place, write) in op.writes().iter().enumerate() {
        let register = state.get(&write.key).cloned().unwrap_or_default();
        let scope = write.scope.as_ref().map(|scope| state.get(scope).cloned().unwrap_or_default());
        let guard = scope.as_ref().map_or(0, |scope| scope.token).max(floor);
        let (verdict, after) = register.write(write, guard);
        // The holder has been seen, whatever its precondition has come to.
        let passed = |state: &State| {
            let state = with(state, &write.key, after.clone());
            match (&write.scope, &scope) {
                (Some(name), Some(scope)) => with(&state, name, scope.seen(write.token)),
                _ => state,
            }
        };
        match (&op.outcome, verdict) {
            (Outcome::Unknown { .. }, Verdict::Refused("version-mismatch")) if single => {
                return Some(passed(before));
            }
            (Outcome::Unknown { .. }, Verdict::Refused(_)) => return Some(before.clone()),
            (Outcome::Refused { reason, index, mark, .. }, Verdict::Refused(because)) => {
                let same = reason == because && *index == place;
                let held = match because {
                    "stale-token" => is_held_against(*mark, write.token, after.token.max(guard)),
                    "version-mismatch" if !single => *mark == register.token.max(floor),
                    _ => *mark == after.token,
                };
                let mismatch = single && because == "version-mismatch";
                let after = if mismatch { passed(before) } else { before.clone() };
                return (same && held).then_some(after);
            }
            (_, Verdict::Refused(_)) => return None,
            (Outcome::Done(seen), _) => {
                let seen = seen.get(place)?;
                let version = write.value.is_none() || seen.version == Some(after.version);
                if !version || seen.mark.is_some_and(|mark| mark != after.token) {
                    return None;
                }
            }
            _ => {}
        }
        state = passed(&state);
    }
    // Every write of a refused batch was let through: then it was not refused.
    (!matches!(op.outcome, Outcome::Refused { .. })).then_some(state)
}

/// Another fencepost's cache may know a mark that has been overtaken. It refuses just as well.
fn is_held_against(named: i64, token: i64, mark: i64) -> bool {
    token < named && named <= mark
}

fn hash_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn with(state: &State, key: &str, register: Register) -> State {
    let mut state = state.clone();
    state.insert(key.to_owned(), register);
    state
}

fn floor_of(state: &State) -> i64 {
    state.get(FLOOR).map_or(0, |floor| floor.token)
}

/// A reader is told the floor where that is higher.
fn is_seen(seen: &Seen, register: &Register, floor: i64) -> bool {
    let value = seen.value.as_deref().map(name_of) == register.value.as_deref().map(name_of);
    let version = seen.value.is_none() || seen.version == Some(register.version);
    value && version && seen.mark.is_none_or(|mark| mark == register.token.max(floor))
}
