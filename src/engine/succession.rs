//! When another server has taken over from the one that was written to.
//!
//! A promoted standby may lack the last commits, and with them the last marks: whoever they had fenced
//! off could write again. So before the first use of a new connection the server is asked who it is. If
//! it is not the one that was written to last, the floor rises to the newest token that was issued, and
//! every holder must acquire again. What this process has itself seen committed counts as well: it may
//! have been the last to write to a server that others had left already.
//!
//! Where nobody grants locks here, each of them may have a counter of its own, and one floor for all would
//! fence off the quiet ones for ever. There the mark cache is all that remembers, and it is never cleared.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;

use super::marks::Marks;
use crate::{
    authority::Authority,
    store::{Lineage, Session, StoreError, Takeover},
};

/// Where tokens are issued by the very database that may have lost some, the next is higher by this and by a
/// random number that the database adds. No standby lags by four billion grants; and two databases that have
/// taken over from the same one, neither of which knows the other, must not issue the same tokens.
const LEAP: i64 = 1 << 32;

pub struct Succession {
    authority: OnceLock<Arc<dyn Authority>>,
    marks: Arc<Marks>,
    /// The server that this process has written to last.
    served: Mutex<Option<String>>,
}

impl Succession {
    pub fn new(marks: Arc<Marks>) -> Self {
        Self { authority: OnceLock::new(), marks, served: Mutex::default() }
    }

    /// Who is asked for the newest token.
    pub fn consult(&self, authority: Arc<dyn Authority>) {
        let _ = self.authority.set(authority);
    }

    /// The highest token that this process has seen committed, if all come from one counter.
    fn seen(&self) -> i64 {
        self.authority.get().map_or(0, |_| self.marks.highest())
    }

    /// The newest token that can have been issued, and how far the next must leap.
    async fn newest(&self) -> Result<(i64, i64), StoreError> {
        let Some(authority) = self.authority.get() else { return Ok((0, 0)) };
        if authority.forgets_with_the_store() {
            return Ok((authority.newest_known(), LEAP));
        }
        let newest = authority.newest().await.map_err(|error| {
            let reason = "another server has taken over, and the authority does not say which tokens were issued";
            StoreError::Unavailable(format!("{reason}: {error}"))
        })?;
        Ok((newest, 0))
    }
}

#[async_trait]
impl Takeover for Succession {
    async fn settle(&self, session: &mut dyn Session) -> Result<(), StoreError> {
        // Complete: since this session was opened, nothing from an older server is believed. And no mark that
        // another session learns from this server meanwhile is taken for one of the old server.
        let seen = self.seen();
        let Lineage { here, recorded, entered } = session.lineage().await?;
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known_here = served.as_ref().is_none_or(|served| *served == here);
        let entered_here = recorded.is_none() || entered;
        if !known_here || !entered_here {
            tracing::warn!(
                before = recorded.as_deref().or(served.as_deref()), %here,
                "another database server has taken over, and may have forgotten marks"
            );
        }
        match recorded {
            // Whatever was issued until now, by whomever.
            Some(_) if !entered_here => {
                let (newest, leap) = self.newest().await?;
                // Another session may have entered it meanwhile, and holders have acquired again since. They
                // keep their locks: only what this process saw before the takeover still counts.
                let entered_since = session.lineage().await?.entered;
                let (newest, leap) = if entered_since { (0, 0) } else { (newest, leap) };
                let floor = session.take_over(newest.max(seen), leap).await?;
                if self.authority.get().is_some() {
                    tracing::warn!(floor, "every holder must acquire again");
                } else {
                    tracing::error!(
                        "which tokens were issued is not known here; run `fencepost floor raise TOKEN`"
                    );
                }
            }
            // Somebody else has entered it, and may not know what we have seen.
            Some(_) if !known_here => {
                session.take_over(seen, 0).await?;
            }
            Some(_) => {}
            // A database that has never been asked.
            None => {
                session.take_over(if known_here { 0 } else { seen }, 0).await?;
            }
        }
        // Asked under the lock: whoever settles on the newer server enters it after this.
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if !session.is_deposed() {
            *served = Some(here);
        }
        Ok(())
    }
}
