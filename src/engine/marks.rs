//! The mark cache: what is surely stale is refused without asking the database.
//!
//! A mark never falls, so one that was once committed is a true lower bound for ever, however old
//! the entry. Hence this cache may refuse, and may forget; it can never accept. It is filled only
//! from rows that were committed: never from a request, nor from a batch in flight, or one failed
//! request with a huge token would block a key.

use std::sync::atomic::{AtomicI64, Ordering};

use bytesize::ByteSize;
use quick_cache::{
    Weighter,
    sync::{Cache, EntryAction, EntryResult},
};

use crate::{
    fence::{Judgement, Refusal, Standing, Verdict},
    store::{Settled, Snapshot, Unit},
    token::{Key, Mark, Token, Version},
    write::Write,
};

/// Tokens from here on come from no authority.
const NOBODY_ISSUES: i64 = 1 << 62;

pub struct Marks {
    known: Cache<Key, Known, ByBytes>,
    /// The highest token that a holder was seen with, on any key. It outlives what the cache forgets.
    highest: AtomicI64,
}

/// The newest committed state of a key that this process has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    mark: Mark,
    /// The highest token that a holder was seen with on this key. The mark is above it where the floor is.
    own: i64,
    /// A token that this process knows to be committed on this key, on the synchronous standbys too: a store has said
    /// so of a unit that was applied. What a read or a refusal shows may still be on its way there.
    confirmed: i64,
    /// Not known of a key that has been met only as the scope of others.
    value: Option<LastValue>,
}

/// What was there when a mark was set. A later mark is later news; the version alone would not
/// tell, since it starts anew once a compaction has dropped a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LastValue {
    at: Mark,
    version: Version,
    present: bool,
    /// Whether it is known to be committed, on the synchronous standbys too. As [`Known::confirmed`].
    confirmed: bool,
}

impl Known {
    /// No holder has been seen with a mark as high as this one, so it is the floor.
    fn is_at_the_floor(&self) -> bool {
        self.own < self.mark.token
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Known> for ByBytes {
    fn weight(&self, key: &Key, _: &Known) -> u64 {
        // The name with its counters, the entry, and the cache's own bookkeeping.
        const ENTRY_BYTES: u64 = 152;
        key.as_str().len() as u64 + ENTRY_BYTES
    }
}

impl Marks {
    pub fn new(capacity: ByteSize) -> Self {
        const TYPICAL_ENTRY_BYTES: u64 = 192;
        let items = usize::try_from(capacity.as_u64() / TYPICAL_ENTRY_BYTES).unwrap_or(usize::MAX);
        let known = Cache::with_weighter(items.max(1), capacity.as_u64(), ByBytes);
        Self { known, highest: AtomicI64::new(0) }
    }

    /// The verdict on a unit that is surely stale. Units of several writes go to the store, which
    /// names the first that fails.
    pub fn refuse(&self, unit: &Unit) -> Option<Settled> {
        let [write] = unit.writes() else { return None };
        let key = self.known.get(&write.key)?;
        // A refusal names the version, so one that does not know it is left to the store.
        let LastValue { version, present, .. } = key.value?;
        let scope = write.scope.as_ref().and_then(|scope| self.known.get(scope));
        let guard = key.mark.max(scope.map_or(Mark::UNSEEN, |scope| scope.mark));
        if !guard.outranks(write.token) {
            return None;
        }
        // A floor that was met at the scope is under this key too.
        let floor = scope.filter(Known::is_at_the_floor).map_or(Mark::UNSEEN, |scope| scope.mark);
        let mark = key.mark.max(floor);
        let standing = Standing { mark, version, present, created: false, digest: None };
        let verdict = Verdict::Refused(Refusal::Stale);
        let own = key.own.max(scope.map_or(0, |scope| scope.own));
        let by_floor = own < guard.token;
        let judgement = Judgement { verdict, key: standing, guard, own: key.own, by_floor };
        Some(Settled::Refused { index: 0, judgement })
    }

    /// Whether a holder with `token`, or a newer one, is known to have been seen on this key, whatever server takes over.
    pub fn has_reached(&self, key: &Key, token: Token) -> bool {
        self.known.get(key).is_some_and(|known| known.confirmed >= token.get())
    }

    /// Whether what a read has found is known to be committed, whatever server takes over. A version is given once
    /// under one token, so this is the value that was confirmed.
    pub fn has_confirmed(&self, key: &Key, found: &Standing) -> bool {
        let Standing { mark, version, present, .. } = *found;
        let confirmed = LastValue { at: mark, version, present, confirmed: true };
        self.known.get(key).is_some_and(|known| known.value == Some(confirmed))
    }

    /// The highest token that this process has seen a holder with. Nobody issues those from 2^62 on,
    /// and one forged token must not count for all keys.
    pub fn highest(&self) -> i64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Takes in what the store has said of a unit's keys. Returns how many of its guards are seen to
    /// have risen: those whose mark was known before, and lower.
    pub fn learn(&self, unit: &Unit, settled: &Settled) -> usize {
        let raised = |(write, judgement)| usize::from(self.learn_one(write, judgement));
        match settled {
            Settled::Applied { judgements, .. } => {
                unit.writes().iter().zip(judgements).map(raised).sum()
            }
            // In a batch the judgement may rest on writes that were rolled back with it.
            Settled::Refused { judgement, .. } => match unit.writes() {
                [write] => raised((write, judgement)),
                _ => 0,
            },
        }
    }

    /// A read shows what other fenceposts have committed.
    pub fn learn_from_read(&self, key: &Key, snapshot: &Snapshot) {
        // Reading what nobody has written must not crowd out the rest.
        if snapshot.standing.mark > Mark::UNSEEN {
            self.raise(key, &snapshot.standing, snapshot.own, 0);
        }
    }

    /// Whether the mark of its guard has risen with the write.
    fn learn_one(&self, write: &Write, judgement: &Judgement) -> bool {
        let passed = judgement.passed_the_fence();
        let applied = !matches!(judgement.verdict, Verdict::Refused(_));
        let confirmed = if applied { judgement.key.mark.token } else { 0 };
        let key_rose = self.raise(&write.key, &judgement.key, judgement.own, confirmed);
        let Some(scope) = &write.scope else { return passed && key_rose };
        if passed {
            let own = write.token.get();
            let confirmed = if applied { own } else { 0 };
            return self.raise_mark(scope, Mark::at(write.token, None), own, confirmed);
        }
        if judgement.guard > judgement.key.mark {
            // The key's mark is not below the floor. What is above it can only be the scope's own.
            self.raise_mark(scope, judgement.guard, judgement.guard.token, 0);
        }
        false
    }

    fn note_highest(&self, token: i64) {
        if token < NOBODY_ISSUES && token > self.highest.load(Ordering::Relaxed) {
            self.highest.fetch_max(token, Ordering::Relaxed);
        }
    }

    fn raise(&self, key: &Key, standing: &Standing, own: i64, confirmed: i64) -> bool {
        let Standing { mark, version, present, .. } = *standing;
        let value = LastValue { at: mark, version, present, confirmed: confirmed > 0 };
        self.raise_to(key, Known { mark, own, confirmed, value: Some(value) })
    }

    fn raise_mark(&self, key: &Key, mark: Mark, own: i64, confirmed: i64) -> bool {
        self.raise_to(key, Known { mark, own, confirmed, value: None })
    }

    /// An atomic maximum: an answer that arrives late cannot replace a newer one. Returns whether the
    /// token of a mark that was known has risen.
    fn raise_to(&self, key: &Key, news: Known) -> bool {
        self.note_highest(news.own);
        let raise = |_: &Key, known: &mut Known| {
            let rose = known.mark.token < news.mark.token;
            known.mark = known.mark.max(news.mark);
            known.own = known.own.max(news.own);
            known.confirmed = known.confirmed.max(news.confirmed);
            known.value = known.value.max(news.value);
            EntryAction::Retain(rose)
        };
        match self.known.entry(key, None, raise) {
            EntryResult::Retained(rose) => rose,
            EntryResult::Vacant(place) => {
                // Lost only if it was filled meanwhile, by something as true.
                let _ = place.insert(news);
                false
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod late_news;
#[cfg(test)]
mod tests {
    use super::*;

    fn claim(key: &str, token: i64) -> Unit {
        Unit::single(Write::claim(Key::new(key).unwrap(), Token::new(token).unwrap()))
    }

    fn learn(marks: &Marks, key: &str, token: i64) {
        let standing = Standing { mark: Mark { token, seq: 0 }, ..Standing::default() };
        marks.raise(&Key::new(key).unwrap(), &standing, token, token);
    }

    #[test]
    fn refuses_below_a_known_mark_and_nothing_else() {
        let marks = Marks::new(ByteSize::mib(1));
        assert_eq!(marks.refuse(&claim("k", 1)), None);
        learn(&marks, "k", 7);
        assert!(marks.refuse(&claim("k", 6)).is_some());
        assert_eq!(marks.refuse(&claim("k", 7)), None);
        assert_eq!(marks.refuse(&claim("k", 8)), None);
    }

    #[test]
    fn late_news_does_not_lower_a_mark() {
        let marks = Marks::new(ByteSize::mib(1));
        learn(&marks, "k", 7);
        learn(&marks, "k", 5);
        assert!(marks.refuse(&claim("k", 6)).is_some());
    }

    #[test]
    fn only_what_a_store_has_confirmed_is_confirmed() {
        let marks = Marks::new(ByteSize::mib(1));
        let key = Key::new("k").unwrap();
        let standing = |token, version| Standing {
            mark: Mark { token, seq: 0 },
            version: Version::from_stored(version),
            present: true,
            ..Standing::default()
        };
        let (first, second) = (standing(7, 1), standing(7, 2));
        marks.raise(&key, &first, 7, 7);
        assert!(marks.has_confirmed(&key, &first) && !marks.has_confirmed(&key, &second));
        // A read sees what the standby lacks.
        marks.raise(&key, &second, 7, 0);
        assert!(!marks.has_confirmed(&key, &second));
        marks.raise(&key, &second, 7, 7);
        assert!(marks.has_confirmed(&key, &second) && !marks.has_confirmed(&key, &first));
        // Compacted meanwhile, and begun again at the first version.
        assert!(!marks.has_confirmed(&key, &standing(9, 2)));
        marks.raise(&key, &second, 7, 0);
        assert!(marks.has_confirmed(&key, &second), "a read that comes late takes nothing back");
    }

    #[test]
    fn a_key_that_is_known_only_as_a_scope_guards_others_but_is_left_to_the_store() {
        let marks = Marks::new(ByteSize::mib(1));
        let scope = Key::new("lock").unwrap();
        marks.raise_mark(&scope, Mark { token: 7, seq: 0 }, 0, 0);
        assert_eq!(marks.refuse(&claim("lock", 6)), None);
        learn(&marks, "k", 1);
        let mut write = Write::claim(Key::new("k").unwrap(), Token::new(6).unwrap());
        write.scope = Some(scope);
        assert!(marks.refuse(&Unit::single(write)).is_some());
        learn(&marks, "lock", 5);
        assert!(marks.refuse(&claim("lock", 6)).is_some());
    }

    #[test]
    fn a_failed_precondition_has_raised_the_scope() {
        let marks = Marks::new(ByteSize::mib(1));
        learn(&marks, "k", 5);
        learn(&marks, "scope", 5);
        let mut write = Write::claim(Key::new("k").unwrap(), Token::new(7).unwrap());
        write.scope = Some(Key::new("scope").unwrap());
        let standing = Standing { mark: Mark { token: 7, seq: 0 }, ..Standing::default() };
        let verdict = Verdict::Refused(Refusal::VersionMismatch);
        let guard = Mark { token: 5, seq: 0 };
        let judgement = Judgement { verdict, guard, ..Judgement::accepted(standing) };
        marks.learn(&Unit::single(write), &Settled::Refused { index: 0, judgement });
        assert!(marks.refuse(&claim("scope", 6)).is_some());
    }

    #[test]
    fn stays_within_its_memory() {
        for (name, keeps) in [("key".to_owned(), 100), ("k".repeat(1000), 20)] {
            let marks = Marks::new(ByteSize::kib(64));
            for number in 0..10_000 {
                learn(&marks, &format!("{name}/{number}"), 1);
            }
            let entry = name.len() + size_of::<Key>() + size_of::<Known>();
            assert!(marks.known.len() * entry <= 64 << 10, "{} are kept", marks.known.len());
            assert!(marks.known.len() > keeps, "a cache that keeps nothing is of no use");
        }
    }

    #[test]
    fn the_highest_token_is_that_of_a_holder_and_never_falls() {
        let marks = Marks::new(ByteSize::mib(1));
        assert_eq!(marks.highest(), 0);
        learn(&marks, "k", 7);
        learn(&marks, "other", 5);
        // Forged: nobody issues it.
        learn(&marks, "forged", NOBODY_ISSUES);
        assert_eq!(marks.highest(), 7);
    }

    #[test]
    fn a_refusal_teaches_the_mark_of_the_scope_if_that_was_higher() {
        for (guard, known) in [(7, true), (2, false)] {
            let marks = Marks::new(ByteSize::mib(1));
            learn(&marks, "scope", 1);
            let mut write = Write::claim(Key::new("k").unwrap(), Token::new(1).unwrap());
            write.scope = Some(Key::new("scope").unwrap());
            let key = Standing { mark: Mark { token: 2, seq: 0 }, ..Standing::default() };
            let verdict = Verdict::Refused(Refusal::Stale);
            let guarded = Mark { token: guard, seq: 0 };
            let judgement = Judgement { verdict, guard: guarded, ..Judgement::accepted(key) };
            marks.learn(&Unit::single(write), &Settled::Refused { index: 0, judgement });
            assert_eq!(marks.refuse(&claim("scope", 1)).is_some(), known, "{guard}");
        }
    }

    #[test]
    fn a_refusal_names_the_floor_only_where_no_holder_was_seen_as_high() {
        let by_floor = |marks: &Marks, unit: Unit| match marks.refuse(&unit) {
            Some(Settled::Refused { judgement, .. }) => judgement.by_floor,
            other => panic!("{other:?}"),
        };
        let marks = Marks::new(ByteSize::mib(1));
        let read = |name: &str, token, own| {
            let standing = Standing { mark: Mark { token, seq: 0 }, ..Standing::default() };
            let snapshot = Snapshot { standing, own, value: None, size: 0, has_standbys: false };
            marks.learn_from_read(&Key::new(name).unwrap(), &snapshot);
        };
        read("absent", 9, 0);
        read("written", 9, 9);
        read("older", 5, 5);
        assert!(by_floor(&marks, claim("absent", 8)));
        assert!(!by_floor(&marks, claim("written", 8)));
        for (scope, floor) in [("absent", true), ("written", false)] {
            let mut write = Write::claim(Key::new("older").unwrap(), Token::new(8).unwrap());
            write.scope = Some(Key::new(scope).unwrap());
            assert_eq!(by_floor(&marks, Unit::single(write)), floor, "{scope}");
        }
    }

    #[test]
    fn reading_what_nobody_has_written_takes_no_place() {
        let marks = Marks::new(ByteSize::mib(1));
        let read = |name: &str, token| {
            let standing = Standing { mark: Mark { token, seq: 0 }, ..Standing::default() };
            let snapshot =
                Snapshot { standing, own: token, value: None, size: 0, has_standbys: false };
            marks.learn_from_read(&Key::new(name).unwrap(), &snapshot);
        };
        read("nothing", 0);
        assert_eq!(marks.known.len(), 0);
        read("something", 1);
        assert_eq!(marks.known.len(), 1);
    }
}
