//! I4: one outcome for each request, and what was said not to have happened never happens.

use std::collections::{HashMap, HashSet};

use super::{Findings, Promise, versions::keys};
use crate::history::{History, Op, name_of};

pub fn check(history: &History, findings: &mut Findings) {
    for name in &history.muddled {
        findings.add(Promise::I4, format!("{name} has more than one outcome"));
    }
    let denied = denied(history);
    let mut told = HashSet::new();
    for (key, seen) in keys(history) {
        for sighting in seen.sightings {
            let value = name_of(sighting.value);
            if let Some(op) = denied.get(value)
                && told.insert(value)
            {
                let (seen, said) = (&sighting.op.name, &op.outcome);
                let what = format!("{seen} found {value} at {key}, of which was said: {said:?}");
                findings.add(Promise::I4, what);
            }
        }
    }
}

/// Values of writes that were refused or not applied, every time that they were sent.
fn denied(history: &History) -> HashMap<&str, &Op> {
    let values = |op: &'_ Op| -> Vec<String> {
        op.writes().iter().filter_map(|write| write.value.clone()).collect()
    };
    let maybe: HashSet<String> = history
        .ops
        .iter()
        .filter(|op| op.may_apply())
        .flat_map(values)
        .map(|value| name_of(&value).to_owned())
        .collect();
    let denied = history.ops.iter().filter(|op| !op.may_apply()).flat_map(|op| {
        op.writes().iter().filter_map(move |write| Some((name_of(write.value.as_ref()?), op)))
    });
    denied.filter(|(value, _)| !maybe.contains(*value)).collect()
}
