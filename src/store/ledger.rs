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
