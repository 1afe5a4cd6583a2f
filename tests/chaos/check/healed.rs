//! L1 and L2: once everything is healed, locks pass on and their holders can write.

use super::{Findings, Promise};
use crate::history::{History, Outcome, Request};

pub fn check(history: &History, findings: &mut Findings) {
    for op in history.ops.iter().filter(|op| op.due) {
        if matches!(op.outcome, Outcome::Done(_) | Outcome::Granted { .. }) {
            continue;
        }
        let promise = match op.request {
            Request::Acquire { .. } => Promise::L2,
            _ => Promise::L1,
        };
        let (request, outcome) = (&op.request, &op.outcome);
        findings.add(promise, format!("all is well, and yet {request:?} ends as {outcome:?}"));
    }
}
