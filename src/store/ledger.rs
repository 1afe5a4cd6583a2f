//! The rows that a transaction has locked, judged in memory and then written back.
//!
//! A ledger lives no longer than the locks that make it true.

use std::collections::BTreeMap;

use super::{Settled, Unit};
use crate::{
    fence::{self, Judgement, Standing, Verdict},
    token::{Key, Mark},
    write::{Change, Value, Write},
};

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    floor: Mark,
    /// In key order, which is the order in which every fencepost locks.
    entries: BTreeMap<Key, Entry>,
    /// Whether the last unit changed anything.
    changed: bool,
}

/// One row, and what is to be done to it.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub standing: Standing,
    pub value: ValueChange,
    /// Whether the database has this row.
    pub stored: bool,
    dirty: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueChange {
    #[default]
    Kept,
    Set(Value),
    Cleared,
}

impl Ledger {
    pub fn new(floor: Mark) -> Self {
        Self { floor, entries: BTreeMap::new(), changed: false }
    }

    /// Enters a row as it was read under the lock. A key without a row has the default standing.
    pub fn enter(&mut self, key: Key, standing: Standing) {
        self.entries.insert(key, Entry { standing, stored: true, ..Entry::default() });
    }

    /// Judges a unit, and enters what it changes. All of its writes count, or none does.
    pub fn settle(&mut self, unit: &Unit) -> Settled {
        self.changed = false;
        let before = self.entries_of(unit);
        let mut judgements = Vec::with_capacity(unit.writes().len());
        for (index, write) in unit.writes().iter().enumerate() {
            let mut judgement = self.judge(write);
            if judgement.refusal().is_some() {
                if unit.writes().len() > 1 {
                    self.restore(before);
                    self.changed = false;
                    // What is told of a refusal is what stands, not what was undone with it.
                    judgement.key = self.as_read(&write.key);
                    judgement.guard = self.guard(write);
                }
                return Settled::Refused { index, judgement };
            }
            judgements.push(judgement);
        }
        Settled::Applied { judgements, value: None }
    }

    /// Whether the unit that was settled last has changed anything.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether a row was entered for this key.
    pub fn is_stored(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.stored)
    }

    fn entries_of(&self, unit: &Unit) -> Vec<(Key, Option<Entry>)> {
        if unit.writes().len() == 1 {
            return Vec::new();
        }
        unit.keys().map(|key| (key.clone(), self.entries.get(key).cloned())).collect()
    }

    fn restore(&mut self, before: Vec<(Key, Option<Entry>)>) {
        for (key, entry) in before {
            match entry {
                Some(entry) => self.entries.insert(key, entry),
                None => self.entries.remove(&key),
            };
        }
    }

    fn judge(&mut self, write: &Write) -> Judgement {
        let key = self.standing(&write.key);
        let scope = write.scope.as_ref().map(|scope| self.standing(scope).mark);
        let judgement = fence::judge(write, &key, scope, self.floor);
        if judgement.passed_the_fence() {
            self.update(&write.key, judgement.key);
            if judgement.verdict == Verdict::Accepted {
                self.change_value(write);
            }
            if let Some(scope) = &write.scope {
                self.update(scope, fence::seen(&self.standing(scope), write.token));
            }
        }
        judgement
    }

    fn standing(&self, key: &Key) -> Standing {
        self.entries.get(key).map(|entry| entry.standing).unwrap_or_default()
    }

    /// As a reader would see it: the mark is never below the floor.
    fn as_read(&self, key: &Key) -> Standing {
        let standing = self.standing(key);
        Standing { mark: standing.mark.max(self.floor), ..standing }
    }

    fn guard(&self, write: &Write) -> Mark {
        let scope = write.scope.as_ref().map(|scope| self.standing(scope).mark);
        self.as_read(&write.key).mark.max(scope.unwrap_or(Mark::UNSEEN))
    }

    fn update(&mut self, key: &Key, standing: Standing) {
        let entry = self.entries.entry(key.clone()).or_default();
        self.changed |= entry.standing != standing;
        entry.dirty |= entry.standing != standing;
        entry.standing = standing;
    }

    fn change_value(&mut self, write: &Write) {
        let entry = self.entries.entry(write.key.clone()).or_default();
        entry.value = match &write.change {
            Change::Put(value) => ValueChange::Set(value.clone()),
            Change::Delete => ValueChange::Cleared,
            Change::Claim => return,
        };
    }

    /// The rows to write back.
    pub fn changes(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter().filter(|(_, entry)| entry.dirty)
    }

    pub fn value(&self, key: &Key) -> &ValueChange {
        self.entries.get(key).map_or(&ValueChange::Kept, |entry| &entry.value)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        fence::Refusal,
        token::{Seq, Token, Version},
        write::Precondition,
    };

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn value(body: &'static str) -> Value {
        Value { body: Bytes::from_static(body.as_bytes()), content_type: "text/plain".into() }
    }

    fn claim(name: &str, token: i64) -> Write {
        Write::claim(key(name), Token::new(token).unwrap())
    }

    fn put(name: &str, token: i64) -> Write {
        Write { change: Change::Put(value("new")), ..claim(name, token) }
    }

    fn delete(name: &str, token: i64) -> Write {
        Write { change: Change::Delete, ..claim(name, token) }
    }

    /// A value that a holder of this token has written.
    fn written(token: i64) -> Standing {
        let mark = Mark { token, seq: 0 };
        Standing { mark, version: Version::from_stored(1), present: true, ..Standing::default() }
    }

    /// `a` and `b` are there, under these marks.
    fn ledger(floor: i64, a: i64, b: i64) -> Ledger {
        let mut ledger = Ledger::new(Mark { token: floor, seq: 0 });
        ledger.enter(key("a"), written(a));
        ledger.enter(key("b"), written(b));
        ledger
    }

    fn changes(ledger: &Ledger) -> Vec<(&str, i64)> {
        ledger.changes().map(|(key, entry)| (key.as_str(), entry.standing.mark.token)).collect()
    }

    #[track_caller]
    fn refused(settled: Settled) -> (usize, Judgement) {
        match settled {
            Settled::Refused { index, judgement } => (index, judgement),
            Settled::Applied { .. } => panic!("it was applied"),
        }
    }

    #[test]
    fn of_a_refused_batch_nothing_is_left() {
        let mut ledger = ledger(0, 5, 9);
        let unit = Unit::atomic(vec![put("a", 7), put("new", 7), put("b", 7)]);
        let (index, judgement) = refused(ledger.settle(&unit));
        assert_eq!((index, judgement.refusal()), (2, Some(Refusal::Stale)));
        assert!(!ledger.has_changed());
        assert_eq!(changes(&ledger), []);
        assert_eq!(*ledger.value(&key("a")), ValueChange::Kept);
        assert!(ledger.is_stored(&key("a")));
        assert!(!ledger.is_stored(&key("new")));
        // What it had raised meanwhile is as it was.
        ledger.settle(&Unit::single(put("a", 6)));
        assert_eq!(changes(&ledger), [("a", 6)]);
    }

    #[test]
    fn what_is_told_of_a_refused_batch_is_what_stands() {
        // It would have raised the mark of its scope to 7 with the first write.
        let scoped = |write: Write| Write { scope: Some(key("scope")), ..write };
        let stale = |mut ledger: Ledger, writes: Vec<Write>| {
            let (_, judgement) = refused(ledger.settle(&Unit::atomic(writes)));
            (judgement.key.mark.token, judgement.guard.token)
        };
        let both = || vec![scoped(put("a", 7)), scoped(put("b", 6))];
        assert_eq!(stale(ledger(0, 3, 4), both()), (4, 4));
        assert_eq!(stale(ledger(5, 3, 4), both()), (5, 5));
        let mut known = ledger(0, 3, 4);
        known.enter(key("scope"), written(6));
        assert_eq!(stale(known, both()), (4, 6));
    }

    #[test]
    fn a_single_write_that_fails_its_precondition_has_been_seen() {
        let mut ledger = ledger(0, 5, 5);
        let write = Write { precondition: Some(Precondition::Absent), ..put("a", 7) };
        let (_, judgement) = refused(ledger.settle(&Unit::single(write)));
        assert_eq!(judgement.refusal(), Some(Refusal::VersionMismatch));
        assert!(ledger.has_changed());
        assert_eq!(changes(&ledger), [("a", 7)]);
        assert_eq!(*ledger.value(&key("a")), ValueChange::Kept);
    }

    #[test]
    fn each_change_does_to_the_value_what_it_says() {
        let mut ledger = ledger(0, 5, 5);
        for unit in [put("a", 6), delete("b", 6), claim("c", 6)].map(Unit::single) {
            assert!(matches!(ledger.settle(&unit), Settled::Applied { .. }));
            assert!(ledger.has_changed());
        }
        assert_eq!(changes(&ledger), [("a", 6), ("b", 6), ("c", 6)]);
        assert_eq!(*ledger.value(&key("a")), ValueChange::Set(value("new")));
        assert_eq!(*ledger.value(&key("b")), ValueChange::Cleared);
        assert_eq!(*ledger.value(&key("c")), ValueChange::Kept);
        assert_eq!(*ledger.value(&key("unheard of")), ValueChange::Kept);
        // A value that was put before a claim is still to be saved.
        ledger.settle(&Unit::single(claim("a", 7)));
        assert_eq!(*ledger.value(&key("a")), ValueChange::Set(value("new")));
    }

    #[test]
    fn a_replay_and_a_claim_that_is_there_change_nothing() {
        let mut ledger = ledger(0, 5, 5);
        let ordered = Unit::single(Write { seq: Seq::new(1), ..put("new", 6) });
        ledger.settle(&ordered);
        assert!(ledger.has_changed());
        ledger.settle(&ordered);
        assert!(!ledger.has_changed());
        ledger.settle(&Unit::single(claim("a", 5)));
        assert!(!ledger.has_changed());
        assert_eq!(changes(&ledger), [("new", 6)]);
    }

    #[test]
    fn a_scope_is_seen_with_the_key() {
        let mut ledger = ledger(0, 5, 5);
        ledger.settle(&Unit::single(Write { scope: Some(key("scope")), ..put("a", 8) }));
        assert_eq!(changes(&ledger), [("a", 8), ("scope", 8)]);
        let behind = Write { scope: Some(key("scope")), ..put("b", 7) };
        let (_, judgement) = refused(ledger.settle(&Unit::single(behind)));
        assert_eq!((judgement.refusal(), judgement.guard.token), (Some(Refusal::Stale), 8));
    }
}
