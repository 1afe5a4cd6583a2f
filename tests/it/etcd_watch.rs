//! Watching a lock in etcd: granted, released, expired, with tokens, over outages and compaction.

use std::{sync::Arc, time::Duration};

use fencepost::{
    authority::{Ask, Authority, LockEvent},
    token::Token,
};
use futures_util::{StreamExt, stream::BoxStream};

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
    let second = acquire(&authority, &name, Duration::ZERO).await;
    assert_eq!(told_of(next(&mut events).await).0, second.token);
}
