//! A connection, and whose it is: that of whoever asked over it last.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Limits, OverLimit, Place};
use crate::{auth::Identity, metrics::Limited};

/// Goes with every request of a connection, where connections are counted by identity.
#[derive(Clone, Default)]
pub struct Line(Arc<Mutex<Option<(Identity, Place)>>>);

impl Line {
    /// Counts the connection as theirs, unless it is already.
    pub fn belongs_to(&self, who: &Identity, limits: &Limits) -> Result<(), OverLimit> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.as_ref().is_none_or(|(owner, _)| owner != who) {
            *taken = Some((who.clone(), limits.place(Limited::Connections, Some(who))?));
        }
        Ok(())
    }
}
