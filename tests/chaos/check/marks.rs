//! I1 and I2: whatever has been seen of a mark holds for ever after.

use std::collections::HashMap;

use super::{Findings, Promise, sweep::Known};
use crate::history::{History, Moment, Op, Outcome, Request, Write};

/// `key` had at least this mark when `op` was answered.
struct Fact<'a> {
    key: &'a str,
    mark: i64,
    op: &'a Op,
    says: Says,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// A token that passed. It may have been overtaken by the time of the answer.
    AtLeast,
    /// The mark as it is in the store.
    Stored,
    /// What the fencepost that was asked knew. It refuses from memory, and another may know more; but it
    /// never knows less than it has told before.
    Known,
}

pub fn check(history: &History, findings: &mut Findings) {
    let facts: Vec<Fact<'_>> = history.ops.iter().flat_map(facts).collect();
    let mut known: HashMap<&str, Known<&str>> = HashMap::new();
    let mut known_to: HashMap<(usize, &str), Known<&str>> = HashMap::new();
    for Fact { key, mark, op, .. } in &facts {
        known.entry(key).or_default().add(op.till, *mark, &op.name);
        if is_remembered(op) {
            known_to.entry((op.via, key)).or_default().add(op.till, *mark, &op.name);
        }
    }
    known.values_mut().for_each(Known::settle);
    known_to.values_mut().for_each(Known::settle);
    let before = |key: &str, moment: Moment| known.get(key).and_then(|known| known.before(moment));

    for op in &history.ops {
        for (key, token) in passed(op) {
            if let Some((mark, witness)) = before(key, op.from)
                && token < mark
            {
                let name = &op.name;
                findings.add(
                    Promise::I1,
                    format!("{name} passed on {key} with {token}, after {witness} with {mark}"),
                );
            }
        }
    }
    for Fact { key, mark, op, says } in facts {
        let earlier = match says {
            Says::AtLeast => None,
            Says::Stored => before(key, op.from),
            Says::Known => known_to.get(&(op.via, key)).and_then(|known| known.before(op.from)),
        };
        if let Some((higher, witness)) = earlier
            && mark < higher
        {
            let name = &op.name;
            let what =
                format!("the mark of {key} was {higher} for {witness}, and {mark} for {name}");
            findings.add(Promise::I2, what);
        }
    }
    held_against_what_was_known(history, &known_to, findings);
}

/// The mark that a stale token is held against is no lower than that of its key, as the fencepost that
/// refuses it has told it before. (Of the scope it may know less, if it has been started anew since.)
fn held_against_what_was_known(
    history: &History,
    known_to: &HashMap<(usize, &str), Known<&str>>,
    findings: &mut Findings,
) {
    for op in &history.ops {
        let Outcome::Refused { reason, index, mark, .. } = &op.outcome else { continue };
        let Some(write) = op.writes().get(*index).filter(|_| reason == "stale-token") else {
            continue;
        };
        let (name, key) = (&op.name, &write.key);
        let known = known_to.get(&(op.via, key.as_str()));
        if let Some((higher, witness)) = known.and_then(|known| known.before(op.from))
            && *mark < higher
        {
            let what =
                format!("{name} was held against {mark}, after {witness} had {higher} of {key}");
            findings.add(Promise::I2, what);
        }
    }
}

/// Whether a fencepost keeps in mind what it answered. Of a batch that was refused it does not: that may
/// rest on what was undone with it.
fn is_remembered(op: &Op) -> bool {
    !(matches!(op.request, Request::Batch(_)) && matches!(op.outcome, Outcome::Refused { .. }))
}

/// Every key that this passed the fence of, and with which token.
fn passed(op: &Op) -> Vec<(&str, i64)> {
    match (&op.request, &op.outcome) {
        (Request::Read { key, token: Some(token) } | Request::Claim { key, token }, done) => {
            if matches!(done, Outcome::Done(_)) { vec![(key, *token)] } else { Vec::new() }
        }
        // Its precondition is looked at only once the fence has let it through.
        (Request::Write(write), Outcome::Refused { .. }) if op.mismatched() => guarded(write),
        _ => op.accepted().flat_map(|(write, _)| guarded(write)).collect(),
    }
}

/// The keys whose marks guard a write.
fn guarded(write: &Write) -> Vec<(&str, i64)> {
    let scope = write.scope.iter().map(|scope| (scope.as_str(), write.token));
    std::iter::once((write.key.as_str(), write.token)).chain(scope).collect()
}

fn facts(op: &Op) -> Vec<Fact<'_>> {
    let at_least = |(key, mark)| Fact { key, mark, op, says: Says::AtLeast };
    let mut facts: Vec<Fact<'_>> = passed(op).into_iter().map(at_least).collect();
    let mut name = |key, mark: Option<i64>, says| {
        facts.extend(mark.map(|mark| Fact { key, mark, op, says }));
    };
    match (&op.request, &op.outcome) {
        (Request::Read { key, .. } | Request::Claim { key, .. }, Outcome::Done(seen)) => {
            name(key, seen.first().and_then(|seen| seen.mark), Says::Stored);
        }
        (_, Outcome::Refused { index, seen, reason, .. }) => {
            // Only what is stale is refused from memory.
            let says = if reason == "stale-token" { Says::Known } else { Says::Stored };
            match &op.request {
                Request::Read { key, .. } | Request::Claim { key, .. } => {
                    name(key, seen.mark, says);
                }
                _ => {
                    if let Some(write) = op.writes().get(*index) {
                        name(&write.key, seen.mark, says);
                    }
                }
            }
        }
        (Request::Acquire { lock, .. }, Outcome::Granted { token }) => {
            name(lock, Some(*token), Says::AtLeast);
        }
        _ => {
            for (write, seen) in op.accepted() {
                name(&write.key, seen.mark, Says::Stored);
            }
        }
    }
    facts
}
