//! Which of the writes that came together can share one statement.
//!
//! A *run* is one row of that statement: one plain write of a key, or several plain puts of it under
//! one token, of which the last one's value stays and each has a version of its own. Whatever else
//! is asked of a key (another token, a scope, a precondition), all of that key's units are left to
//! the locked path, so that they are judged in the order in which they came.

use std::collections::HashSet;

use crate::{
    fence::{Judgement, Standing, Verdict},
    store::{Settled, Unit},
    token::{Key, Mark, Version},
    write::{Change, Digest, Rule, Value, Write},
};

#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// In byte order of their keys, the same in every fencepost. Each key is there once at most.
    pub runs: Vec<Run<'a>>,
    /// The places of all other units, in order.
    pub others: Vec<usize>,
}

#[derive(Debug)]
pub struct Run<'a> {
    /// The last of its writes: what the row will hold.
    last: &'a Write,
    /// The places of its units, in order.
    pub places: Vec<usize>,
}

/// Plans for the units at these places.
pub fn plan<'a>(units: &'a [Unit], places: &[usize]) -> Plan<'a> {
    let mut plan = Plan::default();
    let mut candidates: Vec<(&Write, usize)> = Vec::with_capacity(places.len());
    let mut taken: HashSet<&Key> = HashSet::new();
    for &place in places {
        if let Some(write) = plain_write(&units[place]) {
            candidates.push((write, place));
        } else {
            taken.extend(units[place].keys());
            plan.others.push(place);
        }
    }
    // Stable: the writes of one key stay in order.
    candidates.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
    for of_one_key in candidates.chunk_by(|(one, _), (other, _)| one.key == other.key) {
        let places = of_one_key.iter().map(|(_, place)| *place);
        let (last, _) = of_one_key[of_one_key.len() - 1];
        if taken.contains(&last.key) || !can_be_a_run(of_one_key) {
            plan.others.extend(places);
        } else {
            plan.runs.push(Run { last, places: places.collect() });
        }
    }
    plan.others.sort_unstable();
    plan
}

/// The only write of a unit, if a condition on its own row is all that it takes to judge it.
fn plain_write(unit: &Unit) -> Option<&Write> {
    let [write] = unit.writes() else { return None };
    let ordered_or_at_least = write.seq.is_some() || write.rule == Rule::AtLeast;
    let plain = write.scope.is_none()
        && write.precondition.is_none()
        && write.change != Change::Claim
        && ordered_or_at_least;
    plain.then_some(write)
}

/// Either all of these writes pass the fence, or what becomes of them is not the statement's to say.
fn can_be_a_run(writes: &[(&Write, usize)]) -> bool {
    let [(first, _), more @ ..] = writes else { return false };
    let plain_put = |write: &Write| write.seq.is_none() && matches!(write.change, Change::Put(_));
    more.is_empty()
        || plain_put(first)
            && more.iter().all(|(write, _)| plain_put(write) && write.token == first.token)
}

impl Run<'_> {
    pub fn key(&self) -> &Key {
        &self.last.key
    }

    pub fn mark(&self) -> Mark {
        Mark::at(self.last.token, self.last.seq)
    }

    pub fn digest(&self) -> Option<Digest> {
        self.last.digest()
    }

    /// What the row will hold; `None` for a delete.
    pub fn value(&self) -> Option<&Value> {
        match &self.last.change {
            Change::Put(value) => Some(value),
            Change::Delete | Change::Claim => None,
        }
    }

    /// Whether it is a single put, and says nothing of an order.
    pub fn is_one_plain_put(&self) -> bool {
        self.places.len() == 1 && self.last.seq.is_none() && self.value().is_some()
    }

    /// By how much the version rises, if there is anything to change.
    pub fn times(&self) -> i64 {
        i64::try_from(self.places.len()).unwrap_or(i64::MAX)
    }

    /// Every unit's own answer, once the statement has written the row. `version` is what it has now;
    /// `created`, whether the first of the run found no value.
    pub fn accepted(&self, version: i64, created: bool) -> impl Iterator<Item = (usize, Settled)> {
        let (mark, digest) = (self.mark(), self.digest());
        let present = self.value().is_some();
        let before = version - self.times();
        (1..).zip(&self.places).map(move |(number, &place)| {
            let standing = Standing {
                mark,
                version: Version::from_stored(if present { before + number } else { version }),
                present,
                created: created && number == 1,
                digest,
            };
            // It was written, so the token was at or above every mark, and is the mark now.
            let judgement = Judgement { verdict: Verdict::Accepted, key: standing, guard: mark };
            (place, Settled::Applied { judgements: vec![judgement], value: None })
        })
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
