//! Who was granted which token, as far as this process has seen: so that a rejection can name
//! whoever overtook it without asking anybody.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::Entry;
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

    /// The same entry, with the owner of the grant that overtook it, if that has become known.
    pub fn complete(&self, entry: Arc<Entry>) -> Arc<Entry> {
        if entry.overtaken_by.is_some() {
            return entry;
        }
        let owner = entry.rejection.overtaken_at().and_then(|token| self.of(token));
        match owner {
            None => entry,
            Some(_) => Arc::new(Entry { overtaken_by: owner, ..Entry::clone(&entry) }),
        }
    }

    pub fn of(&self, token: i64) -> Option<Arc<str>> {
        self.by_token.get(&token)
    }
}
