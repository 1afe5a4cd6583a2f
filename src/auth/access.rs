//! What somebody may do: the one place where a request is allowed or forbidden.
//!
//! The engine and the locks are handed out for a [`Permit`] only, and only the questions below make
//! one. So a handler that forgets to ask does not compile. The answer depends on the identity, the
//! policy and the names in the request, never on what is stored under them.

use std::sync::Arc;

use axum::http::Extensions;

use super::{
    Gate, Identity,
    gate::{Proven, SharedGate},
    identity::Proof,
    policy::Right,
};
use crate::{rejections::Refused, token::Key, write::Write};

/// Proof that somebody has asked whether this is allowed.
pub struct Permit(());

/// Forbidden, whether or not there is such a key.
#[derive(Debug)]
pub struct Denied;

/// Put into a request's extensions by the admin listener, for whoever it lets into its operators'
/// area. Nothing that comes over the network can make one.
#[derive(Clone, Copy)]
pub struct Operator;

/// What one request may do.
#[derive(Clone)]
pub enum Access {
    /// Authentication is off, or it is an operator.
    Everything,
    Nothing,
    As(Arc<Gate>, Proven),
}

/// What a stream goes on looking at.
#[derive(Clone, Debug)]
pub enum Subject {
    Key(Key),
    Everything,
}

impl Access {
    pub fn of(gate: &SharedGate, extensions: &Extensions) -> Self {
        let Some(gate) = gate else { return Self::Everything };
        if extensions.get::<Operator>().is_some() {
            return Self::Everything;
        }
        match extensions.get::<Proven>() {
            Some(proven) => Self::As(gate.clone(), proven.clone()),
            // The gate lets nobody pass without one.
            None => Self::Nothing,
        }
    }

    /// Whose locks these are. `None` where authentication is off.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::As(_, proven) => Some(proven.identity()),
            Self::Everything | Self::Nothing => None,
        }
    }

    /// To look at a value, a mark or a lock.
    pub fn read(&self, key: &Key) -> Result<Permit, Denied> {
        self.key(Right::Read, key)
    }

    /// To write, delete or claim; under a scope, its mark rises too.
    pub fn write(&self, write: &Write) -> Result<Permit, Denied> {
        for key in std::iter::once(&write.key).chain(&write.scope) {
            self.key(Right::Write, key)?;
        }
        Ok(Permit(()))
    }

    /// To have something written down of a write that could not be read to its end: as for the write,
    /// as far as it is known.
    pub fn malformed(&self, refused: &Refused) -> Result<Permit, Denied> {
        for key in refused.key.iter().chain(&refused.scope) {
            self.key(Right::Write, key)?;
        }
        self.judge(|gate, who| gate.allows_some(who, Right::Write))
    }

    /// To read with a token, which claims.
    pub fn fenced_read(&self, claim: &Write) -> Result<Permit, Denied> {
        self.read(&claim.key)?;
        self.write(claim)
    }

    /// All of them, or else the place of the first that is forbidden.
    pub fn batch(&self, writes: &[Write]) -> Result<Permit, (usize, Denied)> {
        for (index, write) in writes.iter().enumerate() {
            self.write(write).map_err(|denied| (index, denied))?;
        }
        Ok(Permit(()))
    }

    /// To take, keep and release a lock. Its claim raises the mark of the key with its name: that is
    /// what a lock is, and takes no other right.
    pub fn lock(&self, name: &Key) -> Result<Permit, Denied> {
        self.key(Right::Lock, name)
    }

    /// The same after a wait: the policy may have changed meanwhile, or the token been taken away.
    pub fn still_lock(&self, name: &Key) -> Result<(), Denied> {
        let Self::As(gate, proven) = self else { return self.lock(name).map(drop) };
        if gate.still_knows(proven) { self.lock(name).map(drop) } else { Err(Denied) }
    }

    /// To see which keys or locks there are that start like this.
    pub fn list(&self, prefix: &str) -> Result<Permit, Denied> {
        self.prefix(Right::Read, prefix)
    }

    /// To see what was refused: of one key, or of all.
    pub fn rejections(&self, key: Option<&Key>) -> Result<Permit, Denied> {
        match key {
            Some(key) => self.key(Right::Admin, key),
            None => self.prefix(Right::Admin, ""),
        }
    }

    /// Returns when the right to go on is lost: the policy has changed, or the token was taken away.
    pub async fn lost(self, right: Right, subject: Subject) {
        let Self::As(gate, proven) = &self else { return std::future::pending().await };
        loop {
            // Made before the question, so that no change slips in between.
            let changed = gate.changed();
            let allowed = match &subject {
                Subject::Key(key) => self.key(right, key),
                Subject::Everything => self.prefix(right, ""),
            };
            if allowed.is_err() || !gate.still_knows(proven) {
                return;
            }
            changed.await;
        }
    }

    fn key(&self, right: Right, key: &Key) -> Result<Permit, Denied> {
        self.judge(|gate, who| gate.allows_key(who, right, key.as_str()))
    }

    fn prefix(&self, right: Right, prefix: &str) -> Result<Permit, Denied> {
        self.judge(|gate, who| gate.allows_prefix(who, right, prefix))
    }

    fn judge(&self, allows: impl FnOnce(&Gate, &Proof) -> bool) -> Result<Permit, Denied> {
        match self {
            Self::Everything => Ok(Permit(())),
            Self::As(gate, proven) if allows(gate, &proven.proof) => Ok(Permit(())),
            Self::As(..) | Self::Nothing => Err(Denied),
        }
    }
}
