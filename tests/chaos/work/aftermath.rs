//! What clients do after a failure: they look whether it was one.
//!
//! The traces of a false answer do not last. A write that was called lost is seen until the next one, and
//! a mark that nobody has committed is in the way of older tokens alone. So whoever was told of the
//! failure looks at once, and sends such a token.

use super::{Service, Worker};
use crate::{
    check::chains,
    history::{Outcome, Request, Write},
};

impl<S: Service> Worker<'_, S> {
    /// Asks, and looks into it where it has failed.
    pub(super) async fn attempt(&mut self, request: Request) -> Outcome {
        let via = self.service.choose();
        let outcome = self.ask_at(via, &request).await;
        self.look_into(via, &request, &outcome).await;
        outcome
    }

    pub(super) async fn look_into(&mut self, via: usize, request: &Request, outcome: &Outcome) {
        let surely_failed = match outcome {
            // Nobody has heard of it.
            Outcome::NotApplied { reason } if reason == "unreachable" => return,
            Outcome::NotApplied { .. } => true,
            Outcome::Unknown { .. } => false,
            Outcome::Done(_) | Outcome::Granted { .. } | Outcome::Refused { .. } => return,
        };
        let Some((key, token)) = self.one_of(request) else { return };
        if self.random.u8(..100) < 70 {
            self.ask(Request::Read { key: key.clone(), token: None }).await;
        }
        if surely_failed && self.random.u8(..100) < 60 {
            self.come_too_late(via, key, token).await;
        }
    }

    /// A key that it was about, and the token that it came with.
    fn one_of(&mut self, request: &Request) -> Option<(String, i64)> {
        match request {
            Request::Write(Write { key, token, .. })
            | Request::Claim { key, token }
            | Request::Read { key, token: Some(token) } => Some((key.clone(), *token)),
            Request::Batch(writes) => {
                let Write { key, token, .. } = &writes[self.random.usize(..writes.len())];
                Some((key.clone(), *token))
            }
            _ => None,
        }
    }

    /// With the token of an earlier lock, for this key alone, where the newer one has just failed. If that
    /// one has left nothing behind, it cannot be what this is refused for.
    async fn come_too_late(&mut self, via: usize, key: String, newer: i64) {
        let Some(held) = self.past.iter().rev().find(|held| held.token < newer).cloned() else {
            return;
        };
        // Into a chain nobody writes who has not read it.
        let request = if key.ends_with(chains::SUFFIX) {
            Request::Claim { key, token: held.token }
        } else {
            let value = Some(self.new_name());
            Request::Write(Write { scope: None, ..self.scoped(&held, key, value) })
        };
        self.ask_at(via, &request).await;
    }
}
