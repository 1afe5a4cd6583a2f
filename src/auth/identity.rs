//! The name under which somebody has proved who they are.

use std::{fmt, sync::Arc};

use serde::Deserialize;

/// Found in a request's extensions once its credentials were good; never built from what a client
/// merely says of itself. Where authentication is off, no request has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    /// Long enough for a SPIFFE ID or a service account, and short enough to be kept with a grant.
    pub const MAX_BYTES: usize = 1024;

    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// `None` for what could not be told apart from another name, or not be shown: control
    /// characters, space around it, nothing at all, or more than there is room for.
    pub fn checked(name: &str) -> Option<Self> {
        let fits = (1..=Self::MAX_BYTES).contains(&name.len());
        let plain = name.trim() == name && !name.contains(char::is_control);
        (fits && plain).then(|| Self::new(name))
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

/// By what somebody has proved who they are. Each gives its names by itself, so two may give the same
/// one to two who have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Token,
    Certificate,
    Jwt,
}

/// A name, and how it was come by.
#[derive(Clone, Debug)]
pub struct Proof {
    pub identity: Identity,
    pub way: Way,
}
