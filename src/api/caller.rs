//! Who asks: for the record of rejections, and for nothing else.

use std::sync::Arc;

use axum::{
    extract::Request,
    http::{Extensions, HeaderMap, HeaderName, header},
};

use super::{
    FENCING_CLIENT,
    named::{Name, Named},
};
use crate::{
    rejections::Caller,
    server::Peer,
    spans::Step,
    trace::{TraceId, TraceParent},
};

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// As the request says it, before anybody has judged whether it is valid.
pub fn of_request(
    request: &Request,
    named: Named,
    trace: Option<TraceId>,
    step: Option<Step>,
) -> Arc<Caller> {
    let headers = request.headers();
    let of = |name, header| named.has(name).then(|| text(headers, header)).flatten();
    let said = of(Name::Client, &FENCING_CLIENT).or_else(|| of(Name::Agent, &header::USER_AGENT));
    Arc::new(Caller {
        client: said.map(|said| up_to(said, Caller::MAX_CLIENT_BYTES).into()),
        peer: request.extensions().get::<Peer>().map(|Peer(address)| *address),
        identity: request.extensions().get().cloned(),
        trace,
        step,
    })
}

/// What the middleware has left for the handlers.
pub fn of(extensions: &Extensions) -> Arc<Caller> {
    extensions.get().cloned().unwrap_or_default()
}

/// `None` if there is none, or more than one, or one that is not as the standard has it.
pub fn trace_parent(headers: &HeaderMap, named: Named) -> Option<TraceParent> {
    if !named.has(Name::Trace) {
        return None;
    }
    let mut values = headers.get_all(TRACEPARENT).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    TraceParent::parse(value.to_str().ok()?)
}

/// What is not UTF-8 cannot be shown.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let text = std::str::from_utf8(headers.get(name)?.as_bytes()).ok()?;
    (!text.is_empty()).then_some(text)
}

fn up_to(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
