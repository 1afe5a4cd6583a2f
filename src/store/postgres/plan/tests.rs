use bytes::Bytes;

use super::*;
use crate::{
    token::{Seq, Token},
    write::Precondition,
};

fn put(key: &str, token: i64) -> Write {
    let value = Value { body: Bytes::from_static(b"x"), content_type: "text/plain".into() };
    Write { change: Change::Put(value), ..claim(key, token) }
}

fn claim(key: &str, token: i64) -> Write {
    Write::claim(Key::new(key).unwrap(), Token::new(token).unwrap())
}

fn with_seq(write: Write, seq: i64) -> Write {
    Write { seq: Seq::new(seq), ..write }
}

/// The runs as (key, places), and the places of the others.
fn planned(writes: Vec<Write>) -> (Vec<(String, Vec<usize>)>, Vec<usize>) {
    let units: Vec<Unit> = writes.into_iter().map(Unit::single).collect();
    planned_units(&units)
}

fn planned_units(units: &[Unit]) -> (Vec<(String, Vec<usize>)>, Vec<usize>) {
    let places: Vec<usize> = (0..units.len()).collect();
    let plan = plan(units, &places);
    let runs = plan.runs.iter().map(|run| (run.key().to_string(), run.places.clone()));
    (runs.collect(), plan.others)
}

fn run(key: &str, places: &[usize]) -> (String, Vec<usize>) {
    (key.into(), places.to_vec())
}

#[test]
fn plain_writes_of_many_keys_are_runs_in_byte_order() {
    let (runs, others) = planned(vec![put("b", 1), put("a/é", 2), put("a/z", 3), put("B", 1)]);
    assert_eq!(runs, [run("B", &[3]), run("a/z", &[2]), run("a/é", &[1]), run("b", &[0])]);
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn puts_of_one_key_under_one_token_are_one_run() {
    let (runs, others) = planned(vec![put("k", 1), put("j", 1), put("k", 1), put("k", 1)]);
    assert_eq!(runs, [run("j", &[1]), run("k", &[0, 2, 3])]);
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_key_with_anything_else_is_left_alone_as_a_whole_and_in_order() {
    let delete = Write { change: Change::Delete, ..claim("k", 1) };
    let above = Write { rule: Rule::Above, ..put("k", 1) };
    let conditional = Write { precondition: Some(Precondition::Absent), ..put("k", 1) };
    for odd in [put("k", 2), with_seq(put("k", 1), 1), delete, above, conditional, claim("k", 1)] {
        for order in [[0, 1], [1, 0]] {
            let pair = [put("k", 1), odd.clone()];
            let mut writes: Vec<Write> = order.iter().map(|&place| pair[place].clone()).collect();
            writes.insert(1, put("other", 1));
            let (runs, others) = planned(writes);
            assert_eq!(runs, [run("other", &[1])], "{odd:?}");
            assert_eq!(others, [0, 2], "{odd:?}");
        }
    }
}

#[test]
fn the_only_write_of_a_key_is_a_run_whatever_is_asked_of_it() {
    let delete = Write { change: Change::Delete, ..claim("d", 1) };
    let above = Write { rule: Rule::Above, ..put("a", 1) };
    let conditional = Write { precondition: Some(Precondition::Absent), ..put("p", 1) };
    let writes = vec![with_seq(put("s", 1), 2), delete, above, conditional, claim("c", 1)];
    let (runs, others) = planned(writes);
    let in_order = [("a", 2), ("c", 4), ("d", 1), ("p", 3), ("s", 0)];
    assert_eq!(runs, in_order.map(|(key, place)| run(key, &[place])));
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn what_a_run_asks_of_its_row() {
    let version = Precondition::Version(Version::from_stored(3));
    let writes = vec![
        Unit::single(put("a", 1)),
        Unit::single(Write { rule: Rule::Above, ..put("b", 1) }),
        Unit::single(Write { precondition: Some(version), ..put("c", 1) }),
        Unit::single(Write { precondition: Some(Precondition::Absent), ..put("d", 1) }),
        Unit::single(claim("e", 1)),
        Unit::fenced_read(claim("f", 1)),
    ];
    let plan = plan(&writes, &[0, 1, 2, 3, 4, 5]);
    let asked: Vec<_> = plan
        .runs
        .iter()
        .map(|run| (run.is_one_plain_put(), run.must_rise(), run.expected(), run.claim()))
        .collect();
    let expected = [
        (true, false, None, None),
        (false, true, None, None),
        (false, false, Some(3), None),
        (false, false, Some(-1), None),
        (false, true, None, Some(false)),
        (false, true, None, Some(true)),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn keys_of_scopes_and_batches_are_left_alone() {
    let scoped = Write { scope: Some(Key::new("scope").unwrap()), ..put("k", 1) };
    let units = [
        Unit::single(put("scope", 1)),
        Unit::single(scoped),
        Unit::atomic(vec![put("x", 1), put("y", 1)]),
        Unit::single(put("y", 1)),
        Unit::fenced_read(claim("r", 1)),
        Unit::single(put("r", 1)),
        Unit::atomic(vec![put("free", 1)]),
    ];
    let (runs, others) = planned_units(&units);
    assert_eq!(runs, [run("free", &[6])]);
    assert_eq!(others, [0, 1, 2, 3, 4, 5]);
}

fn under(scope: &str, write: Write) -> Write {
    Write { scope: Some(Key::new(scope).unwrap()), ..write }
}

#[test]
fn writes_under_a_scope_share_the_statement() {
    let writes = vec![
        under("s", put("b", 1)),
        put("a", 2),
        under("s", put("b", 1)),
        under("t", claim("c", 3)),
        under("s", with_seq(put("d", 1), 1)),
    ];
    let (runs, others) = planned(writes);
    assert_eq!(runs, [run("a", &[1]), run("b", &[0, 2]), run("c", &[3]), run("d", &[4])]);
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn puts_of_one_key_under_several_scopes_are_no_run() {
    let (runs, others) =
        planned(vec![under("s", put("k", 1)), under("t", put("k", 1)), under("s", put("j", 1))]);
    assert_eq!(runs, [run("j", &[2])]);
    assert_eq!(others, [0, 1]);
}

#[test]
fn a_scope_that_something_else_may_raise_is_left_alone() {
    let scoped = || Unit::single(under("s", put("k", 2)));
    let free = || Unit::single(under("t", put("free", 2)));
    for other in [
        Unit::single(put("s", 2)),
        Unit::single(claim("s", 2)),
        Unit::single(under("t", put("s", 2))),
        Unit::single(under("s", put("l", 3))),
        Unit::atomic(vec![put("s", 2), put("x", 2)]),
        Unit::atomic(vec![under("s", put("x", 2)), put("y", 2)]),
    ] {
        for units in [[scoped(), other.clone(), free()], [other.clone(), scoped(), free()]] {
            let (runs, others) = planned_units(&units);
            assert_eq!(runs, [run("free", &[2])], "{other:?}");
            assert_eq!(others, [0, 1], "{other:?}");
        }
    }
}

#[test]
fn what_writes_the_key_of_such_a_write_follows_it() {
    let writes = vec![put("k", 2), under("s", put("k", 2)), put("s", 2), under("k", put("j", 2))];
    let (runs, others) = planned(writes);
    assert!(runs.is_empty(), "{runs:?}");
    assert_eq!(others, [0, 1, 2, 3]);
}

#[test]
fn each_of_a_run_has_a_version_of_its_own() {
    let units: Vec<Unit> = (0..3).map(|_| Unit::single(put("k", 7))).collect();
    let plan = plan(&units, &[0, 1, 2]);
    let written = Written { version: 12, created: true, present: true, value: None };
    let answers: Vec<_> = plan.runs[0]
        .accepted(written)
        .map(|(place, settled)| match settled {
            Settled::Applied { judgements, .. } => {
                (place, judgements[0].key.version.get(), judgements[0].key.created)
            }
            Settled::Refused { .. } => panic!("it was accepted"),
        })
        .collect();
    assert_eq!(answers, [(0, 10, true), (1, 11, false), (2, 12, false)]);
}
