//! Who was granted which token, as far as this process has seen: so that a rejection can name
//! whoever overtook it without asking anybody.

use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::token::Token;

/// Enough for every lock that is likely to be fought over.
const REMEMBERED: usize = 10_000;

/// A token is granted once, so its owner never changes.
pub struct Owners {
    by_token: Cache<i64, Arc<str>>,
}

impl Default for Owners {
    fn default() -> Self {
        Self { by_token: Cache::new(REMEMBERED) }
    }
}

impl Owners {
    /// `owner` may be empty: then nobody has said.
    pub fn learn(&self, token: Token, owner: &str) {
        if !owner.is_empty() {
            self.by_token.insert(token.get(), owner.into());
        }
    }

    pub fn of(&self, token: i64) -> Option<Arc<str>> {
        self.by_token.get(&token)
    }
}
