//! The highest of what was known before a moment: the heart of every sweep.

use crate::history::Moment;

/// Values with the moment from which on each was known, asked for in the order of time.
#[derive(Default)]
pub struct Known<T> {
    facts: Vec<(Moment, i64, T)>,
    sorted: bool,
}

impl<T: Clone> Known<T> {
    pub fn new() -> Self {
        Self { facts: Vec::new(), sorted: false }
    }

    pub fn add(&mut self, since: Moment, value: i64, witness: T) {
        self.facts.push((since, value, witness));
        self.sorted = false;
    }

    /// Sorts, and turns each fact into the highest one until then.
    pub fn settle(&mut self) {
        self.facts.sort_by_key(|(since, ..)| *since);
        for place in 1..self.facts.len() {
            if self.facts[place].1 < self.facts[place - 1].1 {
                let (_, value, witness) = self.facts[place - 1].clone();
                self.facts[place].1 = value;
                self.facts[place].2 = witness;
            }
        }
        self.sorted = true;
    }

    /// The highest value that was known before `moment`, and who knew it.
    pub fn before(&self, moment: Moment) -> Option<(i64, &T)> {
        assert!(self.sorted, "settle first");
        let count = self.facts.partition_point(|(since, ..)| *since < moment);
        let (_, value, witness) = &self.facts[count.checked_sub(1)?];
        Some((*value, witness))
    }
}
