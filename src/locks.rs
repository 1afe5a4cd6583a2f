//! Locks, as the API hands them out: a grant of the [`Authority`], made safe by a claim.
//!
//! Before a grant is answered, the mark of the lock's own key rises to its token. From that moment
//! the former holder is fenced off, even before the new one's first write. If the claim fails, the
//! grant is undone.
//!
//! A handler's future can be dropped at any await, when its client hangs up. So whatever talks to
//! the authority runs in a task of its own, to its end, and a grant that nobody takes is released
//! (`handover.rs`). One that is held for as long as a connection is open is renewed by a task, too
//! (`keeper.rs`).

mod handover;
mod held;
mod keeper;

use std::{sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::held::Held;
pub use self::{
    handover::Handover,
    keeper::{Keeper, Loss},
};
use crate::{
    auth::Identity,
    authority::{
        Ask, Authority, AuthorityError, Belongs, Grant, Grantees, Holder, LockEvent, LockState,
        Turn,
    },
    engine::{Engine, EngineError},
    limits::{Limits, OverLimit, Place},
    metrics::Limited,
    store::{Page, Settled},
    token::{Key, Token},
};

/// Between two attempts at releasing what nobody needs any more.
const BETWEEN_RELEASES: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The grant was undone, since the store did not take its claim.
    #[error(transparent)]
    Claim(#[from] EngineError),
    /// The grant was undone: its token is at or behind a mark that came from somewhere else.
    #[error("token {token} is not above the mark {mark} of its own lock, {name:?}")]
    Behind { name: Key, token: Token, mark: i64 },
    /// The lease ran out before the grant could be handed over.
    #[error("the lease ended before the lock could be handed over")]
    TooLate,
    /// It was granted to somebody else, or to nobody who is known.
    #[error("the lock was granted to somebody else")]
    NotTheirs,
    /// As many already wait for locks, or have or follow one, as may.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The process is about to end, and with it the waiting. The place in the queue is given up.
    #[error("shutting down")]
    ShuttingDown,
    /// The task that carried the request has died. What it had is undone by the end of its lease.
    #[error("the request was lost")]
    Lost,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    pub name: Key,
    pub owner: String,
    /// Whose grant it will be, where those who ask prove who they are.
    pub identity: Option<Identity>,
    pub ttl: Duration,
    pub wait: Duration,
}

pub enum Acquired {
    Granted(Handover),
    /// Once the time to wait was over.
    Held(Option<Holder>),
}

#[derive(Clone)]
pub struct Locks {
    authority: Arc<dyn Authority>,
    engine: Arc<Engine>,
    held: Held,
    /// Where those who ask prove who they are.
    grantees: Option<Arc<Grantees>>,
    limits: Arc<Limits>,
    /// Cancelled when the process is about to end.
    closing: CancellationToken,
    /// What must come to its end before the process does.
    tasks: TaskTracker,
}

impl Locks {
    pub fn new(
        authority: Arc<dyn Authority>,
        engine: Arc<Engine>,
        limits: Arc<Limits>,
        closing: CancellationToken,
    ) -> Self {
        engine.consult(authority.clone());
        Self {
            held: Held::new(engine.metrics().clone()),
            grantees: None,
            authority,
            engine,
            limits,
            closing,
            tasks: TaskTracker::new(),
        }
    }

    /// From now on a grant is only its own holder's.
    #[must_use]
    pub fn with_owners(mut self, grantees: Option<Arc<Grantees>>) -> Self {
        self.grantees = grantees;
        self
    }

    pub fn authority(&self) -> &dyn Authority {
        self.authority.as_ref()
    }

    /// Brings the metrics of what is held up to date.
    pub fn look(&self) {
        self.held.look();
    }

    /// A place for one more stream. To be had before the lock is, or the grant might be in vain.
    pub fn stream(&self, who: Option<&Identity>) -> Result<Place, LockError> {
        Ok(self.limits.place(Limited::Streams, who)?)
    }

    /// Returns once the process is about to end.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        self.closing.clone().cancelled_owned()
    }

    pub async fn acquire(&self, wish: Wish) -> Result<Acquired, LockError> {
        let who = wish.identity.as_ref();
        let waits = !wish.wait.is_zero();
        let to_wait = if waits { Some(self.limits.place(Limited::Waiters, who)?) } else { None };
        let to_hold = self.place_to_hold(who)?;
        let gone = CancellationToken::new();
        let _gone_when_dropped = gone.clone().drop_guard();
        let ask = Ask {
            name: wish.name,
            owner: wish.owner,
            identity: wish.identity,
            ttl: wish.ttl,
            until: Instant::now() + wish.wait,
            gone,
        };
        let locks = self.clone();
        let acquired = self.to_its_end(async move {
            let acquired = locks.acquire_and_claim(&ask, to_hold).await;
            drop(to_wait);
            acquired
        });
        tokio::select! {
            biased;
            acquired = acquired => acquired,
            () = self.closing.cancelled(), if waits => Err(LockError::ShuttingDown),
        }
    }

    /// To be had before the lock is: whoever waited for it should not be turned away in the end.
    fn place_to_hold(&self, who: Option<&Identity>) -> Result<Place, LockError> {
        // Some may have run out unnoticed.
        Ok(self.limits.place_after(|| self.held.look(), Limited::Locks, who)?)
    }

    async fn acquire_and_claim(&self, ask: &Ask, to_hold: Place) -> Result<Acquired, LockError> {
        let waiting = self.held.waiting();
        let grant = match self.authority.acquire(ask).await? {
            Turn::Granted(grant) => grant,
            Turn::Held(holder) => {
                self.learn(&holder);
                return Ok(Acquired::Held(holder));
            }
        };
        if let (Some(grantees), Some(identity)) = (&self.grantees, &ask.identity) {
            grantees.learn(&grant.name, grant.token, identity.clone());
        }
        // Before the claim, after which the former holder may be refused at any moment.
        self.engine.rejections().owners().learn(grant.token, &grant.owner);
        // Whatever goes wrong from here on, the grant is given back.
        let handover = Handover::new(self.clone(), grant.clone());
        match self.engine.claim(grant.name.clone(), grant.token, &grant.owner).await? {
            Settled::Applied { .. } => {}
            Settled::Refused { judgement, .. } => {
                return Err(LockError::Behind {
                    name: grant.name,
                    token: grant.token,
                    mark: judgement.guard.token,
                });
            }
        }
        let renewed = self.freshen(&grant).await?;
        let handover = handover.renewed_at(renewed);
        waiting.granted(&Grant { renewed, ..grant }, to_hold);
        Ok(Acquired::Granted(handover))
    }

    /// A claim may have waited for a slow store. The holder should have all of its time. Returns the
    /// moment before the last renewal.
    async fn freshen(&self, grant: &Grant) -> Result<Instant, LockError> {
        if grant.renewed.elapsed() < grant.ttl / 10 {
            return Ok(grant.renewed);
        }
        let asked = Instant::now();
        match self.authority.renew(&grant.name, grant.token).await? {
            Some(_) => Ok(asked),
            None => Err(LockError::TooLate),
        }
    }

    /// [`Self::renew`], for whoever it was granted to.
    pub async fn renew_for(
        &self,
        who: Option<&Identity>,
        name: Key,
        token: Token,
    ) -> Result<Option<Duration>, LockError> {
        if self.is_theirs(who, &name, token).await? {
            self.renew(name, token).await
        } else {
            Ok(None)
        }
    }

    /// [`Self::release`], for whoever it was granted to.
    pub async fn release_for(
        &self,
        who: Option<&Identity>,
        name: Key,
        token: Token,
    ) -> Result<bool, LockError> {
        Ok(self.is_theirs(who, &name, token).await? && self.release(name, token).await?)
    }

    /// `false`: that grant does not hold the lock. (Nor is it asked about again: the token of
    /// somebody who still waits can be guessed, and might hold it a moment later.)
    async fn is_theirs(
        &self,
        who: Option<&Identity>,
        name: &Key,
        token: Token,
    ) -> Result<bool, LockError> {
        let Some(grantees) = &self.grantees else { return Ok(true) };
        let who = who.ok_or(LockError::NotTheirs)?.clone();
        let (grantees, name) = (grantees.clone(), name.clone());
        let belongs =
            self.to_its_end(async move { Ok(grantees.belongs(&name, token, &who).await?) });
        match belongs.await? {
            Belongs::ToThem => Ok(true),
            Belongs::NotToThem => Err(LockError::NotTheirs),
            Belongs::Unknown => Ok(false),
        }
    }

    /// `None`: lost.
    async fn renew(&self, name: Key, token: Token) -> Result<Option<Duration>, LockError> {
        let (authority, held) = (self.authority.clone(), self.held.clone());
        self.to_its_end(async move {
            let asked = Instant::now();
            let renewed = authority.renew(&name, token).await?;
            held.renewed(&name, token, asked, renewed);
            Ok(renewed)
        })
        .await
    }

    /// `false`: it was lost before.
    async fn release(&self, name: Key, token: Token) -> Result<bool, LockError> {
        let (authority, held) = (self.authority.clone(), self.held.clone());
        self.to_its_end(async move {
            let released = authority.release(&name, token).await?;
            held.ended(&name, token, released);
            Ok(released)
        })
        .await
    }

    pub async fn inspect(&self, name: Key) -> Result<LockState, LockError> {
        let authority = self.authority.clone();
        let state = self.to_its_end(async move { Ok(authority.inspect(&name).await?) }).await?;
        self.learn(&state.holder);
        Ok(state)
    }

    pub async fn list(&self, page: Page) -> Result<Vec<Holder>, LockError> {
        let authority = self.authority.clone();
        let held = self.to_its_end(async move { Ok(authority.list(page).await?) }).await?;
        self.learn(&held);
        Ok(held)
    }

    pub async fn watch(&self, name: Key) -> Result<BoxStream<'static, LockEvent>, LockError> {
        let authority = self.authority.clone();
        self.to_its_end(async move { Ok(authority.watch(&name).await?) }).await
    }

    /// So that a rejection can say who has overtaken it.
    fn learn<'a>(&self, holders: impl IntoIterator<Item = &'a Holder>) {
        for holder in holders {
            self.engine.rejections().owners().learn(holder.token, &holder.owner);
        }
    }

    /// Runs `work` whether or not somebody still waits for it.
    async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Result<T, LockError> {
        let (reply, answer) = oneshot::channel();
        self.tasks.spawn(async move {
            // What nobody takes is dropped, and a handover knows what that means.
            let _ = reply.send(work.await);
        });
        answer.await.unwrap_or(Err(LockError::Lost))
    }

    fn give_back(&self, grant: Grant) {
        let locks = self.clone();
        self.tasks.spawn(async move { locks.release_or_leave(&grant).await });
    }

    /// Releases what nobody needs any more. If the authority is away, that is tried again until the
    /// lease must have ended: nobody renews it, and others wait.
    async fn release_or_leave(&self, grant: &Grant) {
        let end = Instant::now() + grant.ttl;
        loop {
            match self.authority.release(&grant.name, grant.token).await {
                Ok(released) => return self.held.ended(&grant.name, grant.token, released),
                Err(error) if self.closing.is_cancelled() || Instant::now() >= end => {
                    tracing::warn!(%error, name = grant.name.as_str(), token = grant.token.get(),
                        "a lock that nobody needs could not be released; its lease will end it");
                    return;
                }
                Err(error) => {
                    let name = grant.name.as_str();
                    tracing::debug!(%error, name, "a lock could not be released yet");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_RELEASES) => {}
                () = self.closing.cancelled() => {}
            }
        }
    }

    /// Returns when everything that was begun is done: above all, when what was held is released.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
