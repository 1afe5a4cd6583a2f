//! Before anything else is looked at: whether the request can mean only one thing, who sends it, and
//! whether there is room for one more of theirs.
//! It makes no difference what it asks for. Nothing on the public listener is open to strangers, so
//! there is no path, no method and no header that could lead past this.

use std::sync::Arc;

use axum::{
    extract::Request,
    http::{HeaderValue, header},
    response::Response,
};

use super::{
    browsers,
    named::{Name, Named},
    problem::{Kind, Problem},
    refuse_ambiguity, weighed,
};
use crate::{
    auth::{
        Access, Identity, Unauthenticated, Way,
        gate::{Certified, SharedGate},
    },
    limits::{Limits, Line},
    metrics::{Metrics, TurnedAway},
    server::Guest,
};

/// What the outermost layer of the public listener knows.
pub struct Door {
    pub metrics: Arc<Metrics>,
    pub gate: SharedGate,
    pub limits: Arc<Limits>,
    /// Whether nobody but this machine can ask.
    pub on_loopback: bool,
}

/// What a request is for: it says what has been done once there is an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    Read,
    FencedRead,
    Write,
}

impl Asking {
    pub fn by(request: &Request, named: Named) -> Self {
        match request.method().is_safe() {
            false => Self::Write,
            true if named.has(Name::Token) => Self::FencedRead,
            true => Self::Read,
        }
    }
}

impl Door {
    /// Leaves the identity in the request's extensions, where authentication is on.
    pub async fn pass(&self, request: &mut Request, named: Named) -> Result<(), Problem> {
        // First of all, so that strangers leave no traces, such as a malformed write in the record.
        self.prove(request, named).await?;
        refuse_ambiguity(request, named)?;
        self.admit(request)
    }

    async fn prove(&self, request: &mut Request, named: Named) -> Result<(), Problem> {
        let Some(gate) = &self.gate else {
            browsers::refuse_pages(request, named, self.on_loopback)?;
            welcome(request);
            return Ok(());
        };
        let headers = request.headers();
        let authorization =
            headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        let certified = request.extensions().get::<Certified>();
        let Ok(proven) = gate.admit(authorization, certified).await else {
            return Err(self.stranger());
        };
        if proven.proof.way == Way::Certificate {
            // A browser shows it by itself, whichever page has sent the request.
            browsers::refuse_pages(request, named, false)?;
        }
        welcome(request);
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
    pub fn judge_malformed(&self, access: &Access, problem: Problem) -> Problem {
        match access.malformed(&problem.of_write()) {
            Ok(_) => problem,
            Err(denied) if problem.closes() => Problem::from(denied).and_close(),
            Err(denied) => Problem::from(denied),
        }
    }

    /// An answer counts until its client has taken it. That of a write is given in any case: the client
    /// must hear what has been done.
    pub fn weigh(
        &self,
        answer: Response,
        who: Option<&Identity>,
        asked: Asking,
    ) -> Result<Response, Problem> {
        let may_refuse = asked != Asking::Write;
        let weighed = weighed::outgoing(answer, &self.limits, who, may_refuse);
        weighed.map_err(|over| match asked {
            Asking::FencedRead => Problem::claimed_but_over(over),
            Asking::Read | Asking::Write => Problem::from(over),
        })
    }

    /// Whether strangers are asked who they are, and this is one.
    pub fn has_a_stranger(&self, request: &Request) -> bool {
        self.gate.is_some() && request.extensions().get::<Identity>().is_none()
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

/// Their connection stays, whatever others on it are told.
fn welcome(request: &Request) {
    if let Some(guest) = request.extensions().get::<Arc<Guest>>() {
        guest.was_welcome();
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
