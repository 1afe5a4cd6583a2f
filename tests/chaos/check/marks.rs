//! I1 and I2: whatever has been seen of a mark holds for ever after.

use std::collections::HashMap;

use super::{Findings, Promise, sweep::Known};
use crate::history::{History, Moment, Op, Outcome, Request, Seen};

/// `key` had at least this mark when `op` was answered.
struct Fact<'a> {
    key: &'a str,
    mark: i64,
    op: &'a Op,
    /// Whether the answer names the mark as it is in the store. A refusal may come from a cache, which
    /// knows a mark that the key has had: what it says holds for ever, and may be old.
    named: bool,
}

pub fn check(history: &History, findings: &mut Findings) {
    let facts: Vec<Fact<'_>> = history.ops.iter().flat_map(facts).collect();
    let mut known: HashMap<&str, Known<&str>> = HashMap::new();
    for fact in &facts {
        known.entry(fact.key).or_default().add(fact.op.till, fact.mark, &fact.op.name);
    }
    known.values_mut().for_each(Known::settle);
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
    for fact in facts.iter().filter(|fact| fact.named) {
        if let Some((mark, witness)) = before(fact.key, fact.op.from)
            && fact.mark < mark
        {
            let (key, lower, name) = (fact.key, fact.mark, &fact.op.name);
            findings.add(
                Promise::I2,
                format!("the mark of {key} was {mark} for {witness}, and {lower} for {name}"),
            );
        }
    }
}

/// Every key that this passed the fence of, and with which token.
fn passed(op: &Op) -> Vec<(&str, i64)> {
    match (&op.request, &op.outcome) {
        (Request::Read { key, token: Some(token) } | Request::Claim { key, token }, done) => {
            if matches!(done, Outcome::Done(_)) { vec![(key, *token)] } else { Vec::new() }
        }
        _ => op
            .accepted()
            .flat_map(|(write, _)| {
                let scope = write.scope.iter().map(|scope| (scope.as_str(), write.token));
                std::iter::once((write.key.as_str(), write.token)).chain(scope)
            })
            .collect(),
    }
}

fn facts(op: &Op) -> Vec<Fact<'_>> {
    let mut facts: Vec<Fact<'_>> =
        passed(op).into_iter().map(|(key, mark)| Fact { key, mark, op, named: false }).collect();
    let mut name = |key, mark: Option<i64>| {
        if let Some(mark) = mark {
            facts.push(Fact { key, mark, op, named: true });
        }
    };
    match (&op.request, &op.outcome) {
        (Request::Read { key, .. } | Request::Claim { key, .. }, Outcome::Done(seen)) => {
            name(key, seen.first().and_then(|seen| seen.mark));
        }
        (_, Outcome::Refused { index, seen: Seen { mark: Some(mark), .. }, .. }) => {
            let key = match &op.request {
                Request::Read { key, .. } | Request::Claim { key, .. } => Some(key),
                _ => op.writes().get(*index).map(|write| &write.key),
            };
            facts.extend(key.map(|key| Fact { key, mark: *mark, op, named: false }));
        }
        (Request::Acquire { lock, .. }, Outcome::Granted { token }) => {
            facts.push(Fact { key: lock, mark: *token, op, named: false });
        }
        _ => {
            for (write, seen) in op.accepted() {
                name(&write.key, seen.mark);
            }
        }
    }
    facts
}
