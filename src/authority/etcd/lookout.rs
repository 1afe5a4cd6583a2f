//! Notices when etcd has gone backwards, before it grants anything, and moves the epoch on. Notices too when it is
//! another etcd than the one that the store belongs to, which may grant nothing.
//!
//! What is remembered is read first, and etcd is asked afterwards: only so is a lower revision
//! proof. All who wonder at the same time share one question. A background task asks now and then
//! even if nobody does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, oneshot, watch};

use super::{
    epoch::{self, LAST_EPOCH},
    instance::{self, Instance},
    keeper::Keeper,
    layout::Layout,
    members::{Members, PATIENCE},
};
use crate::{
    authority::AuthorityError,
    store::{BETWEEN_MOVES, Remembered, Sighting},
};

/// No look has succeeded yet.
const NONE_YET: u32 = u32::MAX;

/// How often to look while nobody asks.
const EVERY: Duration = Duration::from_secs(2);

/// Each further attempt means that somebody else has moved the epoch meanwhile.
const ATTEMPTS: usize = 8;

type Looked = Result<Remembered, AuthorityError>;

#[derive(Clone)]
pub struct Lookout {
    keeper: Keeper,
    questions: mpsc::UnboundedSender<oneshot::Sender<Looked>>,
    /// Whether the last look has shown that the store belongs to another authority.
    foreign: watch::Receiver<bool>,
    /// The epoch in which a look has last found the store's own etcd.
    looked_in: Arc<AtomicU32>,
}

impl Lookout {
    pub fn start(members: &Arc<Members>, keeper: &Keeper, layout: &Layout) -> Self {
        let (questions, queue) = mpsc::unbounded_channel();
        let (is_foreign, foreign) = watch::channel(false);
        let looked_in = Arc::new(AtomicU32::new(NONE_YET));
        let watchman = Watchman {
            members: members.clone(),
            keeper: keeper.clone(),
            layout: layout.clone(),
            foreign: is_foreign,
            looked_in: looked_in.clone(),
        };
        tokio::spawn(watchman.run(queue));
        Self { keeper: keeper.clone(), questions, foreign, looked_in }
    }

    /// Whether the last look has shown that the store belongs to another authority.
    pub fn is_foreign(&self) -> bool {
        *self.foreign.borrow()
    }

    /// Returns once that is so.
    pub async fn until_foreign(&self) {
        if self.foreign.clone().wait_for(|foreign| *foreign).await.is_err() {
            // The task that looks has ended, so no change will be told.
            std::future::pending::<()>().await;
        }
    }

    /// Looks at etcd now, and returns what is remembered after that: at least all that was seen.
    pub async fn look(&self) -> Looked {
        let gone = || AuthorityError::Unavailable("the task that looks at etcd has ended".into());
        let (reply, answer) = oneshot::channel();
        self.questions.send(reply).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// The row as it is in the store now. Where the epoch has moved, the store's etcd may be another one by now.
    pub async fn row(&self) -> Looked {
        match self.keeper.recall().await? {
            Some(row) if self.looked_in.load(Ordering::Acquire) == u32::from(row.epoch) => Ok(row),
            _ => self.look().await,
        }
    }

    /// The row as it is known here. It may have moved on since.
    pub async fn known(&self) -> Looked {
        match self.keeper.known() {
            Some(row) if !self.is_foreign() => Ok(row),
            Some(_) => self.look().await,
            None => self.row().await,
        }
    }

    /// etcd was at `row` before it was asked, and showed `seen`: it has gone backwards.
    pub async fn move_on(&self, row: Remembered, seen: &Sighting) -> Looked {
        // A look also tells whether it is the store's etcd at all.
        let looked = self.look().await?;
        if looked.epoch > row.epoch { Ok(looked) } else { move_on(&self.keeper, row, seen).await }
    }
}

struct Watchman {
    members: Arc<Members>,
    keeper: Keeper,
    layout: Layout,
    foreign: watch::Sender<bool>,
    looked_in: Arc<AtomicU32>,
}

impl Watchman {
    async fn run(self, mut queue: mpsc::UnboundedReceiver<oneshot::Sender<Looked>>) {
        let mut asking = Vec::new();
        loop {
            // Whoever comes while a look is under way shares the next one.
            let asked = tokio::time::timeout(EVERY, queue.recv_many(&mut asking, usize::MAX)).await;
            if asked == Ok(0) {
                return;
            }
            let looked = self.look().await;
            self.report(&looked);
            for reply in asking.drain(..) {
                let _ = reply.send(looked.clone());
            }
        }
    }

    /// Says once that the store belongs to another authority, and once that it does no longer.
    fn report(&self, looked: &Looked) {
        match looked {
            Err(AuthorityError::Foreign(error)) => {
                if !self.foreign.send_replace(true) {
                    tracing::error!(%error, "locks are refused: the store belongs to another authority");
                }
            }
            Err(error) => tracing::debug!(%error, "how far etcd has come is not known"),
            Ok(row) => {
                self.looked_in.store(row.epoch.into(), Ordering::Release);
                if self.foreign.send_replace(false) {
                    tracing::info!("locks are granted again: this etcd is the store's authority");
                }
            }
        }
    }

    async fn look(&self) -> Looked {
        for _ in 0..ATTEMPTS {
            let row = self.keeper.recall().await?;
            let (seen, shown) = self.sight().await?;
            let Some(row) = row else {
                self.meet(&seen).await?;
                continue;
            };
            if !self.is_the_same(&row, &seen, shown).await? {
                continue;
            }
            if epoch::has_gone_backwards(&row, &seen)? {
                move_on(&self.keeper, row, &seen).await?;
                continue;
            }
            let epoch = row.epoch;
            let noted = self.keeper.note(epoch, seen).await?;
            if noted.epoch == epoch {
                return Ok(noted);
            }
        }
        Err(AuthorityError::Unavailable("the epoch has no rest".into()))
    }

    /// Whether the etcd shows the number that the store has recorded. `false`: it does not yet, so look again.
    async fn is_the_same(
        &self,
        row: &Remembered,
        seen: &Sighting,
        shown: Option<Instance>,
    ) -> Result<bool, AuthorityError> {
        if seen.cluster != row.seen.cluster {
            // That is refused anyway, and gets no number.
            return Ok(true);
        }
        let recorded = self.keeper.instance();
        let Some(shown) = shown else {
            instance::leave(&self.members, &self.layout, recorded).await?;
            return Ok(false);
        };
        let Some(recorded) = recorded else {
            let stands =
                self.keeper.claim_instance(None, shown.number.clone(), seen.clone()).await?;
            return if stands.as_ref() == Some(&shown.number) {
                Ok(false)
            } else {
                Err(another(seen))
            };
        };
        if shown.number == recorded {
            return Ok(true);
        }
        if shown.former.as_ref() != Some(&recorded) {
            return Err(another(seen));
        }
        // It had lost the number, and with it whatever else was written after that.
        let new_epoch = next_epoch(row)?;
        self.keeper.claim_instance(Some(recorded), shown.number, seen.clone()).await?;
        tracing::warn!(
            old_epoch = row.epoch,
            new_epoch,
            old_revision = row.seen.revision,
            new_revision = seen.revision,
            cluster = seen.cluster,
            "etcd has lost the number that was left in it, wiped or replaced: a new epoch begins, and all earlier \
             grants are lost"
        );
        Ok(false)
    }

    /// The first meeting of this store with an etcd, or the first since it was made to record which.
    async fn meet(&self, seen: &Sighting) -> Looked {
        self.keeper.claim(seen.cluster.clone()).await?;
        let highest = self.keeper.highest_token().await?;
        let first = epoch::first(seen, highest)?;
        let adopted = self.keeper.adopt(first).await?;
        tracing::info!(
            epoch = adopted.epoch,
            revision = adopted.seen.revision,
            cluster = adopted.seen.cluster,
            "tokens come from this etcd"
        );
        Ok(adopted)
    }

    /// A linearizable read: it shows everything that was done before it was asked for.
    async fn sight(&self) -> Result<(Sighting, Option<Instance>), AuthorityError> {
        let landmark = self.layout.landmark();
        let answer = self
            .members
            .ask(PATIENCE, |mut client| {
                let landmark = landmark.clone();
                async move { client.get(landmark, None).await }
            })
            .await?;
        Ok((epoch::sighting(answer.header())?, Instance::shown_by(&answer)))
    }
}

fn another(seen: &Sighting) -> AuthorityError {
    AuthorityError::Foreign(format!(
        "the store belongs to another etcd with the cluster id {}: this one was made apart from it. Correct --authority, or \
         move the store with `fencepost authority move`",
        seen.cluster
    ))
}

/// Of all that notice, one moves the epoch; the others learn of it.
async fn move_on(keeper: &Keeper, row: Remembered, seen: &Sighting) -> Looked {
    let next = next_epoch(&row)?;
    let to = Remembered { epoch: next, seen: seen.clone() };
    let now = keeper.move_on(row.epoch, to.clone()).await?;
    if now.epoch == row.epoch {
        return Err(AuthorityError::Unavailable(format!(
            "etcd has gone backwards, and the epoch has moved less than {BETWEEN_MOVES} s ago; if it goes on, \
             the address leads to more than one etcd"
        )));
    }
    if now != to {
        tracing::info!(epoch = now.epoch, "another fencepost has moved the epoch on");
        return Ok(now);
    }
    tracing::warn!(
        old_epoch = row.epoch,
        new_epoch = now.epoch,
        old_revision = row.seen.revision,
        new_revision = seen.revision,
        old_term = row.seen.term,
        new_term = seen.term,
        cluster = seen.cluster,
        "etcd has gone backwards, restored or wiped: a new epoch begins, and all earlier grants are lost"
    );
    Ok(now)
}

fn next_epoch(row: &Remembered) -> Result<u16, AuthorityError> {
    let next = row.epoch + 1;
    if next > LAST_EPOCH {
        return Err(AuthorityError::Unfit("etcd has gone backwards, and no epoch is left".into()));
    }
    Ok(next)
}
