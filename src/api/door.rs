//! Before anything else is looked at: whether the request can mean only one thing, who sends it, and
//! whether there is room for one more of theirs.
//! It makes no difference what it asks for. Nothing on the public listener is open to strangers, so
//! there is no path, no method and no header that could lead past this.

use std::sync::Arc;

use axum::{
    extract::Request,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};

use super::{
    browsers,
    problem::{Kind, Problem, Reported},
    refuse_ambiguity, weighed,
};
use crate::{
    auth::{
        Access, Identity, Unauthenticated,
        gate::{Certified, SharedGate},
    },
    limits::{Limits, Line},
    metrics::{Metrics, TurnedAway},
};

/// What the outermost layer of the public listener knows.
pub struct Door {
    pub metrics: Arc<Metrics>,
    pub gate: SharedGate,
    pub limits: Arc<Limits>,
    /// Whether nobody but this machine can ask.
    pub on_loopback: bool,
}

impl Door {
    /// Leaves the identity in the request's extensions, where authentication is on.
    pub async fn pass(&self, request: &mut Request) -> Result<(), Problem> {
        // First of all, so that strangers leave no traces, such as a malformed write in the record.
        self.prove(request).await?;
        refuse_ambiguity(request)?;
        self.admit(request)
    }

    async fn prove(&self, request: &mut Request) -> Result<(), Problem> {
        let Some(gate) = &self.gate else {
            return browsers::refuse_pages(request, self.on_loopback);
        };
        let headers = request.headers();
        let authorization =
            headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        let certified = request.extensions().get::<Certified>();
        let Ok(proven) = gate.admit(authorization, certified).await else {
            return Err(self.stranger());
        };
        // What comes after this has no business with it, and may write it to a log.
        request.headers_mut().remove(header::AUTHORIZATION);
        let extensions = request.extensions_mut();
        extensions.insert(proven.identity().clone());
        extensions.insert(proven);
        Ok(())
    }

    /// They do not keep a connection that somebody else could have, however they are answered.
    fn stranger(&self) -> Problem {
        match self.limits.stranger() {
            Ok(()) => Problem::from(Unauthenticated),
            Err(over) => Problem::from(over).and_close(),
        }
    }

    /// What could not be read may still be written down, but not for those who may not write there: they
    /// are told so, as they would be if it could be read.
    pub fn judge_malformed(&self, access: &Access, answer: Response) -> Response {
        let refused = answer.extensions().get::<Reported>().map(Reported::refused);
        let Some(Err(denied)) = refused.map(|refused| access.malformed(&refused)) else {
            return answer;
        };
        let problem = Problem::from(denied);
        let closes = answer.headers().contains_key(header::CONNECTION);
        if closes { problem.and_close() } else { problem }.into_response()
    }

    /// An answer counts until its client has taken it.
    pub fn weigh(&self, answer: Response, who: Option<&Identity>, may_refuse: bool) -> Response {
        weighed::outgoing(answer, &self.limits, who, may_refuse)
            .unwrap_or_else(|over| Problem::from(over).into_response())
    }

    /// Whether there is room for one more. Where requests have no limits, that costs a look.
    fn admit(&self, request: &Request) -> Result<(), Problem> {
        if !self.limits.concern_requests() {
            return Ok(());
        }
        let extensions = request.extensions();
        let who = extensions.get::<Identity>();
        if let (Some(who), Some(line)) = (who, extensions.get::<Line>()) {
            line.belongs_to(who, &self.limits).map_err(|over| Problem::from(over).and_close())?;
        }
        Ok(self.limits.request(who)?)
    }

    /// Counts who was turned away, and why.
    pub fn count(&self, problem: Option<Kind>) {
        let reason = match problem {
            Some(Kind::Unauthenticated) => TurnedAway::Unauthenticated,
            Some(Kind::Forbidden) => TurnedAway::Forbidden,
            _ => return,
        };
        self.metrics.access.turned_away[reason].inc();
    }
}

impl From<Unauthenticated> for Problem {
    fn from(Unauthenticated: Unauthenticated) -> Self {
        let detail = "say who you are: Authorization: Bearer with a good token, or a client \
                      certificate, whichever this server takes";
        // Strangers do not keep a connection that somebody else could have.
        Self::new(Kind::Unauthenticated, detail).and_close()
    }
}
