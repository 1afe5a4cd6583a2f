//! I10 and L3: a refusal has a reason, and the mark that it names is one that somebody has set.

use std::collections::{HashMap, HashSet};

use super::{Findings, Promise};
use crate::history::{History, Moment, Op, Outcome, Request};

/// A value, or that there was to be none; and the moment.
type Sent<'a> = (Option<&'a str>, Moment);

/// Who may have raised marks, and when they began to.
#[derive(Default)]
struct Raisers<'a> {
    /// By key and token: the first.
    tokens: HashMap<(&'a str, i64), Moment>,
    /// Locks that somebody asked for and was not told of: a grant may have been claimed all the same.
    hidden_grants: HashMap<&'a str, Moment>,
    /// By key and token: the first moment of every seq.
    seqs: HashMap<(&'a str, i64), Vec<(i64, Moment)>>,
    /// By key, token and seq: what was to be written, and when first.
    values: HashMap<(&'a str, i64, i64), Vec<Sent<'a>>>,
    issued: HashSet<i64>,
    floors: Vec<(i64, Moment)>,
}

pub fn check(history: &History, findings: &mut Findings) {
    let raisers = Raisers::of(history);
    let lossy = history.takeovers.iter().any(|takeover| takeover.lossy);
    for op in &history.ops {
        let Outcome::Refused { reason, index, mark, .. } = &op.outcome else { continue };
        let Some((key, scope, token, seq)) = subject(op, *index) else { continue };
        let name = &op.name;
        match reason.as_str() {
            "stale-token" => {
                if *mark <= token {
                    let what = format!("{name}, {token}, is stale on {key} by the mark {mark}");
                    findings.add(Promise::L3, what);
                }
                if !raisers.can_have_raised(&[Some(key), scope], *mark, op.till) {
                    let what = format!("{name} was held against {mark} on {key}: nobody's token");
                    findings.add(Promise::I10, what);
                }
            }
            "out-of-order" => {
                let seqs = raisers.seqs.get(&(key, token));
                let later = |(other, from): &(i64, Moment)| *other > seq && *from < op.till;
                if !seqs.is_some_and(|seqs| seqs.iter().any(later)) {
                    let what =
                        format!("{name}, seq {seq}, is out of order on {key}: none is later");
                    findings.add(Promise::L3, what);
                }
            }
            "seq-reused" => {
                let same = raisers.values.get(&(key, token, seq)).cloned().unwrap_or_default();
                let value = op.writes().get(*index).and_then(|write| write.value.as_deref());
                if !same.iter().any(|(other, from)| *other != value && *from < op.till) {
                    let what = format!("{name}, seq {seq}, is the only one with it on {key}");
                    findings.add(Promise::L3, what);
                }
            }
            "version-mismatch" if op.writes().get(*index).is_some_and(|w| w.expects.is_some()) => {}
            // A token that the standby has never heard of was issued before the takeover.
            "unissued-token" if lossy || !raisers.issued.contains(&token) => {}
            other => findings.add(Promise::L3, format!("{name} was refused on {key}: {other}")),
        }
    }
}

/// Key, scope, token and seq of what was refused.
fn subject(op: &Op, index: usize) -> Option<(&str, Option<&str>, i64, i64)> {
    match &op.request {
        Request::Read { key, token: Some(token) } | Request::Claim { key, token } => {
            Some((key, None, *token, 0))
        }
        _ => {
            let write = op.writes().get(index)?;
            Some((&write.key, write.scope.as_deref(), write.token, write.seq))
        }
    }
}

impl<'a> Raisers<'a> {
    fn of(history: &'a History) -> Self {
        let mut raisers = Self::default();
        for op in &history.ops {
            if let Request::Acquire { lock, .. } = &op.request {
                match op.outcome {
                    Outcome::Granted { token } => {
                        raisers.issued.insert(token);
                        raisers.raises(lock, token, op.from);
                    }
                    _ => drop(raisers.hidden_grants.entry(lock).or_insert(op.from)),
                }
            }
            if !op.may_apply() && !op.mismatched() {
                continue;
            }
            if let Request::Read { key, token: Some(token) } | Request::Claim { key, token } =
                &op.request
            {
                raisers.raises(key, *token, op.from);
            }
            for write in op.writes() {
                raisers.raises(&write.key, write.token, op.from);
                if let Some(scope) = &write.scope {
                    raisers.raises(scope, write.token, op.from);
                }
                let seqs = raisers.seqs.entry((&write.key, write.token)).or_default();
                seqs.push((write.seq, op.from));
                let place = (write.key.as_str(), write.token, write.seq);
                let values = raisers.values.entry(place).or_default();
                values.push((write.value.as_deref(), op.from));
            }
        }
        raisers.floors = history.takeovers.iter().map(|t| (t.floor, t.from)).collect();
        raisers
    }

    fn raises(&mut self, key: &'a str, token: i64, from: Moment) {
        // Sorted by time: the first stays.
        self.tokens.entry((key, token)).or_insert(from);
    }

    fn can_have_raised(&self, keys: &[Option<&str>], mark: i64, till: Moment) -> bool {
        let by_key = keys.iter().flatten().any(|key| {
            self.tokens.get(&(*key, mark)).is_some_and(|from| *from < till)
                || self.hidden_grants.get(*key).is_some_and(|from| *from < till)
        });
        by_key || self.floors.iter().any(|(floor, from)| *floor >= mark && *from < till)
    }
}
