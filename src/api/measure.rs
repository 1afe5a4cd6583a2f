//! Counts what only the API sees: reads, and writes that the parser refused. What becomes of a
//! well-formed write is counted by the engine, whether its client still waits for it or not; who
//! asked for it goes with it.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method},
    response::{IntoResponse, Response},
};

use super::{
    Api, Door,
    caller::{self, TRACEPARENT},
    door::Asking,
    named::{Name, Named},
    problem::{Kind, Problem},
    render,
    route::{self, Route},
    visit::Visit,
};
use crate::{
    auth::Access,
    metrics::{BadInput, Op, ReadOutcome},
    trace::{SpanId, TraceParent},
};

#[derive(Clone, Copy)]
enum Asked {
    Write(Op),
    Read,
}

pub async fn measure(door: &Door, api: &Api, mut request: Request) -> Response {
    let route = Route::of(request.uri().path());
    let asked = route.and_then(|route| Asked::by(request.method(), route));
    let since = Instant::now();
    let named = Named::among(request.headers());
    // First of all: whose request it is goes with it from here on.
    let passed = door.pass(&mut request, named).await;
    // A stranger does not say what is traced.
    let stranger = door.has_a_stranger(&request);
    let parent = caller::trace_parent(request.headers(), named).filter(|_| !stranger);
    let visit =
        door.metrics.spans.as_ref().and_then(|spans| Visit::begin(spans, parent, route, &request));
    let mut caller = Arc::default();
    if matches!(asked, Some(Asked::Write(_))) || named.has(Name::Token) {
        let trace = visit.as_ref().map(Visit::trace).or(parent.map(|parent| parent.trace));
        caller = caller::of_request(&request, named, trace, visit.as_ref().map(Visit::step));
        request.extensions_mut().insert(caller.clone());
    }
    let access = Access::of(&door.gate, request.extensions());
    let asking = Asking::by(&request, named);
    let is_head = request.method() == Method::HEAD;
    let mut answer = match passed {
        Ok(()) => route::answer(api, route, request, named).await,
        Err(problem) => Err(problem),
    };
    let mut malformed = None;
    if let Some(Asked::Write(op)) = asked {
        answer = answer.map_err(|problem| match bad_input(problem.kind()) {
            Some(_) => door.judge_malformed(&access, problem),
            None => problem,
        });
        malformed = answer.as_ref().err().and_then(|problem| {
            let reason = bad_input(problem.kind())?;
            Some((op, reason, problem.of_write()))
        });
    }
    let mut problem = answer.as_ref().err().map(Problem::kind);
    let answer = answer.unwrap_or_else(Problem::into_response);
    let weighed = door.weigh(answer, access.identity(), asking);
    let mut response = weighed.unwrap_or_else(|over| {
        problem = Some(over.kind());
        over.into_response()
    });
    if is_head {
        response = render::without_body(response);
    }
    door.count(problem);
    let metrics = &door.metrics;
    if let Some((op, reason, refused)) = malformed {
        if let Some(spans) = &metrics.spans {
            spans.parsed(&caller);
        }
        metrics.writes.malformed(op, reason, refused, caller);
    }
    if let Some(Asked::Read) = asked {
        let outcome = read_outcome(problem);
        metrics.read_duration[outcome].observe(since.elapsed().as_secs_f64());
    }
    let here = visit.as_ref().map(Visit::trace_parent);
    if let Some(here) = here.or(parent.map(a_step_of_our_own)) {
        pass_on(here, response.headers_mut());
    }
    if let Some(visit) = visit {
        visit.answered(&response, problem);
    }
    // Last of all: a client that hangs up now has been counted.
    if problem.is_some() {
        give_way().await;
    }
    response
}

/// Who was turned away is told so after everybody else who is there has been heard. A flood of them then
/// does not hold up those who do work; and their answers, which leave one right after the other, find
/// clients that are awake: a quarter more of them a second.
async fn give_way() {
    tokio::task::yield_now().await;
}

fn a_step_of_our_own(parent: TraceParent) -> TraceParent {
    TraceParent { span: SpanId::random(), ..parent }
}

/// The trace goes on: whoever sees the answer can name our step.
fn pass_on(here: TraceParent, headers: &mut HeaderMap) {
    if let Ok(value) = HeaderValue::try_from(here.to_string()) {
        headers.insert(TRACEPARENT, value);
    }
}

impl Asked {
    /// `None` for what is neither: locks, the OpenAPI document.
    fn by(method: &Method, route: Route) -> Option<Self> {
        match (route, method) {
            (Route::Resource, &Method::PUT) => Some(Self::Write(Op::Put)),
            (Route::Resource, &Method::DELETE) => Some(Self::Write(Op::Delete)),
            (Route::Mark, &Method::PUT) => Some(Self::Write(Op::Claim)),
            (Route::Batch, &Method::POST) => Some(Self::Write(Op::Batch)),
            (Route::Resource | Route::Resources | Route::Mark, &Method::GET | &Method::HEAD) => {
                Some(Self::Read)
            }
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
        // It says nothing about a token, and a flood of them would hide what does.
        | Kind::OverLimit
        | Kind::Overloaded
        | Kind::StoreUnavailable
        | Kind::StoreFull
        | Kind::AuthorityUnavailable
        | Kind::AuthorityMismatch
        | Kind::ShuttingDown
        | Kind::OutcomeUnknown
        | Kind::Unauthenticated
        | Kind::Forbidden
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
            | Kind::StoreFull
            | Kind::AuthorityUnavailable
            | Kind::AuthorityMismatch
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
