//! Notices when etcd has gone backwards, before it grants anything, and moves the epoch on.
//!
//! What is remembered is read first, and etcd is asked afterwards: only so is a lower revision
//! proof. All who wonder at the same time share one question. A background task asks now and then
//! even if nobody does.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use super::{
    epoch::{self, LAST_EPOCH},
    keeper::Keeper,
    layout::Layout,
    members::{Members, PATIENCE},
};
use crate::{
    authority::AuthorityError,
    store::{Remembered, Sighting},
};

/// How often to look while nobody asks.
const EVERY: Duration = Duration::from_secs(2);

/// Each further attempt means that somebody else has moved the epoch meanwhile.
const ATTEMPTS: usize = 5;

type Looked = Result<Remembered, AuthorityError>;

#[derive(Clone)]
pub struct Lookout {
    keeper: Keeper,
    questions: mpsc::UnboundedSender<oneshot::Sender<Looked>>,
}

impl Lookout {
    pub fn start(members: &Arc<Members>, keeper: &Keeper, layout: &Layout) -> Self {
        let (questions, queue) = mpsc::unbounded_channel();
        let watchman =
            Watchman { members: members.clone(), keeper: keeper.clone(), layout: layout.clone() };
        tokio::spawn(watchman.run(queue));
        Self { keeper: keeper.clone(), questions }
    }

    /// Looks at etcd now, and returns what is remembered after that: at least all that was seen.
    pub async fn look(&self) -> Looked {
        let gone = || AuthorityError::Unavailable("nobody looks after etcd any more".into());
        let (reply, answer) = oneshot::channel();
        self.questions.send(reply).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// The row as it is in the store now.
    pub async fn row(&self) -> Looked {
        match self.keeper.recall().await? {
            Some(row) => Ok(row),
            None => self.look().await,
        }
    }

    /// The row as it is known here. It may have moved on since.
    pub async fn known(&self) -> Looked {
        match self.keeper.known() {
            Some(row) => Ok(row),
            None => self.row().await,
        }
    }

    /// etcd was at `row` before it was asked, and showed `seen`: it has gone backwards.
    pub async fn move_on(&self, row: Remembered, seen: &Sighting) -> Looked {
        move_on(&self.keeper, row, seen).await
    }
}

struct Watchman {
    members: Arc<Members>,
    keeper: Keeper,
    layout: Layout,
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
            if let Err(error) = &looked {
                tracing::debug!(%error, "how far etcd has come is not known");
            }
            for reply in asking.drain(..) {
                let _ = reply.send(looked.clone());
            }
        }
    }

    async fn look(&self) -> Looked {
        for _ in 0..ATTEMPTS {
            let row = self.keeper.recall().await?;
            let seen = self.sight().await?;
            let row = match row {
                Some(row) => row,
                None => self.meet(&seen).await?,
            };
            if epoch::has_gone_backwards(&row, &seen) {
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

    /// The first meeting of this store with an etcd.
    async fn meet(&self, seen: &Sighting) -> Looked {
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
    async fn sight(&self) -> Result<Sighting, AuthorityError> {
        let landmark = self.layout.landmark();
        let answer = self
            .members
            .ask(PATIENCE, |mut client| {
                let landmark = landmark.clone();
                async move { client.get(landmark, None).await }
            })
            .await?;
        epoch::sighting(answer.header())
    }
}

/// Of all who notice, one moves the epoch; the others learn of it.
async fn move_on(keeper: &Keeper, row: Remembered, seen: &Sighting) -> Looked {
    let next = row.epoch + 1;
    if next > LAST_EPOCH {
        return Err(AuthorityError::Unfit("etcd has gone backwards, and no epoch is left".into()));
    }
    let to = Remembered { epoch: next, seen: seen.clone() };
    let now = keeper.move_on(row.epoch, to.clone()).await?;
    if now != to {
        tracing::info!(epoch = now.epoch, "somebody else has moved the epoch on");
        return Ok(now);
    }
    tracing::warn!(
        old_epoch = row.epoch,
        new_epoch = now.epoch,
        old_revision = row.seen.revision,
        new_revision = seen.revision,
        old_term = row.seen.term,
        new_term = seen.term,
        old_cluster = row.seen.cluster,
        new_cluster = seen.cluster,
        "etcd has gone backwards: restored, wiped or replaced. A new epoch begins, and all earlier \
         grants are lost"
    );
    Ok(now)
}
