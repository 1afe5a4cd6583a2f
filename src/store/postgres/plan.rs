//! Which of the writes that came together can share one statement.
//!
//! A *run* is one row of that statement: the only write or claim of a key, or several plain puts of it
//! under one token, of which the last one's value stays and each has a version of its own. Where more
//! than that is asked of a key (two tokens, one write of several that stand or fall together), all of its
//! units are left to the locked path, so that they are judged in the order in which they came.
//!
//! A run may have a scope, whose mark the statement holds on to and does not raise (`guards.rs`). So nothing
//! else of the batch may raise it either: where another unit writes the scope's key, or has the same scope
//! and another token, they are left to the locked path as well.

use std::collections::{HashMap, HashSet};

use crate::{
    fence::{Judgement, Standing},
    store::{Settled, Unit},
    token::{Key, Mark, Token, Version},
    write::{Change, Digest, Precondition, Rule, Value, Write},
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
    /// Whether its value is wanted back. It is a claim then.
    read_back: bool,
    /// The places of its units, in order.
    pub places: Vec<usize>,
}

/// The row of a run once the statement has written it.
pub struct Written {
    pub version: i64,
    /// Whether the first of the run found no value.
    pub created: bool,
    pub present: bool,
    /// Where it is wanted back.
    pub value: Option<Value>,
}

/// Plans for the units at these places.
pub fn plan<'a>(units: &'a [Unit], places: &[usize]) -> Plan<'a> {
    let mut plan = Plan::default();
    let mut candidates: Vec<(&Write, usize)> = Vec::with_capacity(places.len());
    let mut taken: HashSet<&Key> = HashSet::new();
    for &place in places {
        if let [write] = units[place].writes() {
            candidates.push((write, place));
        } else {
            taken.extend(units[place].keys());
            plan.others.push(place);
        }
    }
    take_entangled(&candidates, &mut taken);
    // Stable: the writes of one key stay in order.
    candidates.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
    for of_one_key in candidates.chunk_by(|(one, _), (other, _)| one.key == other.key) {
        let places = of_one_key.iter().map(|(_, place)| *place);
        let (last, place) = of_one_key[of_one_key.len() - 1];
        if taken.contains(&last.key) || !can_be_a_run(of_one_key) {
            plan.others.extend(places);
        } else {
            let read_back = units[place].is_fenced_read();
            plan.runs.push(Run { last, read_back, places: places.collect() });
        }
    }
    plan.others.sort_unstable();
    plan
}

/// Takes the keys of writes whose scope something else may raise, and their scopes.
fn take_entangled<'a>(candidates: &[(&'a Write, usize)], taken: &mut HashSet<&'a Key>) {
    let scoped =
        || candidates.iter().filter_map(|(write, _)| Some((*write, write.scope.as_ref()?)));
    if scoped().next().is_none() {
        return;
    }
    let mut raised: HashSet<&Key> = candidates.iter().map(|(write, _)| &write.key).collect();
    raised.extend(&*taken);
    let mut tokens: HashMap<&Key, Token> = HashMap::new();
    for (write, scope) in scoped() {
        if *tokens.entry(scope).or_insert(write.token) != write.token {
            raised.insert(scope);
        }
    }
    for (write, scope) in scoped() {
        if raised.contains(scope) {
            taken.extend([&write.key, scope]);
        }
    }
}

/// Either all of these writes pass the fence, or what becomes of them is not the statement's to say.
fn can_be_a_run(writes: &[(&Write, usize)]) -> bool {
    let [(first, _), more @ ..] = writes else { return false };
    more.is_empty()
        || is_plain_put(first)
            && more.iter().all(|(write, _)| {
                is_plain_put(write) && write.token == first.token && write.scope == first.scope
            })
}

/// Whether it passes wherever another one of its token has just passed.
fn is_plain_put(write: &Write) -> bool {
    matches!(write.change, Change::Put(_))
        && write.seq.is_none()
        && write.precondition.is_none()
        && write.rule == Rule::AtLeast
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

    /// The key whose mark must be at its token, too.
    pub fn scope(&self) -> Option<&Key> {
        self.last.scope.as_ref()
    }

    /// Whether it is a single put, of which nothing else is asked.
    pub fn is_one_plain_put(&self) -> bool {
        self.places.len() == 1 && self.scope().is_none() && is_plain_put(self.last)
    }

    pub fn is_claim(&self) -> bool {
        self.last.change == Change::Claim
    }

    /// Whether its value is wanted back; `None` unless it is a claim.
    pub fn claim(&self) -> Option<bool> {
        self.is_claim().then_some(self.read_back)
    }

    /// Whether its token must be above the mark, if there is no seq to order it. A claim that finds its
    /// token there already changes nothing, whatever the rule then says of it.
    pub fn must_rise(&self) -> bool {
        self.is_claim() || self.last.rule == Rule::Above
    }

    /// The version that it was meant for, below 0 where that is no value at all.
    pub fn expected(&self) -> Option<i64> {
        self.last.precondition.map(|precondition| match precondition {
            Precondition::Version(version) => version.get(),
            Precondition::Absent => -1,
        })
    }

    /// By how much the version rises, if there is anything to change.
    pub fn times(&self) -> i64 {
        i64::try_from(self.places.len()).unwrap_or(i64::MAX)
    }

    /// Every unit's own answer, once the statement has written the row.
    pub fn accepted(&self, written: Written) -> impl Iterator<Item = (usize, Settled)> {
        let Written { version, created, present, mut value } = written;
        let (mark, digest) = (self.mark(), self.digest());
        let before = version - self.times();
        (1..).zip(&self.places).map(move |(number, &place)| {
            let standing = Standing {
                mark,
                version: Version::from_stored(before + number),
                present,
                created: created && number == 1,
                digest,
            };
            // It was written, so the token was at or above every mark, and is the mark now.
            let judgement = Judgement::accepted(standing);
            (place, Settled::Applied { judgements: vec![judgement], value: value.take() })
        })
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
