//! Watching a lock in etcd: granted, released, expired, with tokens, over outages and compaction.

use std::{sync::Arc, time::Duration};

use fencepost::{
    authority::{Ask, Authority, LockEvent},
    token::Token,
};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::time::Instant;

use crate::{
    etcd_locks::{acquire, ask, granted},
    harness::{
        PATIENCE,
        etcd::{self, Etcd, unique_key},
        eventually,
        store::TestStore,
    },
};

async fn next(events: &mut BoxStream<'static, LockEvent>) -> LockEvent {
    let event = tokio::time::timeout(PATIENCE, events.next()).await;
    event.expect("an event in time").expect("a stream without an end")
}

#[track_caller]
fn told_of(event: LockEvent) -> (Token, String) {
    match event {
        LockEvent::Granted(holder) => (holder.token, holder.owner),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn grants_releases_and_ends_of_leases_are_told_apart() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let store = held.open().await;
    let [authority, watching] = [0, 1].map(|_| Arc::new(etcd::authority(etcd, &store)));
    let name = unique_key("watched");
    let mut events = watching.watch(&name).await.expect("a watch");
    assert_eq!(next(&mut events).await, LockEvent::Released(None));

    let first = acquire(&authority, &name, Duration::ZERO).await;
    assert_eq!(told_of(next(&mut events).await), (first.token, "somebody".into()));
    let mut late = watching.watch(&name).await.expect("a watch");
    assert_eq!(told_of(next(&mut late).await).0, first.token, "it begins with the state now");

    // A waiter is nobody's business until its turn has come.
    let short = Ask { ttl: Duration::from_secs(4), ..ask(&name, "short", PATIENCE) };
    let waiting = tokio::spawn({
        let authority = authority.clone();
        async move { granted(authority.acquire(&short).await.expect("an answer")) }
    });
    eventually("it waits", || async { etcd.entries(name.as_str()).len() == 2 }).await;
    assert!(authority.release(&name, first.token).await.expect("an answer"));
    let second = waiting.await.expect("no panic");
    for events in [&mut events, &mut late] {
        assert_eq!(next(events).await, LockEvent::Released(Some(first.token)));
        assert_eq!(told_of(next(events).await), (second.token, "short".into()));
        // Nobody renews it.
        assert_eq!(next(events).await, LockEvent::Expired(second.token));
    }

    // A lease that is revoked, as etcdctl does to release, has not ended by itself.
    let third = acquire(&authority, &name, Duration::ZERO).await;
    assert_eq!(told_of(next(&mut events).await).0, third.token);
    etcd.ctl(&["lease", "revoke", &third.lease]);
    assert_eq!(next(&mut events).await, LockEvent::Released(Some(third.token)));
}

#[tokio::test]
async fn a_watch_goes_on_over_an_outage_and_a_compaction() {
    let (mut etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(&etcd, &held.open().await));
    let name = unique_key("outlasts");
    let mut events = authority.watch(&name).await.expect("a watch");
    assert_eq!(next(&mut events).await, LockEvent::Released(None));
    let first = acquire(&authority, &name, Duration::ZERO).await;
    assert_eq!(told_of(next(&mut events).await).0, first.token);
    // Who waits goes on as well.
    let waiting = tokio::spawn({
        let (authority, name) = (authority.clone(), name.clone());
        async move { acquire(&authority, &name, PATIENCE * 2).await }
    });
    eventually("it waits", || async { etcd.entries(name.as_str()).len() == 2 }).await;
    let place = etcd.entries(name.as_str())[1].1;

    etcd.kill();
    eventually("it is known to be down", || async { !authority.status().up }).await;
    etcd.run().await;
    let revision = first.token.get() + 20;
    for number in 0..30 {
        etcd.ctl(&["put", "noise", &number.to_string()]);
    }
    etcd.ctl(&["compact", &revision.to_string()]);
    assert!(authority.release(&name, first.token).await.expect("an answer"));
    assert_eq!(next(&mut events).await, LockEvent::Released(Some(first.token)));
    let second = waiting.await.expect("it got its turn");
    assert_eq!(second.token.get(), place, "it has kept its place");
    assert_eq!(told_of(next(&mut events).await).0, second.token);
}

/// It listens, and does not ask again and again.
#[tokio::test]
async fn a_watch_of_a_lock_to_which_nothing_happens_costs_etcd_nothing() {
    let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    let mut events = authority.watch(&unique_key("quiet")).await.expect("a watch");
    assert_eq!(next(&mut events).await, LockEvent::Released(None));
    let (before, since) = (etcd.transactions().await, Instant::now());
    // What must not happen cannot be waited for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = etcd.transactions().await - before;
    // Now and then etcd is asked whether it has gone back in time.
    let now_and_then = since.elapsed().as_secs();
    assert!(asked <= now_and_then, "{asked} transactions for nothing");
}

/// What was left of its lease when it was granted has passed; but not what it was renewed for.
#[tokio::test]
async fn a_lock_that_was_renewed_and_then_given_up_has_not_expired() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = etcd::authority(etcd, &held.open().await);
    let name = unique_key("given-up");
    let short = Ask { ttl: Duration::from_secs(10), ..ask(&name, "short", Duration::ZERO) };
    let grant = granted(authority.acquire(&short).await.expect("an answer"));
    let mut events = authority.watch(&name).await.expect("a watch");
    assert_eq!(told_of(next(&mut events).await).0, grant.token);
    let beyond = grant.renewed + grant.ttl + Duration::from_secs(1);
    while Instant::now() < beyond {
        let renewed = authority.renew(&name, grant.token).await.expect("an answer");
        assert_eq!(renewed, Some(grant.ttl));
        // A lease goes by the clock: only time takes it beyond its end.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // As etcdctl does to release.
    etcd.ctl(&["lease", "revoke", &grant.lease]);
    assert_eq!(next(&mut events).await, LockEvent::Released(Some(grant.token)));
}

/// The watch has come when the lease was almost over, and knows nothing of the renewal; but the lease is still there.
#[tokio::test]
async fn a_lock_that_was_renewed_unseen_and_then_released_has_not_expired() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = etcd::authority(etcd, &held.open().await);
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(
            Instant::now() < deadline,
            "this machine is too slow to catch the last second of a lease"
        );
        let name = unique_key("unseen");
        let short = Ask { ttl: Duration::from_secs(2), ..ask(&name, "short", Duration::ZERO) };
        let grant = granted(authority.acquire(&short).await.expect("an answer"));
        // Into its last second, of which nothing is left as etcd counts.
        let late = grant.ttl.saturating_sub(Duration::from_millis(900));
        tokio::time::sleep_until(grant.renewed + late).await;
        let mut events = authority.watch(&name).await.expect("a watch");
        let LockEvent::Granted(holder) = next(&mut events).await else { continue };
        let renewed = authority.renew(&name, grant.token).await.expect("an answer");
        if !holder.remaining.is_zero() || renewed.is_none() {
            continue;
        }
        assert!(authority.release(&name, grant.token).await.expect("an answer"));
        assert_eq!(next(&mut events).await, LockEvent::Released(Some(grant.token)));
        return;
    }
}
