//! The model in `model/` has the rule in small numbers. Both judge every short history alike, so that
//! what the model proves is about this rule.

use bytes::Bytes;

#[path = "../../model/src/rule.rs"]
#[expect(dead_code, reason = "the model uses more of it")]
mod small;

use super::*;
use crate::{
    token::{Key, Seq},
    write::Value,
};

/// Two tokens, no seq and two, every kind of change, both rules.
fn every_write() -> Vec<small::Write> {
    let changes =
        [small::Change::Claim, small::Change::Put(1), small::Change::Put(2), small::Change::Delete];
    let mut every = Vec::new();
    for change in changes {
        for (token, seq) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)] {
            for above in [false, true] {
                every.push(small::Write { token, seq, change, above });
            }
        }
    }
    every
}

fn real(write: small::Write) -> Write {
    let body = |bits: u16| Bytes::copy_from_slice(&bits.to_be_bytes());
    Write {
        seq: Seq::new(write.seq.into()),
        rule: if write.above { Rule::Above } else { Rule::AtLeast },
        change: match write.change {
            small::Change::Claim => Change::Claim,
            small::Change::Put(bits) => {
                Change::Put(Value { body: body(bits), content_type: String::new() })
            }
            small::Change::Delete => Change::Delete,
        },
        ..Write::claim(Key::new("k").unwrap(), Token::new(write.token.into()).unwrap())
    }
}

fn verdict(small: small::Verdict) -> Verdict {
    match small {
        small::Verdict::Accepted => Verdict::Accepted,
        small::Verdict::Replayed => Verdict::Replayed,
        small::Verdict::Stale => Verdict::Refused(Refusal::Stale),
        small::Verdict::OutOfOrder => Verdict::Refused(Refusal::OutOfOrder),
        small::Verdict::SeqReused => Verdict::Refused(Refusal::SeqReused),
    }
}

/// Judges this write by both, and goes on from where it led, `more` writes deep. Returns how many
/// judgements there were.
fn compare(every: &[(small::Write, Write)], row: small::Row, key: &Standing, more: usize) -> usize {
    let mut compared = 0;
    for (write, real) in every {
        for guard in 0..3 {
            let (expected, after) = small::judge(*write, row, guard);
            let scope = Some(Mark { token: guard.into(), seq: 0 });
            let judgement = judge(real, key, scope, Mark::UNSEEN);
            assert_eq!(judgement.verdict, verdict(expected), "{write:?} on {row:?} under {guard}");
            let mark = Mark { token: after.mark.token.into(), seq: after.mark.seq.into() };
            assert_eq!(judgement.key.mark, mark, "{write:?} on {row:?} under {guard}");
            assert_eq!(judgement.key.present, after.value != 0, "{write:?} on {row:?}");
            compared += 1;
            if more > 0 && guard == 0 {
                compared += compare(every, after, &judgement.key, more - 1);
            }
        }
    }
    compared
}

#[test]
fn the_model_judges_every_short_history_as_the_product_does() {
    let every: Vec<_> = every_write().into_iter().map(|write| (write, real(write))).collect();
    let compared = compare(&every, small::Row::default(), &Standing::default(), 2);
    assert!(compared > 190_000, "{compared}");
}
