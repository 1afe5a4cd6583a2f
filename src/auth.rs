//! Who asks, and what they may touch.
//!
//! | file | |
//! |---|---|
//! | `gate.rs` | who: the one place where credentials are looked at |
//! | `tokens.rs`, `certificate.rs`, `jwt.rs` | the three ways to prove it |
//! | `access.rs` | what: the one place where a request is allowed or forbidden |
//! | `policy.rs`, `pattern.rs` | the rules it goes by |
//! | `watched.rs` | files that may change while they are in use |
//!
//! What must stay true: an [`Identity`] is only made from a proof, never from what a client says of
//! itself; nothing is reached without a [`Permit`], and only [`Access`] hands them out; and neither
//! knows what is in the store, so that a refusal tells nothing of it.

pub mod access;
pub mod certificate;
#[cfg(test)]
mod fuzz;
pub mod gate;
mod identity;
pub mod jwt;
pub mod pattern;
pub mod policy;
pub mod tokens;
pub mod watched;

pub use self::{
    access::{Access, Denied, Operator, Permit},
    gate::{Gate, Unauthenticated},
    identity::{Identity, Way},
};
