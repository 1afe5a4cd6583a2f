//! What happens to a lock, for somebody who watches it.
//!
//! A task looks at the queue, tells the state, and follows etcd's own watch from there. When that
//! ends, for whatever reason, it looks again and tells what is different: it survives outages,
//! compaction, and a move of the epoch.
//!
//! etcd does not say why a key has gone, so that is found out. A lease that is still alive was not
//! the reason: the lock was released. (Fencepost lets a released lock's lease live on for a moment.)
//! A lease that has gone may have ended or have been revoked, as `etcdctl lock` does when it
//! releases. It can have ended only if what was left of it at the last look has passed since, so
//! the watch looks often. The limit: one that was renewed since the last look, and then revoked
//! after it would have ended without that renewal, is told as expired.

use std::time::Duration;

use etcd_client::{Event, EventType, WatchOptions, WatchStream};
use futures_util::stream::{self, BoxStream};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{
    EtcdAuthority,
    layout::{Entry, Value},
    members::PATIENCE,
    view::View,
};
use crate::{
    authority::{AuthorityError, Holder, LockEvent},
    store::Remembered,
    token::{Key, Token},
};

/// Events that may wait for a slow reader. Beyond that the task waits for it.
const BUFFERED: usize = 16;

/// After etcd did not answer.
const PAUSE: Duration = Duration::from_millis(300);

/// How long etcd's watch is believed without a look of our own.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Between two looks at the holder's lease, at least.
const SHORTEST: Duration = Duration::from_millis(500);

impl EtcdAuthority {
    pub(super) async fn events_of(
        &self,
        name: &Key,
    ) -> Result<BoxStream<'static, LockEvent>, AuthorityError> {
        let view = self.queue_of(name).await?;
        let (events, receiver) = mpsc::channel(BUFFERED);
        let watcher = Watcher { authority: self.clone(), name: name.clone(), events, told: None };
        tokio::spawn(watcher.run(view));
        Ok(Box::pin(stream::unfold(receiver, async |mut receiver| {
            let event = receiver.recv().await?;
            Some((event, receiver))
        })))
    }
}

struct Watcher {
    authority: EtcdAuthority,
    name: Key,
    events: mpsc::Sender<LockEvent>,
    told: Option<Told>,
}

/// The holder that was last told of.
struct Told {
    token: Token,
    epoch: u16,
    entry: Entry,
    /// Before this moment its lease cannot have ended by itself.
    may_end: Instant,
    look_at: Instant,
}

/// Nobody listens any more.
struct Closed;

impl Watcher {
    async fn run(mut self, mut view: View) {
        let mut first = true;
        loop {
            if first && view.queue.is_empty() && self.tell(LockEvent::Released(None)).await.is_err()
            {
                return;
            }
            first = false;
            if self.follow(view).await.is_err() {
                return;
            }
            view = loop {
                if self.events.is_closed() {
                    return;
                }
                match self.authority.queue_of(&self.name).await {
                    Ok(view) => break view,
                    Err(_) => sleep(PAUSE).await,
                }
            };
        }
    }

    /// Tells what is new in a view, and then what etcd's watch says, for as long as that is good.
    async fn follow(&mut self, mut view: View) -> Result<(), Closed> {
        self.compare(&view).await?;
        let mut changes = self.authority.keeper.changes();
        let Some(mut watch) = self.open(view.revision).await else {
            sleep(PAUSE).await;
            return Ok(());
        };
        let look_again = Instant::now() + LOOK_AGAIN;
        loop {
            let look_at = self.told.as_ref().map_or(look_again, |told| told.look_at);
            tokio::select! {
                message = watch.message() => {
                    let Ok(Some(response)) = message else {
                        sleep(PAUSE).await;
                        return Ok(());
                    };
                    if response.canceled() {
                        return Ok(());
                    }
                    for event in response.events() {
                        self.apply(event, &mut view.queue);
                        self.compare(&view).await?;
                    }
                }
                () = sleep_until(look_at) => self.look_at_lease().await,
                () = sleep_until(look_again) => return Ok(()),
                () = left_behind(&mut changes, view.epoch) => return Ok(()),
                () = self.events.closed() => return Err(Closed),
            }
        }
    }

    async fn open(&self, revision: i64) -> Option<WatchStream> {
        let directory = self.authority.layout.directory(&self.name);
        let opened = self.authority.members.ask(PATIENCE, |mut client| {
            let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
            let directory = directory.clone();
            async move { client.watch(directory, Some(options)).await }
        });
        opened.await.ok()
    }

    fn apply(&self, event: &Event, queue: &mut Vec<Entry>) {
        let Some(pair) = event.kv() else { return };
        match event.event_type() {
            EventType::Delete => queue.retain(|entry| entry.key != pair.key()),
            EventType::Put => {
                let known = queue.iter().any(|entry| entry.key == pair.key());
                let entry = self.authority.layout.entry_of(&self.name, pair);
                // A new one is younger than all others.
                queue.extend(entry.filter(|_| !known).map(|entry| {
                    let own = entry.lease == Some(pair.lease());
                    Entry { value: own.then(|| Value::of(pair)), ..entry }
                }));
            }
        }
    }

    /// Tells how the head of the queue differs from what was told before.
    async fn compare(&mut self, view: &View) -> Result<(), Closed> {
        let head = view.queue.first();
        let token = head.and_then(|head| super::epoch::token(view.epoch, head.created).ok());
        if self.told.as_ref().map(|told| told.token) == token {
            return Ok(());
        }
        if let Some(told) = self.told.take() {
            // Whoever held it in an earlier epoch has lost it.
            let released = told.epoch == view.epoch && self.was_released(&told).await;
            self.tell(if released {
                LockEvent::Released(Some(told.token))
            } else {
                LockEvent::Expired(told.token)
            })
            .await?;
        }
        let (Some(head), Some(token)) = (head, token) else { return Ok(()) };
        // Where etcd does not say, the event goes without; the end of the watch is near.
        let value = self.authority.value_of(head, view.revision).await.unwrap_or_default();
        let asked = Instant::now();
        let left = self.authority.time_left(head).await.ok().flatten();
        let remaining = left.map(|left| left.remaining).unwrap_or_default();
        self.told = Some(Told {
            token,
            epoch: view.epoch,
            entry: head.clone(),
            may_end: asked + remaining,
            look_at: asked + left.map_or(SHORTEST, |left| (left.ttl / 4).max(SHORTEST)),
        });
        let name = self.name.clone();
        self.tell(LockEvent::Granted(Holder { name, token, owner: value.owner, remaining })).await
    }

    async fn was_released(&self, told: &Told) -> bool {
        let left = self.authority.time_left(&told.entry).await;
        let alive = left.ok().flatten().is_some_and(|left| !left.remaining.is_zero());
        alive || Instant::now() < told.may_end
    }

    async fn look_at_lease(&mut self) {
        let Some(told) = &mut self.told else { return };
        let asked = Instant::now();
        let left = self.authority.time_left(&told.entry).await.ok().flatten();
        if let Some(left) = left {
            told.may_end = asked + left.remaining;
        }
        told.look_at = asked + left.map_or(SHORTEST, |left| (left.ttl / 4).max(SHORTEST));
    }

    async fn tell(&self, event: LockEvent) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_| Closed)
    }
}

/// Waits until the epoch is another one.
async fn left_behind(changes: &mut watch::Receiver<Option<Remembered>>, epoch: u16) {
    let moved = |row: &Option<Remembered>| row.as_ref().is_some_and(|row| row.epoch != epoch);
    let _ = changes.wait_for(moved).await.map(drop);
}
