//! I9, and with it all the others at once: is there an order, true to time, in which registers without
//! a clock give these very answers?
//!
//! The search is Wing and Gong's, with memory: a set of requests that are through and the state that
//! they led to need be tried only once. What nobody knows the outcome of may come at any later place,
//! or at none. Keys that share a scope or a batch are searched together.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{Findings, Promise};
use crate::{
    history::{History, Moment, NEVER, Op, Outcome, Request, Seen, name_of},
    register::{Register, Verdict},
};

/// How much is looked at before a search is given up.
const PATIENCE: usize = 60_000_000;

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

/// One request, as the search takes it.
struct Step {
    op: Op,
}

impl Op {
    fn keys(&self) -> Vec<&str> {
        match &self.request {
            Request::Read { key, .. } | Request::Claim { key, .. } => vec![key],
            Request::Acquire { lock, .. } => vec![lock],
            Request::Release { .. } => Vec::new(),
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
            (Request::Release { .. }, _) | (_, Outcome::NotApplied { .. }) => false,
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
        groups.entry(group).or_default().push(Step { op });
    }
    let mut groups: Vec<Vec<Step>> = groups.into_values().collect();
    for steps in &mut groups {
        steps.sort_by_key(|step| step.op.from);
    }
    groups
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
    /// Steps before this one are all done.
    first: usize,
    tried: HashSet<u64>,
    furthest: usize,
    stuck: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(steps: &'a [Step]) -> Self {
        let done = vec![false; steps.len()];
        Self { steps, done, first: 0, tried: HashSet::new(), furthest: 0, stuck: Vec::new() }
    }

    /// Depth first, with a path of its own: histories are longer than a thread's stack is deep.
    fn run(mut self) -> Answer {
        let mut path: Vec<(usize, Moves)> = Vec::new();
        let mut moves = match self.moves(&State::new()) {
            Some(moves) => moves.into_iter(),
            None => return Answer::Found,
        };
        loop {
            if self.tried.len() > PATIENCE / self.steps.len() {
                return Answer::GivenUp;
            }
            if let Some((step, state)) = moves.next() {
                self.done[step] = true;
                if !self.tried.insert(self.digest(&state)) {
                    self.done[step] = false;
                    continue;
                }
                let Some(next) = self.moves(&state) else { return Answer::Found };
                path.push((step, std::mem::replace(&mut moves, next.into_iter())));
            } else {
                let Some((step, before)) = path.pop() else {
                    return Answer::None { furthest: self.furthest, stuck: self.stuck };
                };
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
            .filter_map(|place| Some((*place, apply(&self.steps[*place].op, state)?)))
            .collect();
        let count = self.done.iter().filter(|done| **done).count();
        if moves.is_empty() && count >= self.furthest {
            self.furthest = count;
            self.stuck = open.iter().map(|place| self.steps[*place].op.name.clone()).collect();
        }
        Some(moves)
    }

    fn digest(&self, state: &State) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.done[self.first..].hash(&mut hasher);
        self.first.hash(&mut hasher);
        state.hash(&mut hasher);
        hasher.finish()
    }
}

/// The state after this request; `None` where it would have been answered otherwise, or where nobody
/// knows its answer and it would change nothing.
fn apply(op: &Op, state: &State) -> Option<State> {
    let register = |key: &str| state.get(key).cloned().unwrap_or_default();
    let changed = |key: &str, register: Register| {
        let mut state = state.clone();
        state.insert(key.to_owned(), register);
        state
    };
    let unless_unknown = |after: State| (!op.is_unknown() || after != *state).then_some(after);
    match &op.request {
        Request::Release { .. } => None,
        Request::Acquire { lock, .. } => {
            let Outcome::Granted { token } = op.outcome else { return None };
            let (verdict, after) = register(lock).claim(token, 0);
            (verdict == Verdict::Accepted).then(|| changed(lock, after))
        }
        Request::Claim { key, token } | Request::Read { key, token: Some(token) } => {
            let (verdict, after) = register(key).claim(*token, 0);
            match (&op.outcome, verdict) {
                (Outcome::Unknown { .. }, _) => unless_unknown(changed(key, after)),
                (Outcome::Done(seen), Verdict::Accepted) => {
                    let claim = matches!(op.request, Request::Claim { .. });
                    (claim || is_seen(seen.first()?, &after)).then(|| changed(key, after))
                }
                (Outcome::Refused { reason, mark, .. }, Verdict::Refused(because)) => {
                    (reason == because && is_held_against(*mark, *token, after.token))
                        .then(|| state.clone())
                }
                _ => None,
            }
        }
        Request::Read { key, token: None } => match &op.outcome {
            Outcome::Done(seen) => is_seen(seen.first()?, &register(key)).then(|| state.clone()),
            _ => None,
        },
        Request::Write(_) | Request::Batch(_) => unless_unknown(write(op, state)?),
    }
}

/// All of its writes, or none.
fn write(op: &Op, before: &State) -> Option<State> {
    let mut state = before.clone();
    for (place, write) in op.writes().iter().enumerate() {
        let register = state.get(&write.key).cloned().unwrap_or_default();
        let scope = write.scope.as_ref().map(|scope| state.get(scope).cloned().unwrap_or_default());
        let guard = scope.as_ref().map_or(0, |scope| scope.token);
        let (verdict, after) = register.write(write, guard);
        match (&op.outcome, verdict) {
            (Outcome::Unknown { .. }, Verdict::Refused(_)) => return Some(before.clone()),
            (Outcome::Refused { reason, index, mark, .. }, Verdict::Refused(because)) => {
                let same = reason == because && *index == place;
                let held = match because {
                    "stale-token" => is_held_against(*mark, write.token, after.token.max(guard)),
                    _ => *mark == after.token,
                };
                return (same && held).then(|| before.clone());
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
        state.insert(write.key.clone(), after);
        if let (Some(name), Some(scope)) = (&write.scope, scope) {
            state.insert(name.clone(), scope.seen(write.token));
        }
    }
    // Every write of a refused batch was let through: then it was not refused.
    (!matches!(op.outcome, Outcome::Refused { .. })).then_some(state)
}

/// Another fencepost's cache may know a mark that has been overtaken. It refuses just as well.
fn is_held_against(named: i64, token: i64, mark: i64) -> bool {
    token < named && named <= mark
}

fn is_seen(seen: &Seen, register: &Register) -> bool {
    let value = seen.value.as_deref().map(name_of) == register.value.as_deref().map(name_of);
    let version = seen.value.is_none() || seen.version == Some(register.version);
    value && version && seen.mark.is_none_or(|mark| mark == register.token)
}
