//! Which tokens above the mark are believed.
//!
//! Every check here may be made before the write is queued, and stays true while it waits: what has
//! been issued stays issued, and a mark that has reached a token never falls below it. A write under
//! a token that is known costs nothing: no question to the authority, no read.

use std::sync::Arc;

use async_trait::async_trait;

use super::{EngineError, marks::Marks};
use crate::{
    auth::Identity,
    authority::{Authority, Belongs, Grantees},
    fence::{Judgement, Refusal, Verdict},
    store::{Settled, Snapshot, Unit},
    token::{Key, Mark, Token},
    write::{Change, Write},
};

/// How far the word of a client is taken.
#[derive(Clone)]
pub enum Trust {
    /// Any token is believed.
    Open,
    /// A token that the authority cannot have issued yet is refused.
    Bounded(Arc<dyn Authority>),
    /// Only claims raise a mark, so a write must carry the very token that was granted for its
    /// scope; and a claim must carry the token that the authority says holds the lock.
    /// With authentication, also: only whom it was granted to can use a token.
    Granted(Arc<dyn Authority>, Option<Arc<Grantees>>),
}

/// What trust needs of the engine: the newest committed state of a key.
#[async_trait]
pub trait Reads: Sync {
    async fn snapshot(&self, key: &Key) -> Result<Snapshot, EngineError>;
}

impl Trust {
    /// `None` lets the unit pass on to the store, which has the last word.
    pub async fn refuse(
        &self,
        unit: &Unit,
        marks: &Marks,
        store: &dyn Reads,
    ) -> Result<Option<Settled>, EngineError> {
        for (index, write) in unit.writes().iter().enumerate() {
            let refused = match self {
                Self::Open => None,
                Self::Bounded(authority) => {
                    bounded(authority.as_ref(), write, marks, store).await?
                }
                Self::Granted(authority, grantees) => {
                    if let Some(grantees) = grantees {
                        let who = unit.caller().identity.as_ref();
                        must_be_theirs(grantees, write, who, store).await?;
                    }
                    granted(authority.as_ref(), write, marks, store).await?
                }
            };
            if let Some(judgement) = refused {
                return Ok(Some(Settled::Refused { index, judgement }));
            }
        }
        Ok(None)
    }
}

/// A token that was issued passes; and so does any other that raises no mark, wherever it came from.
async fn bounded(
    authority: &dyn Authority,
    write: &Write,
    marks: &Marks,
    store: &dyn Reads,
) -> Result<Option<Judgement>, EngineError> {
    let token = write.token;
    if marks.has_reached(&write.key, token) && marks.has_reached(guard_of(write), token) {
        return Ok(None);
    }
    let issued = issued(authority, token).await;
    if let Ok(true) = issued {
        return Ok(None);
    }
    let found = Found::by(write, store).await?;
    if found.is_stale(write) || (found.key.own >= token.get() && found.guard.own >= token.get()) {
        return Ok(None);
    }
    issued.map(|_| Some(found.unissued()))
}

/// Where the guard's mark has reached a token, somebody was granted it. To raise that mark takes a
/// claim by the very holder. Only then is the authority asked.
async fn granted(
    authority: &dyn Authority,
    write: &Write,
    marks: &Marks,
    store: &dyn Reads,
) -> Result<Option<Judgement>, EngineError> {
    if marks.has_reached(guard_of(write), write.token) {
        return Ok(None);
    }
    let found = Found::by(write, store).await?;
    if found.is_stale(write) || found.guard.own >= write.token.get() {
        return Ok(None);
    }
    if holds_what_it_claims(authority, write).await? {
        return Ok(None);
    }
    Ok(Some(found.unissued()))
}

/// A token that was read in a log is of no use to anybody else.
async fn must_be_theirs(
    grantees: &Grantees,
    write: &Write,
    who: Option<&Identity>,
    store: &dyn Reads,
) -> Result<(), EngineError> {
    let who = who.ok_or(EngineError::NotTheirs)?;
    match grantees.belongs(guard_of(write), write.token, who).await? {
        Belongs::ToThem => Ok(()),
        // Whoever has lost a lock is told so by the fence, where there is a newer holder.
        Belongs::Unknown if Found::by(write, store).await?.is_stale(write) => Ok(()),
        Belongs::NotToThem | Belongs::Unknown => Err(EngineError::NotTheirs),
    }
}

fn guard_of(write: &Write) -> &Key {
    write.scope.as_ref().unwrap_or(&write.key)
}

/// Whether the authority can have issued this token. At most one question, and none for a token
/// that is known already, so those go on working while the authority is away.
async fn issued(authority: &dyn Authority, token: Token) -> Result<bool, EngineError> {
    if token.get() <= authority.newest_known() {
        return Ok(true);
    }
    match authority.newest().await {
        Ok(newest) => Ok(token.get() <= newest),
        // The question may have failed half way, and still have brought news.
        Err(_) if token.get() <= authority.newest_known() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether a claim names the lock's holder. A grant through a fencepost has been claimed already;
/// this is for holders that got their lock from the authority itself.
async fn holds_what_it_claims(
    authority: &dyn Authority,
    write: &Write,
) -> Result<bool, EngineError> {
    if write.change != Change::Claim || write.scope.is_some() {
        return Ok(false);
    }
    if !issued(authority, write.token).await? {
        return Ok(false);
    }
    let state = authority.inspect(&write.key).await?;
    Ok(state.holder.is_some_and(|holder| holder.token == write.token))
}

/// What is stored of a write's key, and of the key that guards it.
///
/// What a mark has reached is its key's own token. The floor does not count here: it has been
/// reached by no holder.
struct Found {
    key: Snapshot,
    guard: Snapshot,
}

impl Found {
    async fn by(write: &Write, store: &dyn Reads) -> Result<Self, EngineError> {
        let key = store.snapshot(&write.key).await?;
        let guard = match &write.scope {
            Some(scope) => store.snapshot(scope).await?,
            None => key.clone(),
        };
        Ok(Self { key, guard })
    }

    /// What is behind a mark is for the store to refuse, whoever issued it.
    fn is_stale(&self, write: &Write) -> bool {
        self.mark().outranks(write.token)
    }

    fn mark(&self) -> Mark {
        self.key.standing.mark.max(self.guard.standing.mark)
    }

    fn unissued(self) -> Judgement {
        let verdict = Verdict::Refused(Refusal::Unissued);
        Judgement {
            verdict,
            guard: self.mark(),
            own: self.key.own,
            by_floor: false,
            key: self.key.standing,
        }
    }
}
