//! Whoever gives up, or cannot be served, is in nobody's way afterwards.

use std::{sync::Arc, time::Duration};

use fencepost::authority::{Ask, Authority, AuthorityError};

use super::{acquire, ask, granted};
use crate::harness::{
    PATIENCE,
    blocker::Blocker,
    etcd::{self, Etcd, unique_key},
    eventually,
    store::TestStore,
};

/// Its lease is long; but as soon as etcd answers again, nobody has to wait for the dead.
#[tokio::test]
async fn who_gives_up_while_etcd_is_away_is_not_in_the_way_afterwards() {
    let (mut etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(&etcd, &held.open().await));
    let name = unique_key("in-the-way");
    let long = |wait| Ask { ttl: Duration::from_mins(10), ..ask(&name, "us", wait) };
    let first = granted(authority.acquire(&long(Duration::ZERO)).await.expect("an answer"));
    let (in_time, gone) = (long(Duration::from_secs(15)), long(PATIENCE * 4));
    let hang_up = gone.gone.clone();
    let waiting = [in_time, gone].map(|ask| {
        let authority = authority.clone();
        tokio::spawn(async move { authority.acquire(&ask).await })
    });
    eventually("they wait", || async { etcd.entries(name.as_str()).len() == 3 }).await;
    etcd.kill();
    hang_up.cancel();
    for waiter in waiting {
        let answer = waiter.await.expect("no panic");
        assert!(matches!(answer, Err(AuthorityError::Unavailable(_))), "{answer:?}");
    }
    // Until an attempt that comes soon has been in vain, too.
    tokio::time::sleep(Duration::from_secs(2)).await;
    etcd.run().await;
    eventually("they have gone", || async { etcd.entries(name.as_str()).len() == 1 }).await;
    assert_eq!(etcd.entries(name.as_str())[0].1, first.token.get(), "who holds it stays");
}

/// The lease that it got is ended: at once where nobody waits for the answer any more, since the process may
/// be about to end.
#[tokio::test]
async fn who_cannot_be_served_leaves_no_lease() {
    let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    let first = acquire(&authority, &unique_key("served"), Duration::ZERO).await;
    held.execute("ALTER TABLE authority RENAME TO out_of_reach").await.expect("it is renamed");
    let hasty = ask(&unique_key("unserved"), "us", Duration::ZERO);
    let refused = authority.acquire(&hasty).await;
    assert!(matches!(refused, Err(AuthorityError::Store(_))), "{refused:?}");
    eventually("the lease has gone", || async { etcd.leases() == [first.lease.as_str()] }).await;

    hasty.gone.cancel();
    let refused = authority.acquire(&hasty).await;
    // Nothing else has run since: this runtime has one thread.
    let leases = etcd.leases();
    assert!(matches!(refused, Err(AuthorityError::Store(_))), "{refused:?}");
    assert_eq!(leases, [first.lease]);
}

/// Its turn has come, but etcd goes away before it can be told so.
#[tokio::test]
async fn who_runs_out_of_time_at_its_very_turn_is_told_so() {
    let (mut etcd, held) = (Etcd::start(&[]).await, TestStore::postgres().await);
    let authority = Arc::new(etcd::authority(&etcd, &held.open().await));
    // Its time must be less than it takes until nobody hopes for an answer of etcd any more. A busy machine may need
    // longer than that to bring it to its turn; then it is tried again.
    let (waiting, blocker) = loop {
        let name = unique_key("very-turn");
        let first = acquire(&authority, &name, Duration::ZERO).await;
        let waiter = ask(&name, "us", Duration::from_secs(4));
        let waiting = tokio::spawn({
            let authority = authority.clone();
            async move { authority.acquire(&waiter).await }
        });
        eventually("it waits", || async {
            waiting.is_finished() || etcd.entries(name.as_str()).len() == 2
        })
        .await;
        // What is remembered is read before etcd is asked whose turn it is.
        let lock = "LOCK TABLE fencepost.authority IN ACCESS EXCLUSIVE MODE";
        let blocker = Blocker::holding(&held.url, lock).await;
        if waiting.is_finished() {
            blocker.release().await;
            continue;
        }
        assert!(authority.release(&name, first.token).await.expect("an answer"));
        eventually("its turn has come", || async {
            waiting.is_finished() || blocker.waiting().await == 1
        })
        .await;
        if !waiting.is_finished() {
            break (waiting, blocker);
        }
        blocker.release().await;
    };
    etcd.kill();
    blocker.release().await;
    let answer = tokio::time::timeout(PATIENCE * 2, waiting).await.expect("an end");
    let answer = answer.expect("no panic");
    assert!(matches!(answer, Err(AuthorityError::Unavailable(_))), "{answer:?}");
}
