//! I8 and L4: the tokens of a lock rise, no token is granted twice, and none is believed that nobody was
//! granted; whoever has lost a lock can neither renew nor release it; and while a lease lasts, nobody
//! else gets the lock.

use std::collections::{HashMap, HashSet};

use super::{Findings, Promise, sweep::Known};
use crate::history::{History, Moment, Op, Outcome, Request};

type Grants<'a> = HashMap<&'a str, Vec<(&'a Op, i64)>>;

pub fn check(history: &History, findings: &mut Findings) {
    let mut locks: Grants<'_> = HashMap::new();
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
    let issued = owners.keys().copied().collect();
    nothing_forged_passes(history, &issued, findings);
    for (lock, grants) in &locks {
        tokens_rise(history, lock, grants, findings);
    }
    if !history.leases_cut_short {
        nobody_else_gets_it(history, &locks, findings);
    }
}

fn nothing_forged_passes(history: &History, issued: &HashSet<i64>, findings: &mut Findings) {
    for op in history.ops.iter().filter(|op| matches!(op.outcome, Outcome::Done(_))) {
        let claimed = match &op.request {
            Request::Read { token, .. } => *token,
            Request::Claim { token, .. } | Request::Renew { token, .. } => Some(*token),
            _ => None,
        };
        let written = op.writes().iter().map(|write| write.token);
        if let Some(token) = written.chain(claimed).find(|token| !issued.contains(token)) {
            let what = format!("{} passed with {token}, which nobody was granted", op.name);
            findings.add(Promise::I8, what);
        }
    }
}

fn tokens_rise(history: &History, lock: &str, grants: &[(&Op, i64)], findings: &mut Findings) {
    let mut known = Known::new();
    for (op, token) in grants {
        known.add(op.till, *token, op.name.as_str());
    }
    known.settle();
    for (op, token) in grants {
        if let Some((earlier, witness)) = known.before(op.from)
            && *token <= earlier
        {
            let name = &op.name;
            let what = format!("{lock}: {witness} had {earlier}, and then {name} {token}");
            findings.add(Promise::I8, what);
        }
    }
    for op in history.ops.iter().filter(|op| matches!(op.outcome, Outcome::Done(_))) {
        let (Request::Renew { lock: its, token } | Request::Release { lock: its, token }) =
            &op.request
        else {
            continue;
        };
        if let Some((newer, witness)) = known.before(op.from).filter(|_| its == lock)
            && *token < newer
        {
            let (name, request) = (&op.name, &op.request);
            let what = format!("{witness} had {newer}, and then {name} could {request:?}");
            findings.add(Promise::I8, what);
        }
    }
}

/// A lease cannot have begun before it was asked for, so it cannot end before its time from then on.
fn nobody_else_gets_it(history: &History, locks: &Grants<'_>, findings: &mut Findings) {
    let mut released: HashMap<(&str, i64), Moment> = HashMap::new();
    for op in &history.ops {
        if let Request::Release { lock, token } = &op.request {
            // Sorted by time: the first stays.
            released.entry((lock, *token)).or_insert(op.from);
        }
    }
    for (lock, grants) in locks {
        let mut grants = grants.clone();
        grants.sort_by_key(|(_, token)| *token);
        for pair in grants.windows(2) {
            let [(first, token), (next, _)] = pair else { continue };
            let Request::Acquire { ttl_ms, .. } = first.request else { continue };
            let lasts_till = first.from + ttl_ms * 1_000_000;
            let given_up = released.get(&(*lock, *token)).is_some_and(|from| *from < next.till);
            if next.till < lasts_till && !given_up {
                let (name, next) = (&first.name, &next.name);
                let what =
                    format!("{name} had {lock} for {ttl_ms} ms, and {next} got it meanwhile");
                findings.add(Promise::L4, what);
            }
        }
    }
}
