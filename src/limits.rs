//! How much may be asked for at a time: by each identity, and by all together.
//!
//! Where nobody proves who they are, only the total counts. An identity comes from a proven credential
//! and from nothing else, so nobody gets another allowance by giving another name.
//!
//! A refusal is one of [`OverLimit`], and is counted here. How many connections there may be in all is
//! the [`server`](crate::server)'s to say, before anybody has asked for anything.

mod account;
mod accounts;
mod line;
mod load;

use std::{sync::Arc, time::Duration};

use tokio::sync::OwnedSemaphorePermit;

use self::{account::Account, accounts::Accounts};
pub use self::{
    line::Line,
    load::{BATCHED, BATCHED_WRITE, LISTED_ROW, Load, SMALL, STORED, SharedLoad},
};
use crate::{
    auth::Identity,
    metrics::{Label, Limited, Metrics, Whose},
};

/// The most that there may be of each at a time. 0 is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    pub requests_per_second: u32,
    pub connections: u32,
    pub locks: u32,
    pub waiters: u32,
    pub streams: u32,
    /// Bytes of bodies.
    pub bodies: u64,
}

/// More than there may be. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {} is reached ({})", .limit.name(), .whose.name())]
pub struct OverLimit {
    pub limit: Limited,
    pub whose: Whose,
    /// When asking again makes sense.
    pub retry_after: Duration,
}

/// Counts for as long as it lives.
#[derive(Debug)]
pub struct Place {
    _in_total: Option<OwnedSemaphorePermit>,
    _of_the_identity: Option<OwnedSemaphorePermit>,
}

pub struct Limits {
    total: Arc<Account>,
    /// Where those who ask prove who they are.
    each: Option<Accounts>,
    /// Of those who have not proved it: their own, so that they take nothing from those who have.
    strangers: Account,
    metrics: Arc<Metrics>,
}

impl Limits {
    /// `each`: for every identity, where there are any.
    pub fn new(total: Bounds, each: Option<Bounds>, metrics: Arc<Metrics>) -> Self {
        // The server counts them.
        let total = Bounds { connections: 0, ..total };
        let strangers =
            Bounds { requests_per_second: total.requests_per_second, ..Bounds::default() };
        Self {
            total: Arc::new(Account::new(total)),
            each: each.map(Accounts::new),
            strangers: Account::new(strangers),
            metrics,
        }
    }

    /// Whether connections are counted for each identity.
    pub fn concern_lines(&self) -> bool {
        self.each.as_ref().is_some_and(Accounts::concern_lines)
    }

    /// Whether a mere request can be refused.
    pub fn concern_requests(&self) -> bool {
        self.total.counts_requests() || self.each.as_ref().is_some_and(Accounts::concern_requests)
    }

    /// One more request.
    pub fn request(&self, who: Option<&Identity>) -> Result<(), OverLimit> {
        let own = self.account_of(who).map_or(Ok(()), |account| account.request());
        own.map_err(|wait| self.refusal(Limited::Requests, Whose::Identity, wait))?;
        let total = self.total.request();
        total.map_err(|wait| self.refusal(Limited::Requests, Whose::Total, wait))
    }

    /// One more request of somebody who should have proved who they are, and has not.
    pub fn stranger(&self) -> Result<(), OverLimit> {
        let asked = self.strangers.request();
        asked.map_err(|wait| self.refusal(Limited::Requests, Whose::Strangers, wait))
    }

    /// A place for one more, until it is dropped.
    pub fn place(&self, limit: Limited, who: Option<&Identity>) -> Result<Place, OverLimit> {
        self.try_place(limit, who).map_err(|(whose, wait)| self.refusal(limit, whose, wait))
    }

    /// The same. Where there is none, `tidy` may find that some are no longer needed.
    pub fn place_after(
        &self,
        tidy: impl FnOnce(),
        limit: Limited,
        who: Option<&Identity>,
    ) -> Result<Place, OverLimit> {
        self.try_place(limit, who).or_else(|_| {
            tidy();
            self.place(limit, who)
        })
    }

    fn try_place(
        &self,
        limit: Limited,
        who: Option<&Identity>,
    ) -> Result<Place, (Whose, Duration)> {
        let own = self.account_of(who).map_or(Ok(None), |account| account.place(limit));
        let own = own.map_err(|wait| (Whose::Identity, wait))?;
        let total = self.total.place(limit).map_err(|wait| (Whose::Total, wait))?;
        Ok(Place { _in_total: total, _of_the_identity: own })
    }

    fn account_of(&self, who: Option<&Identity>) -> Option<Arc<Account>> {
        Some(self.each.as_ref()?.of(who?))
    }

    fn refusal(&self, limit: Limited, whose: Whose, retry_after: Duration) -> OverLimit {
        self.metrics.over_limit(limit, whose);
        OverLimit { limit, whose, retry_after }
    }
}

#[cfg(test)]
mod tests;
