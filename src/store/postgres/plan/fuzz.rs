//! The fold of a batch: what shares a statement comes out as if it had come one by one.
//!
//! The statement itself is SQL, and `tests/it/same_verdicts.rs` holds it to the rule on real servers.
//! Here a row of it stands in its place: it writes if the fence passes the run's last write, and the mark of
//! its scope need not rise, and else leaves all units of that key to be judged in order.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*, sample};

use super::*;
use crate::{
    fence::{self, Verdict},
    token::{Seq, Token},
    write::Precondition,
};

type Rows = BTreeMap<Key, (Standing, Option<Value>)>;

fn row(rows: &Rows, key: &Key) -> (Standing, Option<Value>) {
    rows.get(key).cloned().unwrap_or_default()
}

/// One write, as if it were alone.
fn settle(rows: &mut Rows, write: &Write) -> Judgement {
    let (standing, value) = row(rows, &write.key);
    let scope = write.scope.as_ref().map(|scope| row(rows, scope).0.mark);
    let judgement = fence::judge(write, &standing, scope, Mark::UNSEEN);
    if judgement.passed_the_fence() {
        let value = match (&write.change, judgement.verdict) {
            (Change::Put(value), Verdict::Accepted) => Some(value.clone()),
            (Change::Delete, Verdict::Accepted) => None,
            _ => value,
        };
        rows.insert(write.key.clone(), (judgement.key, value));
        if let Some(scope) = &write.scope {
            let (standing, value) = row(rows, scope);
            rows.insert(scope.clone(), (fence::seen(&standing, write.token), value));
        }
    }
    judgement
}

/// What is answered and kept. `created` is for the replay of a put with a seq, and means nothing else.
fn told(write: &Write, judgement: &Judgement) -> (Verdict, Mark, Version, bool, Option<Digest>) {
    let Judgement { verdict, key, .. } = judgement;
    let answered = matches!(write.change, Change::Put(_)) && *verdict == Verdict::Accepted;
    let created = key.created && (answered || key.digest.is_some());
    (*verdict, key.mark, key.version, created, key.digest)
}

/// As a row of the statement does it; `false` if the fence does not let it pass.
fn execute(rows: &mut Rows, run: &Run<'_>, answers: &mut [Option<Judgement>]) -> bool {
    let (standing, value) = row(rows, run.key());
    if run.scope().is_some_and(|scope| row(rows, scope).0.mark.token != run.mark().token) {
        return false;
    }
    let passes = fence::judge(run.last, &standing, None, Mark::UNSEEN);
    let is_idle = run.is_claim() && passes.key == standing;
    if passes.verdict != Verdict::Accepted || is_idle {
        return false;
    }
    let value = if run.is_claim() { value } else { run.value().cloned() };
    let changes = !run.is_claim() && (value.is_some() || standing.present);
    let written = Written {
        version: standing.version.get() + if changes { run.times() } else { 0 },
        created: run.value().is_some() && !standing.present,
        present: value.is_some(),
        value: None,
    };
    let mut last = standing;
    for (place, settled) in run.accepted(written) {
        let Settled::Applied { judgements, .. } = settled else { unreachable!("it was written") };
        answers[place] = Some(judgements[0]);
        last = judgements[0].key;
    }
    rows.insert(run.key().clone(), (last, value));
    true
}

fn any_write() -> impl Strategy<Value = Write> {
    let key = || sample::select(vec!["a", "b", "c", "d"]).prop_map(|key| Key::new(key).unwrap());
    let put = sample::select(vec!["x", "y"]).prop_map(|body| {
        Change::Put(Value {
            body: Bytes::from_static(body.as_bytes()),
            content_type: String::new(),
        })
    });
    let change = prop_oneof![6 => put, 1 => Just(Change::Delete), 1 => Just(Change::Claim)];
    let precondition = prop_oneof![
        Just(Precondition::Absent),
        (1..4_i64).prop_map(|version| Precondition::Version(Version::from_stored(version))),
    ];
    let rule = prop_oneof![4 => Just(Rule::AtLeast), 1 => Just(Rule::Above)];
    (
        key(),
        1..4_i64,
        option::weighted(0.2, 1..4_i64),
        option::weighted(0.3, key()),
        rule,
        change,
        option::weighted(0.1, precondition),
    )
        .prop_map(|(key, token, seq, scope, rule, change, precondition)| Write {
            token: Token::new(token).unwrap(),
            seq: seq.and_then(Seq::new),
            scope: scope.filter(|scope| *scope != key),
            rule,
            precondition: precondition.filter(|_| change != Change::Claim),
            change,
            key,
        })
}

proptest! {
    #[test]
    fn what_is_settled_together_comes_out_as_if_one_by_one(
        before in vec(any_write(), 0..6), writes in vec(any_write(), 1..12),
    ) {
        let mut rows = Rows::new();
        for write in &before {
            settle(&mut rows, write);
        }
        let mut one_by_one = rows.clone();
        let expected: Vec<Judgement> = writes.iter().map(|write| settle(&mut one_by_one, write)).collect();

        let units: Vec<Unit> = writes.iter().cloned().map(Unit::single).collect();
        let places: Vec<usize> = (0..units.len()).collect();
        let plan = plan(&units, &places);
        let mut answers: Vec<Option<Judgement>> = vec![None; units.len()];
        let mut rest = plan.others.clone();
        for run in &plan.runs {
            if !execute(&mut rows, run, &mut answers) {
                rest.extend(&run.places);
            }
        }
        rest.sort_unstable();
        for place in rest {
            prop_assert!(answers[place].is_none(), "each unit is answered once");
            answers[place] = Some(settle(&mut rows, &writes[place]));
        }
        for ((write, answer), expected) in writes.iter().zip(&answers).zip(&expected) {
            let answer = answer.as_ref().expect("every unit is answered");
            prop_assert_eq!(told(write, answer), told(write, expected), "{:?}", write);
        }
        let kept = |rows: &Rows| -> Vec<_> {
            rows.iter().map(|(key, (standing, value))| {
                let created = standing.created && standing.digest.is_some();
                (key.clone(), Standing { created, ..*standing }, value.clone())
            }).collect()
        };
        prop_assert_eq!(kept(&rows), kept(&one_by_one));
    }
}
