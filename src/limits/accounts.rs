//! An account for each identity that has something in use, or had lately.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use super::{Account, Bounds};
use crate::auth::Identity;

/// Identities whose accounts are kept. Beyond that those that use nothing are forgotten; and if all
/// do use something, the rest share one.
const KEPT: usize = 10_000;

pub struct Accounts {
    bounds: Bounds,
    most: usize,
    by_identity: RwLock<HashMap<Identity, Arc<Account>>>,
    shared: Arc<Account>,
}

impl Accounts {
    pub fn new(bounds: Bounds) -> Self {
        Self::up_to(KEPT, bounds)
    }

    pub(super) fn up_to(most: usize, bounds: Bounds) -> Self {
        let shared = Arc::new(Account::new(bounds));
        Self { bounds, most, by_identity: RwLock::default(), shared }
    }

    pub fn concern_requests(&self) -> bool {
        self.bounds.requests_per_second > 0 || self.concern_lines()
    }

    pub fn concern_lines(&self) -> bool {
        self.bounds.connections > 0
    }

    pub fn of(&self, who: &Identity) -> Arc<Account> {
        let known = self.by_identity.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = known.get(who) {
            return account.clone();
        }
        drop(known);
        let mut accounts = self.by_identity.write().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= self.most && !accounts.contains_key(who) {
            // One that somebody has in hand is about to be used.
            accounts.retain(|_, account| account.is_in_use() || Arc::strong_count(account) > 1);
            if accounts.len() >= self.most {
                return self.shared.clone();
            }
        }
        let account = accounts.entry(who.clone());
        account.or_insert_with(|| Arc::new(Account::new(self.bounds))).clone()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_identity.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
