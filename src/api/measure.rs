//! Counts what only the API sees: reads, and writes that the parser refused. What becomes of a
//! well-formed write is counted by the engine, whether its client still waits for it or not.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{problem::Kind, refuse_ambiguity};
use crate::metrics::{BadInput, Metrics, Op, ReadOutcome};

enum Asked {
    Write(Op),
    Read,
}

pub async fn measure(
    State(metrics): State<Arc<Metrics>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let asked = path.and_then(|path| Asked::by(request.method(), path.as_str()));
    let since = Instant::now();
    let response = match refuse_ambiguity(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let problem = response.extensions().get::<Kind>().copied();
    match asked {
        Some(Asked::Write(op)) => {
            if let Some(reason) = problem.and_then(bad_input) {
                metrics.writes.malformed(op, reason);
            }
        }
        Some(Asked::Read) => {
            let outcome = read_outcome(problem);
            metrics.read_duration[outcome].observe(since.elapsed().as_secs_f64());
        }
        None => {}
    }
    response
}

impl Asked {
    /// `None` for what is neither: locks, the OpenAPI document.
    fn by(method: &Method, route: &str) -> Option<Self> {
        let resource = route.starts_with("/v1/resources");
        let mark = route.starts_with("/v1/marks");
        match *method {
            Method::GET | Method::HEAD if resource || mark => Some(Self::Read),
            Method::PUT if resource => Some(Self::Write(Op::Put)),
            Method::DELETE if resource => Some(Self::Write(Op::Delete)),
            Method::PUT if mark => Some(Self::Write(Op::Claim)),
            Method::POST if route == "/v1/batch" => Some(Self::Write(Op::Batch)),
            _ => None,
        }
    }
}

/// `None` for what is not about the form of a write; the engine has counted that.
fn bad_input(problem: Kind) -> Option<BadInput> {
    match problem {
        Kind::InvalidToken => Some(BadInput::InvalidToken),
        Kind::InvalidSeq => Some(BadInput::InvalidSeq),
        Kind::InvalidKey => Some(BadInput::InvalidKey),
        Kind::InvalidRequest => Some(BadInput::InvalidRequest),
        Kind::TokenRequired => Some(BadInput::TokenRequired),
        Kind::TooLarge => Some(BadInput::TooLarge),
        Kind::RequestTimeout => Some(BadInput::RequestTimeout),
        Kind::UnsupportedMediaType => Some(BadInput::UnsupportedMediaType),
        Kind::StaleToken
        | Kind::OutOfOrder
        | Kind::VersionMismatch
        | Kind::SeqReused
        | Kind::UnissuedToken
        | Kind::Overloaded
        | Kind::StoreUnavailable
        | Kind::AuthorityUnavailable
        | Kind::ShuttingDown
        | Kind::OutcomeUnknown
        | Kind::NotFound
        | Kind::MethodNotAllowed
        | Kind::NotAcceptable
        | Kind::LockLost
        | Kind::LockHeld => None,
    }
}

fn read_outcome(problem: Option<Kind>) -> ReadOutcome {
    match problem {
        // That there is no value is an answer.
        None | Some(Kind::NotFound) => ReadOutcome::Answered,
        Some(
            Kind::Overloaded
            | Kind::StoreUnavailable
            | Kind::AuthorityUnavailable
            | Kind::ShuttingDown
            | Kind::OutcomeUnknown,
        ) => ReadOutcome::Failed,
        Some(_) => ReadOutcome::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fence::Refusal, metrics::Label};

    #[test]
    fn a_reason_is_the_type_of_its_problem() {
        for kind in Kind::ALL {
            if let Some(reason) = bad_input(kind) {
                assert_eq!(reason.name(), kind.name());
            }
        }
        for refusal in Refusal::ALL {
            assert_eq!(refusal.name(), Kind::of(*refusal).name());
        }
    }
}
