//! Counts what only the API sees: reads, and writes that the parser refused. What becomes of a
//! well-formed write is counted by the engine, whether its client still waits for it or not; who
//! asked for it goes with it.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, Method},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    FENCING_TOKEN,
    caller::{self, TRACEPARENT},
    problem::{Kind, Reported},
    refuse_ambiguity,
};
use crate::{
    metrics::{BadInput, Metrics, Op, ReadOutcome},
    trace::{SpanId, TraceParent},
};

enum Asked {
    Write(Op),
    Read,
}

pub async fn measure(
    State(metrics): State<Arc<Metrics>>,
    path: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let asked = path.and_then(|path| Asked::by(request.method(), path.as_str()));
    let since = Instant::now();
    let mut caller = Arc::default();
    if matches!(asked, Some(Asked::Write(_))) || request.headers().contains_key(FENCING_TOKEN) {
        caller = caller::of_request(&request);
        request.extensions_mut().insert(caller.clone());
    }
    let parent = caller::trace_parent(request.headers());
    let mut response = match refuse_ambiguity(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let reported = response.extensions().get::<Reported>();
    let problem = reported.map(|reported| reported.kind);
    match asked {
        Some(Asked::Write(op)) => {
            if let Some(reported) = reported
                && let Some(reason) = bad_input(reported.kind)
            {
                metrics.writes.malformed(op, reason, reported.refused(), caller);
            }
        }
        Some(Asked::Read) => {
            let outcome = read_outcome(problem);
            metrics.read_duration[outcome].observe(since.elapsed().as_secs_f64());
        }
        None => {}
    }
    if let Some(parent) = parent {
        pass_on(parent, response.headers_mut());
    }
    response
}

/// The trace goes on, by a step of our own: whoever sees the answer can name it.
fn pass_on(parent: TraceParent, headers: &mut HeaderMap) {
    let here = TraceParent { span: SpanId::random(), ..parent };
    if let Ok(value) = HeaderValue::try_from(here.to_string()) {
        headers.insert(TRACEPARENT, value);
    }
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
