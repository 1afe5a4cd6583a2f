//! I4: one outcome for each request, and what was said not to have happened never happens.

use std::collections::{HashMap, HashSet};

use super::{Findings, Promise, versions::keys};
use crate::history::{History, Moment, Op, name_of};

pub fn check(history: &History, findings: &mut Findings) {
    for name in &history.muddled {
        findings.add(Promise::I4, format!("{name} has more than one outcome"));
    }
    let (denied, sent) = (denied(history), sent(history));
    let mut told = HashSet::new();
    for (key, seen) in keys(history) {
        for sighting in seen.sightings {
            let value = name_of(sighting.value);
            // One that was repeated later may have come to something then.
            let later = sent.get(value).is_none_or(|from| *from > sighting.op.till);
            if let Some(op) = denied.get(value)
                && later
                && told.insert(value)
            {
                let (seen, said) = (&sighting.op.name, &op.outcome);
                let what = format!("{seen} found {value} at {key}, of which was said: {said:?}");
                findings.add(Promise::I4, what);
            }
        }
    }
}

/// Values of writes that were refused or not applied.
fn denied(history: &History) -> HashMap<&str, &Op> {
    let denied = history.ops.iter().filter(|op| !op.may_apply());
    denied.flat_map(|op| values(op).map(move |value| (value, op))).collect()
}

/// Values of writes that may have been applied, with the first moment of it.
fn sent(history: &History) -> HashMap<&str, Moment> {
    let mut sent = HashMap::new();
    for op in history.ops.iter().filter(|op| op.may_apply()) {
        for value in values(op) {
            let from = sent.entry(value).or_insert(op.from);
            *from = op.from.min(*from);
        }
    }
    sent
}

fn values(op: &Op) -> impl Iterator<Item = &str> {
    op.writes().iter().filter_map(|write| write.value.as_deref()).map(name_of)
}
