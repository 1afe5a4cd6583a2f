//! Every clause of the rule, in its order; then what must hold whatever comes.

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::{
    token::{Key, Seq},
    write::Value,
};

fn write(token: i64, change: Change) -> Write {
    let key = Key::new("key").unwrap();
    Write { change, ..Write::claim(key, Token::new(token).unwrap()) }
}

fn put(token: i64, body: &'static str) -> Write {
    let body = Bytes::from_static(body.as_bytes());
    write(token, Change::Put(Value { body, content_type: "text/plain".into() }))
}

fn delete(token: i64) -> Write {
    write(token, Change::Delete)
}

fn claim(token: i64) -> Write {
    write(token, Change::Claim)
}

trait With {
    fn seq(self, seq: i64) -> Self;
    fn above(self) -> Self;
    fn only_if(self, precondition: Precondition) -> Self;
}

impl With for Write {
    fn seq(self, seq: i64) -> Self {
        Self { seq: Seq::new(seq), ..self }
    }

    fn above(self) -> Self {
        Self { rule: Rule::Above, ..self }
    }

    fn only_if(self, precondition: Precondition) -> Self {
        Self { precondition: Some(precondition), ..self }
    }
}

fn mark(token: i64, seq: i64) -> Mark {
    Mark { token, seq }
}

fn version(number: i64) -> Precondition {
    Precondition::Version(Version::from_stored(number))
}

/// Judged by its key alone.
fn alone(key: &Standing, write: &Write) -> Judgement {
    judge(write, key, None, Mark::UNSEEN)
}

/// What a key has become after these writes, one after the other.
fn after(history: &[Write]) -> Standing {
    history.iter().fold(Standing::default(), |key, write| alone(&key, write).key)
}

const ACCEPTED: Verdict = Verdict::Accepted;
const REPLAYED: Verdict = Verdict::Replayed;
const STALE: Verdict = Verdict::Refused(Refusal::Stale);
const OUT_OF_ORDER: Verdict = Verdict::Refused(Refusal::OutOfOrder);
const SEQ_REUSED: Verdict = Verdict::Refused(Refusal::SeqReused);
const MISMATCH: Verdict = Verdict::Refused(Refusal::VersionMismatch);

/// What was written before, what comes now, and what becomes of it: verdict, mark, version.
type Case = (Vec<Write>, Write, Verdict, (i64, i64), i64);

fn check(cases: Vec<Case>) {
    for (before, write, verdict, (token, seq), version) in cases {
        let judgement = alone(&after(&before), &write);
        let outcome = (judgement.verdict, judgement.key.mark, judgement.key.version.get());
        assert_eq!(outcome, (verdict, mark(token, seq), version), "{write:?} after {before:?}");
    }
}

#[test]
fn a_claim_has_created_nothing() {
    let created = after(&[put(5, "a").seq(1)]);
    assert!(created.created);
    for claim in [claim(6), claim(5).seq(2), claim(6).seq(2)] {
        assert!(!alone(&created, &claim).key.created, "{claim:?}");
    }
}

#[test]
fn clause_1_a_token_below_the_mark_is_stale() {
    check(vec![
        (vec![put(5, "a")], put(4, "b"), STALE, (5, 0), 1),
        (vec![put(5, "a")], delete(4), STALE, (5, 0), 1),
        (vec![put(5, "a")], claim(4), STALE, (5, 0), 1),
        (vec![claim(5)], put(4, "b"), STALE, (5, 0), 0),
        (vec![put(5, "a"), delete(6)], put(5, "b"), STALE, (6, 0), 2),
        // A seq orders the writes of one holder. It lifts none over another's.
        (vec![put(5, "a")], put(4, "b").seq(9), STALE, (5, 0), 1),
        // The fence comes before the precondition.
        (vec![put(5, "a")], put(4, "b").only_if(version(1)), STALE, (5, 0), 1),
        (vec![put(5, "a")], put(4, "b").only_if(version(9)), STALE, (5, 0), 1),
    ]);
}

#[test]
fn clause_1_a_token_below_the_scope_or_the_floor_is_stale() {
    let key = after(&[put(3, "a")]);
    for (scope, floor, guard) in [(5, 0, 5), (0, 5, 5), (5, 6, 6), (6, 5, 6), (5, 5, 5)] {
        let judgement = judge(&put(4, "b"), &key, Some(mark(scope, 0)), mark(floor, 0));
        assert_eq!(judgement.verdict, STALE);
        assert_eq!(judgement.guard, mark(guard, 0));
        assert_eq!(judgement.by_floor, floor > scope);
        assert_eq!(judgement.own, 3);
        // The floor is part of what a reader is told of the key. The scope's mark is not.
        assert_eq!(judgement.key, Standing { mark: mark(floor.max(3), 0), ..key });
    }
    for (scope, floor) in [(4, 0), (0, 4), (4, 4)] {
        let judgement = judge(&put(4, "b"), &key, Some(mark(scope, 0)), mark(floor, 0));
        assert_eq!(judgement.verdict, ACCEPTED);
    }
}

#[test]
fn clause_2_a_token_above_the_mark_raises_it() {
    check(vec![
        (vec![], put(5, "a"), ACCEPTED, (5, 0), 1),
        (vec![], put(5, "a").seq(3), ACCEPTED, (5, 3), 1),
        (vec![], put(5, "a").above(), ACCEPTED, (5, 0), 1),
        (vec![put(5, "a")], put(6, "b"), ACCEPTED, (6, 0), 2),
        (vec![put(5, "a")], delete(6), ACCEPTED, (6, 0), 2),
        (vec![put(5, "a")], claim(6), ACCEPTED, (6, 0), 1),
        // A new holder's seq starts where it likes.
        (vec![put(5, "a").seq(9)], put(6, "b").seq(1), ACCEPTED, (6, 1), 2),
        (vec![put(5, "a").seq(9)], put(6, "b"), ACCEPTED, (6, 0), 2),
        // Nothing is there to be deleted, but the holder has been seen.
        (vec![], delete(5), ACCEPTED, (5, 0), 0),
        (vec![put(5, "a"), delete(5)], delete(6), ACCEPTED, (6, 0), 2),
        // The version goes on over a delete.
        (vec![put(5, "a"), delete(5)], put(6, "b"), ACCEPTED, (6, 0), 3),
    ]);
}

#[test]
fn clause_3_the_same_holder_without_a_seq() {
    check(vec![
        (vec![put(5, "a")], put(5, "b"), ACCEPTED, (5, 0), 2),
        (vec![put(5, "a")], put(5, "a"), ACCEPTED, (5, 0), 2),
        (vec![put(5, "a")], put(5, "b").above(), STALE, (5, 0), 1),
        (vec![put(5, "a")], delete(5).above(), STALE, (5, 0), 1),
        (vec![put(5, "a")], put(6, "b").above(), ACCEPTED, (6, 0), 2),
        // Once a holder has used a seq, it must go on.
        (vec![put(5, "a").seq(1)], put(5, "b"), OUT_OF_ORDER, (5, 1), 1),
        (vec![put(5, "a").seq(1)], delete(5), OUT_OF_ORDER, (5, 1), 1),
        // A claim changes nothing that order could spoil.
        (vec![put(5, "a").seq(1)], claim(5), ACCEPTED, (5, 1), 1),
        (vec![put(5, "a").seq(1)], claim(6).above(), ACCEPTED, (6, 0), 1),
        // That of a grant must be the first to bring its token.
        (vec![put(5, "a")], claim(5).above(), STALE, (5, 0), 1),
        (vec![claim(5)], claim(5).above(), STALE, (5, 0), 0),
    ]);
}

#[test]
fn clause_3_the_same_holder_with_a_seq() {
    let before = || vec![put(5, "a").seq(2)];
    check(vec![
        (before(), put(5, "b").seq(3), ACCEPTED, (5, 3), 2),
        (before(), put(5, "b").seq(3).above(), ACCEPTED, (5, 3), 2),
        (before(), put(5, "a").seq(2), REPLAYED, (5, 2), 1),
        (before(), put(5, "a").seq(2).above(), REPLAYED, (5, 2), 1),
        (before(), put(5, "b").seq(2), SEQ_REUSED, (5, 2), 1),
        (before(), delete(5).seq(2), SEQ_REUSED, (5, 2), 1),
        (before(), claim(5).seq(2), SEQ_REUSED, (5, 2), 1),
        (before(), put(5, "a").seq(1), OUT_OF_ORDER, (5, 2), 1),
        (before(), claim(5).seq(1), OUT_OF_ORDER, (5, 2), 1),
        (before(), claim(5).seq(3), ACCEPTED, (5, 3), 1),
        (vec![put(5, "a")], put(5, "b").seq(1), ACCEPTED, (5, 1), 2),
        // A claim without a seq forgets nothing.
        (vec![put(5, "a").seq(2), claim(5)], put(5, "a").seq(2), REPLAYED, (5, 2), 1),
        // A seq that a newer holder happens to share is its own.
        (vec![put(5, "a").seq(2), claim(6)], put(6, "a").seq(2), ACCEPTED, (6, 2), 2),
        (vec![delete(5).seq(2)], delete(5).seq(2), REPLAYED, (5, 2), 0),
    ]);
}

#[test]
fn clause_3_another_content_type_is_another_body() {
    let key = after(&[put(5, "a").seq(2)]);
    let body = Bytes::from_static(b"a");
    let other = write(5, Change::Put(Value { body, content_type: "text/html".into() }));
    assert_eq!(alone(&key, &other.seq(2)).verdict, SEQ_REUSED);
}

#[test]
fn clause_4_a_precondition_is_looked_at_after_the_fence() {
    let absent = Precondition::Absent;
    check(vec![
        (vec![put(5, "a")], put(5, "b").only_if(version(1)), ACCEPTED, (5, 0), 2),
        (vec![put(5, "a")], put(5, "b").only_if(version(2)), MISMATCH, (5, 0), 1),
        (vec![put(5, "a")], put(5, "b").only_if(absent), MISMATCH, (5, 0), 1),
        (vec![], put(5, "b").only_if(absent), ACCEPTED, (5, 0), 1),
        (vec![claim(5)], put(5, "b").only_if(absent), ACCEPTED, (5, 0), 1),
        (vec![put(5, "a"), delete(5)], put(5, "b").only_if(absent), ACCEPTED, (5, 0), 3),
        // A deleted key has a version, but nothing at that version.
        (vec![put(5, "a"), delete(5)], put(5, "b").only_if(version(2)), MISMATCH, (5, 0), 2),
        (vec![put(5, "a")], delete(5).only_if(version(1)), ACCEPTED, (5, 0), 2),
        (vec![put(5, "a")], delete(5).only_if(version(7)), MISMATCH, (5, 0), 1),
        // The holder has been seen, but its seq is not used up.
        (vec![put(5, "a")], put(7, "b").seq(3).only_if(version(9)), MISMATCH, (7, 0), 1),
        (
            vec![put(5, "a"), put(7, "b").seq(3).only_if(version(9))],
            put(7, "b").seq(1),
            ACCEPTED,
            (7, 1),
            2,
        ),
        (vec![put(5, "a").seq(1)], put(5, "b").seq(3).only_if(version(9)), MISMATCH, (5, 1), 1),
        // A replay is answered whatever its precondition would say by now.
        (
            vec![put(5, "a").seq(1).only_if(absent)],
            put(5, "a").seq(1).only_if(absent),
            REPLAYED,
            (5, 1),
            1,
        ),
    ]);
}

#[test]
fn a_replay_remembers_whether_it_created() {
    for (before, created) in [(vec![], true), (vec![put(4, "x")], false)] {
        let first = alone(&after(&before), &put(5, "a").seq(1));
        assert_eq!(first.key.created, created);
        let again = alone(&first.key, &put(5, "a").seq(1));
        assert_eq!((again.verdict, again.key), (REPLAYED, first.key));
    }
}

#[test]
fn being_seen_as_a_scope_raises_the_mark_and_leaves_the_seq_of_the_same_token() {
    let key = after(&[put(5, "a").seq(2)]);
    let token = |number| Token::new(number).unwrap();
    assert_eq!(seen(&key, token(4)).mark, mark(5, 2));
    assert_eq!(seen(&key, token(5)), key);
    assert_eq!(seen(&key, token(6)).mark, mark(6, 0));
    assert_eq!(seen(&key, token(6)).version, key.version);
    // What a replay would need is of no use to another holder, and goes.
    assert!(key.created && key.digest.is_some());
    assert_eq!((seen(&key, token(6)).created, seen(&key, token(6)).digest), (false, None));
}

fn any_write() -> impl Strategy<Value = Write> {
    let change = prop_oneof![Just(put(1, "a")), Just(put(1, "b")), Just(delete(1)), Just(claim(1))];
    let precondition = prop_oneof![Just(Precondition::Absent), (1..5_i64).prop_map(version)];
    (change, 1..6_i64, 0..4_i64, any::<bool>(), option::weighted(0.3, precondition)).prop_map(
        |(change, token, seq, above, precondition)| Write {
            token: Token::new(token).unwrap(),
            seq: Seq::new(seq),
            rule: if above { Rule::Above } else { Rule::AtLeast },
            // Nobody can make a claim conditional.
            precondition: precondition.filter(|_| change.change != Change::Claim),
            ..change
        },
    )
}

/// Only what some history leads to.
fn any_standing() -> impl Strategy<Value = Standing> {
    vec(any_write(), 0..8).prop_map(|history| after(&history))
}

fn any_mark() -> impl Strategy<Value = Mark> {
    (0..7_i64, 0..3_i64).prop_map(|(token, seq)| mark(token, if token == 0 { 0 } else { seq }))
}

proptest! {
    #[test]
    fn a_mark_never_falls(
        key in any_standing(), write in any_write(), scope in any_mark(), floor in 0..7_i64,
    ) {
        let judgement = judge(&write, &key, Some(scope), mark(floor, 0));
        prop_assert!(judgement.key.mark >= key.mark);
        prop_assert!(judgement.guard >= key.mark.max(scope).max(mark(floor, 0)));
        prop_assert!(seen(&key, write.token).mark >= key.mark);
    }

    #[test]
    fn whoever_passes_is_at_or_above_every_guard_and_sets_the_mark(
        key in any_standing(), write in any_write(), scope in any_mark(), floor in 0..7_i64,
    ) {
        let judgement = judge(&write, &key, Some(scope), mark(floor, 0));
        if judgement.passed_the_fence() {
            let token = write.token.get();
            prop_assert!(token >= key.mark.token && token >= scope.token && token >= floor);
            prop_assert_eq!(judgement.key.mark.token, token);
        }
    }

    #[test]
    fn after_whoever_passed_a_lower_token_is_stale(
        key in any_standing(), first in any_write(), second in any_write(),
    ) {
        let judgement = alone(&key, &first);
        if judgement.passed_the_fence() && second.token < first.token {
            prop_assert_eq!(alone(&judgement.key, &second).verdict, STALE);
        }
    }

    #[test]
    fn a_refusal_changes_nothing_but_the_mark_of_a_failed_precondition(
        key in any_standing(), write in any_write(), scope in any_mark(), floor in 0..7_i64,
    ) {
        let floor = mark(floor, 0);
        let judgement = judge(&write, &key, Some(scope), floor);
        match judgement.verdict {
            Verdict::Accepted => {}
            Verdict::Replayed => prop_assert_eq!(judgement.key, key),
            Verdict::Refused(Refusal::VersionMismatch) => {
                prop_assert_eq!(judgement.key, seen(&key, write.token));
            }
            Verdict::Refused(_) => {
                let as_read = Standing { mark: key.mark.max(floor), ..key };
                prop_assert_eq!(judgement.key, as_read);
            }
        }
    }

    #[test]
    fn an_ordered_write_that_was_accepted_is_a_replay_the_next_time(
        key in any_standing(), write in any_write(), seq in 1..5_i64,
    ) {
        let write = write.seq(seq);
        let first = alone(&key, &write);
        if first.verdict == ACCEPTED {
            let again = alone(&first.key, &write);
            prop_assert_eq!((again.verdict, again.key), (REPLAYED, first.key));
        }
    }

    #[test]
    fn a_precondition_can_only_turn_an_acceptance_into_a_mismatch(
        key in any_standing(), write in any_write(),
    ) {
        let unconditional = Write { precondition: None, ..write.clone() };
        let with = alone(&key, &write);
        let without = alone(&key, &unconditional);
        if with.verdict == MISMATCH {
            prop_assert_eq!(without.verdict, ACCEPTED);
            // Its seq was not used up: the same write may come again without the condition.
            prop_assert!(
                alone(&with.key, &unconditional).verdict == ACCEPTED || write.rule == Rule::Above
            );
        } else {
            prop_assert_eq!(with, without);
        }
    }

    #[test]
    fn a_scope_and_a_floor_can_only_make_a_write_stale(
        key in any_standing(), write in any_write(), scope in any_mark(), floor in 0..7_i64,
    ) {
        let guarded = judge(&write, &key, Some(scope), mark(floor, 0)).verdict;
        prop_assert!(guarded == STALE || guarded == alone(&key, &write).verdict);
    }

    #[test]
    fn the_version_counts_the_changes_of_the_value(history in vec(any_write(), 0..12)) {
        let mut key = Standing::default();
        let mut changes = 0;
        for write in &history {
            let judgement = alone(&key, write);
            let changed = match write.change {
                Change::Put(_) => true,
                Change::Delete => key.present,
                Change::Claim => false,
            };
            changes += i64::from(judgement.verdict == ACCEPTED && changed);
            key = judgement.key;
            prop_assert_eq!(key.version.get(), changes);
        }
    }
}
