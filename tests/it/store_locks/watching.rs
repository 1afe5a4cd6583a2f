//! Whoever watches a lock is told who holds it, from the state at the start on.

use std::time::Duration;

use fencepost::authority::{Authority, LockEvent, store::StoreAuthority};
use futures_util::StreamExt;
use tokio::{sync::mpsc, task::JoinSet};

use super::{TTL, acquire, authority, key, try_acquire};
use crate::harness::{PATIENCE, store::on_each_store};

/// Somebody who takes every event as it comes.
pub struct Watched {
    events: mpsc::UnboundedReceiver<LockEvent>,
    _taking: JoinSet<()>,
}

impl Watched {
    pub async fn of(authority: &StoreAuthority, name: &str) -> Self {
        let mut stream = authority.watch(&key(name)).await.unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let mut taking = JoinSet::new();
        taking.spawn(async move {
            while let Some(event) = stream.next().await {
                let _ = sender.send(event);
            }
        });
        Self { events, _taking: taking }
    }

    pub async fn next(&mut self) -> LockEvent {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("an event").unwrap()
    }

    pub async fn granted(&mut self) -> i64 {
        match self.next().await {
            LockEvent::Granted(holder) => holder.token.get(),
            other => panic!("{other:?}"),
        }
    }
}

on_each_store! {
    async fn every_change_is_told_in_this_fencepost_and_in_others(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let mut here = Watched::of(&one, "a").await;
        let mut there = Watched::of(&other, "a").await;
        for watched in [&mut here, &mut there] {
            assert_eq!(watched.next().await, LockEvent::Released(None));
        }
        for _ in 0..3 {
            let grant = acquire(one.as_ref(), "a", TTL).await;
            let _elsewhere = try_acquire(one.as_ref(), "b", TTL).await;
            for watched in [&mut here, &mut there] {
                let LockEvent::Granted(holder) = watched.next().await else { panic!("not granted") };
                assert_eq!((holder.token, holder.owner), (grant.token, grant.owner.clone()));
                assert!(holder.remaining <= TTL && holder.remaining > TTL / 2);
            }
            assert!(other.release(&key("a"), grant.token).await.unwrap());
            for watched in [&mut here, &mut there] {
                assert_eq!(watched.next().await, LockEvent::Released(Some(grant.token)));
            }
        }
        let mut late = Watched::of(&one, "b").await;
        late.granted().await;
    }
}

on_each_store! {
    /// The dead do not speak, and nobody else asks for their lock.
    async fn the_end_of_a_lease_is_told(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let mut watched = Watched::of(&other, "a").await;
        assert_eq!(watched.next().await, LockEvent::Released(None));
        let lease = Duration::from_secs(15);
        let grant = try_acquire(one.as_ref(), "a", lease).await.unwrap();
        assert_eq!(watched.granted().await, grant.token.get());
        assert_eq!(watched.next().await, LockEvent::Expired(grant.token));
        let next = try_acquire(one.as_ref(), "a", lease).await.unwrap();
        assert_eq!(watched.granted().await, next.token.get());
        // Renewed, it does not end; released, it was not expired.
        for _ in 0..5 {
            tokio::time::sleep(lease / 4).await;
            assert!(one.renew(&key("a"), next.token).await.unwrap().is_some());
        }
        assert!(one.release(&key("a"), next.token).await.unwrap());
        assert_eq!(watched.next().await, LockEvent::Released(Some(next.token)));
    }
}
