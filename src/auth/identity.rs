//! The name under which somebody has proved who they are.

use std::{fmt, sync::Arc};

/// Found in a request's extensions once its credentials were good; never built from what a client
/// merely says of itself. Where authentication is off, no request has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
