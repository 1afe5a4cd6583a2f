//! The span of a traced request: from its head to the head of its answer.
//!
//! It is recorded even if the client hangs up, which drops the request's future and this with it.

use std::sync::Arc;

use axum::{extract::Request, response::Response};

use super::{FENCING_MARK, FENCING_TOKEN, problem::Kind as ProblemKind, route::Route};
use crate::{
    server::Peer,
    spans::{Attribute, Kind, Span, Spans, Step},
    trace::{SpanId, TraceId, TraceParent},
};

/// Of what a client can make as long as it likes.
const MOST_BYTES: usize = 1024;

pub struct Visit {
    spans: Arc<Spans>,
    step: Step,
    parent: Option<SpanId>,
    name: String,
    attributes: Vec<(&'static str, Attribute)>,
    answer: Option<Answer>,
}

struct Answer {
    status: u16,
    problem: Option<&'static str>,
    mark: Option<i64>,
}

impl Visit {
    /// `None` if this request is not to be traced.
    pub fn begin(
        spans: &Arc<Spans>,
        parent: Option<TraceParent>,
        route: Option<Route>,
        request: &Request,
    ) -> Option<Self> {
        let step = spans.begin(parent)?;
        let route = route.map(Route::template);
        let method = request.method().as_str();
        let name = route.map_or(method.to_owned(), |route| format!("{method} {route}"));
        let mut attributes: Vec<(&'static str, Attribute)> = vec![
            ("http.request.method", method.to_owned().into()),
            ("url.path", up_to(request.uri().path()).into()),
        ];
        if let Some(route) = route {
            attributes.push(("http.route", route.to_owned().into()));
        }
        if let Some(Peer(peer)) = request.extensions().get() {
            attributes.push(("network.peer.address", peer.ip().to_string().into()));
            attributes.push(("network.peer.port", i64::from(peer.port()).into()));
        }
        let token = request.headers().get(FENCING_TOKEN).and_then(|token| token.to_str().ok());
        if let Some(token) = token.and_then(|token| token.parse::<i64>().ok()) {
            attributes.push(("fencepost.token", token.into()));
        }
        let parent = parent.map(|parent| parent.span);
        Some(Self { spans: spans.clone(), step, parent, name, attributes, answer: None })
    }

    pub fn step(&self) -> Step {
        self.step
    }

    pub fn trace(&self) -> TraceId {
        self.step.context.trace
    }

    /// By which others go on from here.
    pub fn trace_parent(&self) -> TraceParent {
        let context = self.step.context;
        TraceParent { trace: context.trace, span: context.span, sampled: true }
    }

    pub fn answered(mut self, response: &Response, problem: Option<ProblemKind>) {
        let mark = response.headers().get(FENCING_MARK).and_then(|mark| mark.to_str().ok());
        self.answer = Some(Answer {
            status: response.status().as_u16(),
            problem: problem.map(ProblemKind::name),
            mark: mark.and_then(|mark| mark.parse().ok()),
        });
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let (context, since) = (self.step.context, self.step.since);
        let name = std::mem::take(&mut self.name).into();
        let mut attributes = std::mem::take(&mut self.attributes);
        let mut failed = false;
        match &self.answer {
            None => attributes.push(("error.type", "client-gone".into())),
            Some(answer) => {
                attributes.push(("http.response.status_code", i64::from(answer.status).into()));
                attributes.extend(answer.mark.map(|mark| ("fencepost.mark", mark.into())));
                attributes.extend(answer.problem.map(|problem| ("error.type", problem.into())));
                failed = answer.status >= 500;
            }
        }
        self.spans.record(Span {
            parent: self.parent,
            parent_is_remote: true,
            attributes,
            failed,
            ..Span::alone(name, Kind::Server, context, since)
        });
    }
}

fn up_to(text: &str) -> String {
    text[..text.floor_char_boundary(MOST_BYTES)].to_owned()
}
