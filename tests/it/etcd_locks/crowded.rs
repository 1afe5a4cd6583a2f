//! Much around one lock: other data, and many who wait.

use std::{sync::Arc, time::Duration};

use etcd_client::{PutOptions, Txn, TxnOp};
use fencepost::{
    authority::{Authority, Turn, etcd::EtcdAuthority},
    store::Page,
    token::Key,
};

use super::{acquire, ask, granted};
use crate::harness::{
    PATIENCE,
    etcd::{self, Etcd, unique_key},
    eventually,
    store::TestStore,
};

async fn client_of(etcd: &Etcd) -> etcd_client::Client {
    let address = format!("http://{}", etcd.address());
    etcd_client::Client::connect([address], None).await.expect("etcd")
}

/// Waits in vain, and not because there is no time to wait. The token of whom it waits for.
async fn holder_seen_by_a_waiter(authority: &EtcdAuthority, name: &Key) -> i64 {
    let waiter = ask(name, "late", Duration::from_millis(500));
    let turn = tokio::time::timeout(PATIENCE, authority.acquire(&waiter)).await;
    match turn.expect("in time").expect("an answer") {
        Turn::Held(Some(holder)) => holder.token.get(),
        other => panic!("{other:?}"),
    }
}

/// More than etcd would send in one message.
#[tokio::test]
async fn a_lot_of_other_data_next_to_a_lock_is_no_hindrance() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(etcd, &held.open().await));
    let name = unique_key("crowded");
    let mut client = client_of(etcd).await;
    for part in 0..12 {
        let puts = (0..100).map(|number| {
            TxnOp::put(format!("{}/{part}/{number}", name.as_str()), vec![b'x'; 10_000], None)
        });
        client.txn(Txn::new().and_then(puts.collect::<Vec<_>>())).await.expect("puts");
    }
    let grant = acquire(&authority, &name, Duration::ZERO).await;
    let state = authority.inspect(&name).await.expect("a state");
    assert_eq!(state.holder.map(|holder| holder.token), Some(grant.token));
    assert_eq!(authority.renew(&name, grant.token).await.expect("an answer"), Some(grant.ttl));
    assert_eq!(holder_seen_by_a_waiter(&authority, &name).await, grant.token.get());
    let waiting = tokio::spawn({
        let (authority, name) = (authority.clone(), name.clone());
        async move { acquire(&authority, &name, PATIENCE).await }
    });
    eventually("it waits", || async {
        authority.inspect(&name).await.expect("a state").waiters == 1
    })
    .await;
    let listed = authority.list(Page::first(10, name.as_str())).await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert!(authority.release(&name, grant.token).await.expect("an answer"));
    assert!(waiting.await.expect("no panic").token > grant.token);
}

/// As many as are read at a time, and all of one revision.
#[tokio::test]
async fn other_data_between_two_of_a_queue_hides_nobody() {
    let (etcd, held) = (Etcd::start(&["--max-txn-ops", "2000"]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    let name = unique_key("between");
    let grant = acquire(&authority, &name, Duration::ZERO).await;
    let puts = (0..1000).map(|number| TxnOp::put(format!("{name}/x/{number}"), "not a lock", None));
    let puts = Txn::new().and_then(puts.collect::<Vec<_>>());
    client_of(&etcd).await.txn(puts).await.expect("puts");
    assert_eq!(holder_seen_by_a_waiter(&authority, &name).await, grant.token.get());
}

/// Somebody's own program may put more than its entry in one transaction.
#[tokio::test]
async fn other_data_of_the_same_revision_hides_nobody() {
    // Where nobody else makes revisions, so that ours is the next.
    let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    let name = unique_key("beside");
    let mut client = client_of(&etcd).await;
    let lease = client.lease_grant(60, None).await.expect("a lease").id();
    let entry = format!("{name}/{lease:x}");
    let puts = Txn::new().and_then([
        TxnOp::put(format!("{name}/!"), "sorted before", None),
        TxnOp::put(entry.clone(), "a program", Some(PutOptions::new().with_lease(lease))),
        TxnOp::put(format!("{name}/~"), "sorted after", None),
    ]);
    client.txn(puts).await.expect("puts");
    let created = etcd.entries(name.as_str())[0].1;
    assert_eq!(holder_seen_by_a_waiter(&authority, &name).await, created);
    client.lease_revoke(lease).await.expect("it ends");
    acquire(&authority, &name, PATIENCE).await;
}

/// Nothing shows whose it is, so it must not be taken for nothing.
#[tokio::test]
async fn a_key_named_like_an_entry_holds_the_lock_without_a_lease() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(etcd, &held.open().await));
    for last in ["beef", "00beef", "BEEF", "0", "123456789012345678901234"] {
        let name = unique_key("strange");
        let key = format!("{name}/{last}");
        let mut client = client_of(etcd).await;
        client.put(key.clone(), "a secret of another program", None).await.expect("a put");
        let created = etcd.entries(name.as_str())[0].1;
        assert_eq!(holder_seen_by_a_waiter(&authority, &name).await, created, "{last}");
        let holder = authority.inspect(&name).await.expect("a state").holder.expect("a holder");
        assert_eq!((holder.token.get(), holder.owner.as_str()), (created, ""), "{last}");
        let token = holder.token;
        assert_eq!(authority.renew(&name, token).await.expect("an answer"), None, "{last}");
        assert!(!authority.release(&name, token).await.expect("an answer"), "{last}");
        let waiting = tokio::spawn({
            let (authority, name) = (authority.clone(), name.clone());
            async move { acquire(&authority, &name, PATIENCE).await }
        });
        eventually("it waits", || async { etcd.entries(name.as_str()).len() == 2 }).await;
        client.delete(key, None).await.expect("it is deleted");
        assert!(waiting.await.expect("no panic").token > token, "{last}");
    }
}

#[tokio::test]
async fn a_release_wakes_one_and_not_all() {
    const WAITERS: usize = 30;
    let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(&etcd, &held.open().await));
    let name = unique_key("herd");
    let first = acquire(&authority, &name, Duration::ZERO).await;
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let (authority, waiter) = (authority.clone(), ask(&name, "one of many", PATIENCE));
        waiters.spawn(async move { granted(authority.acquire(&waiter).await.expect("an answer")) });
    }
    eventually("they wait", || async {
        authority.inspect(&name).await.expect("a state").waiters == WAITERS as u64
    })
    .await;
    // Until each has found the one before it, and is quiet.
    let mut before = etcd.transactions().await;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = etcd.transactions().await;
        if now == before {
            break;
        }
        before = now;
    }
    assert_eq!(etcd.calls("LeaseKeepAlive").await, 0, "their leases are young");
    assert!(authority.release(&name, first.token).await.expect("an answer"));
    let second = waiters.join_next().await.expect("somebody").expect("no panic");
    assert_eq!(etcd.entries(name.as_str())[0].1, second.token.get());
    let asked = etcd.transactions().await - before;
    assert!(asked <= 6, "{asked} transactions for one handover");
}
