//! I3, I5, I6, and I1 once more: a key's versions are its history, and each belongs to one write.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Findings, Promise, sweep::Known};
use crate::history::{History, Op, Outcome, Request, Write, name_of};

/// Somebody was told that `value` is there, under this version.
pub struct Sighting<'a> {
    pub op: &'a Op,
    pub version: i64,
    pub value: &'a str,
    /// By the write itself, or by a reader.
    pub own: bool,
}

#[derive(Default)]
pub struct Key<'a> {
    pub sightings: Vec<Sighting<'a>>,
    /// Reads that found nothing.
    absences: Vec<&'a Op>,
    /// Deletes that may have happened.
    deletes: Vec<&'a Op>,
    /// Writes that may have happened, by the name of their value.
    pub writes: HashMap<&'a str, &'a Write>,
    unknown: HashSet<&'a str>,
}

pub fn keys(history: &History) -> BTreeMap<&str, Key<'_>> {
    let mut keys: BTreeMap<&str, Key<'_>> = BTreeMap::new();
    for op in &history.ops {
        if let (Request::Read { key, .. }, Outcome::Done(seen)) = (&op.request, &op.outcome) {
            let key = keys.entry(key).or_default();
            match seen.first().map(|seen| (seen.version, seen.value.as_deref())) {
                Some((Some(version), Some(value))) => {
                    key.sightings.push(Sighting { op, version, value, own: false });
                }
                _ => key.absences.push(op),
            }
        }
        for write in op.writes().iter().filter(|_| op.may_apply()) {
            let key = keys.entry(&write.key).or_default();
            match &write.value {
                None => key.deletes.push(op),
                Some(value) => {
                    key.writes.insert(name_of(value), write);
                    if op.is_unknown() {
                        key.unknown.insert(name_of(value));
                    }
                }
            }
        }
        for (write, seen) in op.accepted() {
            if let (Some(version), Some(value)) = (seen.version, &write.value) {
                let key = keys.entry(&write.key).or_default();
                key.sightings.push(Sighting { op, version, value, own: true });
            }
        }
    }
    keys
}

pub fn check(history: &History, findings: &mut Findings) {
    for (name, key) in keys(history) {
        let values = one_value_each(name, &key, findings);
        in_order(name, &key, &values, findings);
        nothing_is_forgotten(name, &key, findings);
        nothing_vanishes(name, &key, findings);
        no_version_from_nowhere(name, &key, findings);
    }
    meant_for_what_was_there(history, findings);
}

/// A write that was meant for one version makes the next.
fn meant_for_what_was_there(history: &History, findings: &mut Findings) {
    for op in &history.ops {
        for (write, seen) in op.accepted() {
            let (Some(expected @ 1..), Some(version)) = (write.expects, seen.version) else {
                continue;
            };
            if version != expected + 1 {
                let (name, key) = (&op.name, &write.key);
                let what =
                    format!("{name} was for version {expected} of {key}, and made {version}");
                findings.add(Promise::I7, what);
            }
        }
    }
}

/// A version that is given out twice means that one of the two has been lost.
fn one_value_each<'a>(
    name: &str,
    key: &Key<'a>,
    findings: &mut Findings,
) -> BTreeMap<i64, &'a str> {
    let mut values: BTreeMap<i64, &str> = BTreeMap::new();
    let mut versions: HashMap<&str, i64> = HashMap::new();
    for sighting in &key.sightings {
        let (value, version) = (name_of(sighting.value), sighting.version);
        let first = *values.entry(version).or_insert(value);
        if first != value {
            let what = format!("version {version} of {name} is both {first} and {value}");
            findings.add(Promise::I3, what);
        }
        let earlier = *versions.entry(value).or_insert(version);
        if earlier != version {
            let what = format!("{value} of {name} has the versions {earlier} and {version}");
            findings.add(Promise::I4, what);
        }
    }
    values
}

/// Along the versions tokens never fall, and under one token seqs rise.
fn in_order(name: &str, key: &Key<'_>, values: &BTreeMap<i64, &str>, findings: &mut Findings) {
    let mut last: Option<(&str, &Write)> = None;
    for value in values.values() {
        // A value that nobody wrote is found elsewhere.
        let Some(write) = key.writes.get(value) else { continue };
        if let Some((earlier, before)) = last {
            if write.token < before.token {
                let (low, high) = (write.token, before.token);
                let what = format!("{value} with {low} overwrote {earlier} with {high}, on {name}");
                findings.add(Promise::I1, what);
            }
            if write.token == before.token && write.seq > 0 && write.seq <= before.seq {
                let (low, high) = (write.seq, before.seq);
                let what =
                    format!("{value}, seq {low}, overwrote {earlier}, seq {high}, on {name}");
                findings.add(Promise::I6, what);
            }
        }
        last = Some((value, write));
    }
}

/// Whoever asks after an answer sees what it said, or something later.
fn nothing_is_forgotten(name: &str, key: &Key<'_>, findings: &mut Findings) {
    let mut known = Known::new();
    for sighting in &key.sightings {
        known.add(sighting.op.till, sighting.version, sighting.op.name.as_str());
    }
    known.settle();
    for sighting in &key.sightings {
        if let Some((version, witness)) = known.before(sighting.op.from)
            && sighting.version < version
        {
            let (later, op) = (sighting.version, &sighting.op.name);
            let what = format!("{name} had version {version} for {witness}, {later} for {op}");
            let promise = if sighting.own { Promise::I3 } else { Promise::I5 };
            findings.add(promise, what);
        }
    }
}

/// A value is gone only if somebody may have deleted it.
fn nothing_vanishes(name: &str, key: &Key<'_>, findings: &mut Findings) {
    let mut put_before = Known::new();
    for sighting in &key.sightings {
        put_before.add(sighting.op.till, i64::try_from(sighting.op.from).unwrap_or(i64::MAX), ());
    }
    put_before.settle();
    let mut deleted = Known::new();
    for delete in &key.deletes {
        deleted.add(delete.from, i64::try_from(delete.till).unwrap_or(i64::MAX), ());
    }
    deleted.settle();
    for absence in &key.absences {
        let Some((put, ())) = put_before.before(absence.from) else { continue };
        let excused = deleted.before(absence.till).is_some_and(|(till, ())| till > put);
        if !excused {
            let what = format!("{} found nothing at {name}, which had a value", absence.name);
            findings.add(Promise::I5, what);
        }
    }
}

/// Every step of the version was somebody's write.
fn no_version_from_nowhere(name: &str, key: &Key<'_>, findings: &mut Findings) {
    let Some(newest) = key.sightings.iter().map(|sighting| sighting.version).max() else { return };
    let seen: HashSet<&str> =
        key.sightings.iter().map(|sighting| name_of(sighting.value)).collect();
    let unseen = key.unknown.iter().filter(|value| !seen.contains(*value)).count();
    let steps = seen.len() + unseen + key.deletes.len();
    if newest > i64::try_from(steps).unwrap_or(i64::MAX) {
        let what = format!("{name} has version {newest}, and only {steps} writes can have made it");
        findings.add(Promise::I4, what);
    }
    for sighting in &key.sightings {
        if !key.writes.contains_key(name_of(sighting.value)) {
            let what = format!("{} is at {name}, and nobody's write", name_of(sighting.value));
            findings.add(Promise::I4, what);
        }
    }
}
