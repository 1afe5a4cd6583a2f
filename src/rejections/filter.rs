//! Which rejections somebody wants to see.

use std::time::SystemTime;

use super::Entry;
use crate::{metrics::Reason, token::Key};

/// What is `None` does not matter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub key: Option<Key>,
    pub reason: Option<Reason>,
    /// Not before this.
    pub since: Option<SystemTime>,
}

impl Filter {
    pub fn takes(&self, entry: &Entry) -> bool {
        let rejection = &entry.rejection;
        self.key.as_ref().is_none_or(|key| rejection.refused.key.as_ref() == Some(key))
            && self.reason.is_none_or(|reason| rejection.reason == reason)
            && self.since.is_none_or(|since| rejection.at >= since)
    }
}
