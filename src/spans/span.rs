//! One step of a trace.

use std::{
    borrow::Cow,
    time::{Instant, SystemTime},
};

use crate::trace::{SpanId, TraceId};

/// By which a step is named from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: TraceId,
    pub span: SpanId,
}

/// A traced request that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub context: Context,
    pub since: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody asked us.
    Server,
    /// We asked somebody.
    Client,
    Internal,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    Number(i64),
    Text(Cow<'static, str>),
}

/// A finished step.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: Cow<'static, str>,
    pub kind: Kind,
    pub context: Context,
    pub parent: Option<SpanId>,
    /// Whether the parent is a step of another process.
    pub parent_is_remote: bool,
    pub start: SystemTime,
    pub end: SystemTime,
    pub attributes: Vec<(&'static str, Attribute)>,
    /// Steps that belong together with this one, in this trace or another.
    pub links: Vec<Context>,
    /// Whether it is to be shown as an error. A refusal is none.
    pub failed: bool,
}

impl Span {
    /// A part of `parent` that ends now.
    pub fn inside(parent: Context, name: &'static str, start: SystemTime) -> Self {
        let context = Context { trace: parent.trace, span: SpanId::random() };
        Self {
            parent: Some(parent.span),
            parent_is_remote: false,
            ..Self::alone(name.into(), Kind::Internal, context, start)
        }
    }

    /// One that ends now, and has no parent yet.
    pub fn alone(name: Cow<'static, str>, kind: Kind, context: Context, start: SystemTime) -> Self {
        Self {
            name,
            kind,
            context,
            parent: None,
            parent_is_remote: false,
            start,
            // A clock that was set back must not make it end before it began.
            end: now().max(start),
            attributes: Vec::new(),
            links: Vec::new(),
            failed: false,
        }
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&'static str> for Attribute {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

/// Collectors want to know when, by the calendar.
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// The same for what was measured otherwise.
pub fn calendar(instant: Instant) -> SystemTime {
    let now = now();
    now.checked_sub(instant.elapsed()).unwrap_or(now)
}
