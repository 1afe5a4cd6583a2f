//! I8: the tokens of a lock rise, and no token is granted twice.

use std::collections::HashMap;

use super::{Findings, Promise, sweep::Known};
use crate::history::{History, Op, Outcome, Request};

pub fn check(history: &History, findings: &mut Findings) {
    let mut locks: HashMap<&str, Vec<(&Op, i64)>> = HashMap::new();
    let mut owners: HashMap<i64, &str> = HashMap::new();
    for op in &history.ops {
        if let (Request::Acquire { lock, .. }, Outcome::Granted { token }) =
            (&op.request, &op.outcome)
        {
            locks.entry(lock).or_default().push((op, *token));
            if let Some(other) = owners.insert(*token, &op.name) {
                let what = format!("the token {token} was granted to {other} and to {}", op.name);
                findings.add(Promise::I8, what);
            }
        }
    }
    for (lock, grants) in locks {
        let mut known = Known::new();
        for (op, token) in &grants {
            known.add(op.till, *token, op.name.as_str());
        }
        known.settle();
        for (op, token) in grants {
            if let Some((earlier, witness)) = known.before(op.from)
                && token <= earlier
            {
                let name = &op.name;
                let what = format!("{lock}: {witness} had {earlier}, and then {name} {token}");
                findings.add(Promise::I8, what);
            }
        }
    }
}
