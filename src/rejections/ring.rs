//! The newest rejections, in as much memory as they may have.

use std::{collections::VecDeque, sync::Arc};

use super::{Entry, Filter, Rejection, record::Id};

/// The numbers of the entries are consecutive, so each is found by its own.
pub struct Ring {
    fencepost: u64,
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    capacity: usize,
    /// The number of the next one.
    next: u64,
}

/// What somebody who follows the record has not seen yet.
#[derive(Debug)]
pub struct News {
    /// Oldest first.
    pub entries: Vec<Arc<Entry>>,
    /// How many more there were: those that matched and were too many, and those that are
    /// forgotten, whether they would have matched or not.
    pub dropped: u64,
    /// Where to go on.
    pub next: u64,
}

impl Ring {
    pub fn new(fencepost: u64, capacity: usize) -> Self {
        Self { fencepost, entries: VecDeque::new(), bytes: 0, capacity, next: 1 }
    }

    pub fn push(&mut self, rejection: Rejection, overtaken_by: Option<Arc<str>>) -> Arc<Entry> {
        let id = Id { fencepost: self.fencepost, number: self.next };
        let entry = Arc::new(Entry { id, rejection, overtaken_by });
        self.next += 1;
        self.bytes += entry.bytes();
        self.entries.push_back(entry.clone());
        while self.bytes > self.capacity
            && let Some(oldest) = self.entries.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
        entry
    }

    /// The number that the next entry will have.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn newest_first(&self, filter: &Filter, limit: usize) -> Vec<Arc<Entry>> {
        let wanted = self.entries.iter().rev().filter(|entry| filter.takes(entry));
        wanted.take(limit).cloned().collect()
    }

    /// Of what has come from the number `from` on, the newest `limit` that `filter` takes; fewer, but at
    /// least one, where they take up more than `bytes`.
    pub fn news(&self, from: u64, filter: &Filter, limit: usize, bytes: usize) -> News {
        let first = self.next - self.entries.len() as u64;
        let forgotten = first.saturating_sub(from);
        let seen = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let unseen = self.entries.range(seen.min(self.entries.len())..);
        let mut entries = Vec::new();
        let (mut taken, mut too_many) = (0, 0);
        for entry in unseen.rev().filter(|entry| filter.takes(entry)) {
            taken += entry.bytes();
            if entries.is_empty() || (entries.len() < limit && taken <= bytes) {
                entries.push(entry.clone());
            } else {
                too_many += 1;
            }
        }
        entries.reverse();
        News { entries, dropped: forgotten + too_many, next: self.next }
    }
}

#[cfg(test)]
pub mod tests {
    use std::{sync::Arc, time::SystemTime};

    use super::*;
    use crate::{
        metrics::{BadInput, DecidedBy, Reason},
        rejections::{Caller, Refused},
        token::Key,
    };

    pub fn rejection(key: &str) -> Rejection {
        Rejection {
            at: SystemTime::now(),
            reason: Reason::Input(BadInput::TokenRequired),
            decided_by: DecidedBy::Input,
            refused: Refused { key: Some(Key::new(key).unwrap()), ..Refused::default() },
            mark: None,
            by_floor: false,
            caller: Arc::new(Caller::default()),
        }
    }

    pub fn some_entry() -> Arc<Entry> {
        Ring::new(7, 4096).push(rejection("k"), None)
    }

    /// More bytes than there are.
    const MANY: usize = 1 << 20;

    fn numbers(entries: &[Arc<Entry>]) -> Vec<u64> {
        entries.iter().map(|entry| entry.id.number).collect()
    }

    fn only(key: &str) -> Filter {
        Filter { key: Some(Key::new(key).unwrap()), ..Filter::default() }
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_go_first() {
        let mut ring = Ring::new(7, 4096);
        for _ in 0..100 {
            ring.push(rejection("k"), None);
        }
        assert!(ring.bytes <= 4096 && ring.entries.len() >= 4, "{}", ring.entries.len());
        assert_eq!(numbers(&ring.newest_first(&Filter::default(), 3)), [100, 99, 98]);
        assert_eq!(ring.newest_first(&Filter::default(), 1000).len(), ring.entries.len());
        assert_eq!(ring.bytes, ring.entries.iter().map(|entry| entry.bytes()).sum::<usize>());
    }

    #[test]
    fn whoever_follows_gets_each_once_and_hears_what_was_left_out() {
        let mut ring = Ring::new(7, 1 << 20);
        for key in ["a", "b", "a", "b", "a"] {
            ring.push(rejection(key), None);
        }
        let news = ring.news(1, &only("a"), 10, MANY);
        assert_eq!((numbers(&news.entries), news.dropped, news.next), (vec![1, 3, 5], 0, 6));
        let news = ring.news(1, &only("a"), 2, MANY);
        assert_eq!((numbers(&news.entries), news.dropped), (vec![3, 5], 1));
        let news = ring.news(6, &only("a"), 2, MANY);
        assert_eq!((numbers(&news.entries), news.dropped, news.next), (vec![], 0, 6));
    }

    #[test]
    fn news_are_bounded_by_their_bytes() {
        let mut ring = Ring::new(7, 1 << 20);
        let one = ring.push(rejection("a"), None).bytes();
        for _ in 0..4 {
            ring.push(rejection("a"), None);
        }
        let news = ring.news(1, &only("a"), 10, 2 * one);
        assert_eq!((numbers(&news.entries), news.dropped, news.next), (vec![4, 5], 3, 6));
        let news = ring.news(1, &only("a"), 10, 0);
        assert_eq!((numbers(&news.entries), news.dropped, news.next), (vec![5], 4, 6));
    }

    #[test]
    fn what_is_forgotten_counts_as_left_out() {
        let mut ring = Ring::new(7, 0);
        for _ in 0..5 {
            ring.push(rejection("k"), None);
        }
        let news = ring.news(3, &Filter::default(), 10, MANY);
        assert_eq!((news.entries.len(), news.dropped, news.next), (0, 3, 6));
    }
}
