//! Before anything else is looked at: whether the request can mean only one thing, who sends it, and
//! whether there is room for one more of theirs.
//! It makes no difference what it asks for. Nothing on the public listener is open to strangers, so
//! there is no path, no method and no header that could lead past this.

use std::sync::Arc;

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, header},
};

use super::{
    problem::{Kind, Problem},
    refuse_ambiguity,
};
use crate::{
    auth::{
        Identity, Unauthenticated,
        gate::{Certified, Proven, SharedGate},
    },
    limits::{Limits, Line},
    metrics::{Metrics, TurnedAway},
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What the outermost layer of the public listener knows.
pub struct Door {
    pub metrics: Arc<Metrics>,
    pub gate: SharedGate,
    pub limits: Arc<Limits>,
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
        let Some(gate) = &self.gate else { return refuse_other_sites(request) };
        let headers = request.headers();
        let authorization =
            headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        let certified = request.extensions().get::<Certified>();
        let proven: Proven = gate.admit(authorization, certified).await?;
        // What comes after this has no business with it, and may write it to a log.
        request.headers_mut().remove(header::AUTHORIZATION);
        let extensions = request.extensions_mut();
        extensions.insert(proven.identity.clone());
        extensions.insert(proven);
        Ok(())
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

/// Where nobody has to prove anything, a page from anywhere could have its reader's browser ask for locks
/// here. Browsers say so; nobody else sends this header.
fn refuse_other_sites(request: &Request) -> Result<(), Problem> {
    let site = request.headers().get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    if matches!(site, Some(b"cross-site" | b"same-site")) {
        let detail = "a page of another site has sent this, and this is not for browsers";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    Ok(())
}

impl From<Unauthenticated> for Problem {
    fn from(Unauthenticated: Unauthenticated) -> Self {
        let detail = "say who you are: Authorization: Bearer with a good token, or a client \
                      certificate, whichever this server takes";
        // Strangers do not keep a connection that somebody else could have.
        Self::new(Kind::Unauthenticated, detail).and_close()
    }
}
