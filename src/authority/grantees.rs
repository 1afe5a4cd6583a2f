//! To whom a grant was given, where those who ask prove who they are.
//!
//! The identity is kept with the grant itself, in etcd or in the lock table, so every fencepost can
//! tell. It never changes: so it may be looked at before whatever depends on it, and remembered. A
//! grant without one was not made for anybody who is known: by `etcdctl`, or before authentication
//! was switched on. It belongs to nobody here.

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::{Authority, AuthorityError};
use crate::{
    auth::Identity,
    token::{Key, Token},
};

/// Grants that are remembered, to save questions.
const REMEMBERED: usize = 16_384;

pub struct Grantees {
    authority: Arc<dyn Authority>,
    known: Cache<(Key, Token), Identity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    ToThem,
    NotToThem,
    /// That grant does not hold the lock, and whose it was is not remembered here.
    Unknown,
}

impl Grantees {
    pub fn new(authority: Arc<dyn Authority>) -> Self {
        Self { authority, known: Cache::new(REMEMBERED) }
    }

    pub fn learn(&self, name: &Key, token: Token, identity: Identity) {
        self.known.insert((name.clone(), token), identity);
    }

    /// Costs a question to the lock service if the grant is not known here yet.
    pub async fn belongs(
        &self,
        name: &Key,
        token: Token,
        who: &Identity,
    ) -> Result<Belongs, AuthorityError> {
        if let Some(identity) = self.known.get(&(name.clone(), token)) {
            return Ok(Self::same(&identity, who));
        }
        let state = self.authority.inspect(name).await?;
        if state.holder.is_none_or(|holder| holder.token != token) {
            return Ok(Belongs::Unknown);
        }
        let Some(identity) = state.granted_to else { return Ok(Belongs::NotToThem) };
        let belongs = Self::same(&identity, who);
        self.learn(name, token, identity);
        Ok(belongs)
    }

    fn same(identity: &Identity, who: &Identity) -> Belongs {
        if identity == who { Belongs::ToThem } else { Belongs::NotToThem }
    }
}
