//! Locks in etcd, below HTTP: grants, order, renewal and release, and who else may see them.

mod crowded;
mod giving_up;
mod listing;
mod lost_answers;

use std::{collections::HashSet, sync::Arc, time::Duration};

use fencepost::{
    authority::{Ask, Authority, Grant, Turn, etcd::EtcdAuthority},
    token::Key,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    PATIENCE,
    etcd::{self, Etcd, unique_key},
    eventually,
    store::TestStore,
};

pub fn ask(name: &Key, owner: &str, wait: Duration) -> Ask {
    Ask {
        name: name.clone(),
        owner: owner.into(),
        identity: None,
        // Nobody renews it, so it must last for as long as a test on a busy machine.
        ttl: Duration::from_mins(1),
        until: Instant::now() + wait,
        gone: CancellationToken::new(),
    }
}

#[track_caller]
pub fn granted(turn: Turn) -> Grant {
    match turn {
        Turn::Granted(grant) => grant,
        Turn::Held(holder) => panic!("held by {holder:?}"),
    }
}

pub async fn acquire(authority: &EtcdAuthority, name: &Key, wait: Duration) -> Grant {
    granted(authority.acquire(&ask(name, "somebody", wait)).await.expect("an answer"))
}

#[tokio::test]
async fn a_token_is_the_create_revision_that_etcdctl_shows() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = etcd::authority(etcd, &held.open().await);
    let name = unique_key("token");
    let mut last = 0;
    for _ in 0..3 {
        let grant = acquire(&authority, &name, Duration::ZERO).await;
        let entries = etcd.entries(name.as_str());
        assert_eq!(entries, [(format!("{}/{}", name.as_str(), grant.lease), grant.token.get())]);
        assert!(grant.token.get() > last);
        last = grant.token.get();
        assert!(authority.release(&name, grant.token).await.expect("an answer"));
        assert_eq!(etcd.entries(name.as_str()), []);
    }
}

#[tokio::test]
async fn a_held_lock_is_told_with_its_holder_and_entering_leaves_no_trace() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = etcd::authority(etcd, &held.open().await);
    let name = unique_key("held");
    let grant = acquire(&authority, &name, Duration::ZERO).await;
    // Once by entering, and then by a mere look.
    for other in [etcd::authority(etcd, &held.open().await), authority] {
        for _ in 0..2 {
            let turn = other.acquire(&ask(&name, "late", Duration::ZERO)).await.expect("an answer");
            let Turn::Held(Some(holder)) = turn else { panic!("{turn:?}") };
            assert_eq!((holder.token, &*holder.owner), (grant.token, "somebody"));
            assert!(holder.remaining > Duration::from_secs(20), "{holder:?}");
            assert_eq!(etcd.entries(name.as_str()).len(), 1);
        }
    }
}

#[tokio::test]
async fn waiters_get_their_turn_in_the_order_they_came() {
    const WAITERS: usize = 40;
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let store = held.open().await;
    // Two fenceposts, to see that it is etcd's order and not a process's own.
    let authorities = [0, 1].map(|_| Arc::new(etcd::authority(etcd, &store)));
    let name = unique_key("fifo");
    let first = acquire(&authorities[0], &name, Duration::ZERO).await;
    let (turns, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..WAITERS {
        let (authority, name, turns) =
            (authorities[number % 2].clone(), name.clone(), turns.clone());
        tokio::spawn(async move {
            let grant = acquire(&authority, &name, PATIENCE).await;
            turns.send((number, grant.token)).expect("the test goes on");
            assert!(authority.release(&name, grant.token).await.expect("an answer"));
        });
        // The next one comes when this one is in the queue.
        eventually("it has entered", || async {
            authorities[0].inspect(&first.name).await.expect("a state").waiters == number as u64 + 1
        })
        .await;
    }
    assert!(authorities[1].release(&first.name, first.token).await.expect("an answer"));
    let mut last = first.token;
    for expected in 0..WAITERS {
        let (number, token) = order.recv().await.expect("a turn");
        assert_eq!(number, expected);
        assert!(token > last, "tokens rise");
        last = token;
    }
}

#[tokio::test]
async fn whoever_gives_up_leaves_neither_key_nor_lease() {
    let (etcd, held) = (etcd::Etcd::start(&[]).await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(&etcd, &held.open().await));
    let name = unique_key("gives-up");
    let grant = acquire(&authority, &name, Duration::ZERO).await;

    let wait = Duration::from_millis(300);
    let turn = authority.acquire(&ask(&name, "impatient", wait)).await.expect("an answer");
    assert!(matches!(turn, Turn::Held(Some(_))), "{turn:?}");
    assert_eq!(etcd.entries(name.as_str()).len(), 1);
    assert_eq!(etcd.leases().as_slice(), std::slice::from_ref(&grant.lease));

    let hangs_up = ask(&name, "hangs up", PATIENCE);
    let gone = hangs_up.gone.clone();
    let waiting = tokio::spawn({
        let authority = authority.clone();
        async move { authority.acquire(&hangs_up).await }
    });
    eventually("it waits", || async { etcd.entries(name.as_str()).len() == 2 }).await;
    gone.cancel();
    assert_eq!(waiting.await.expect("no panic").expect("an answer"), Turn::Held(None));
    assert_eq!(etcd.leases(), [grant.lease]);
    assert_eq!(authority.inspect(&name).await.expect("a state").waiters, 0);

    assert!(authority.release(&name, grant.token).await.expect("an answer"));
    eventually("the lease is revoked", || async { etcd.leases().is_empty() }).await;
}

/// Leases may be granted ahead, but each is used once, and in the end none is left.
#[tokio::test]
async fn locks_in_quick_succession_have_leases_of_their_own() {
    let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    let name = unique_key("quick");
    let mut grants = Vec::new();
    for _ in 0..40 {
        let grant = acquire(&authority, &name, Duration::ZERO).await;
        assert!(authority.release(&name, grant.token).await.expect("an answer"));
        grants.push(grant);
    }
    assert!(grants.windows(2).all(|pair| pair[0].token < pair[1].token), "{grants:?}");
    let leases: HashSet<_> = grants.iter().map(|grant| &grant.lease).collect();
    assert_eq!(leases.len(), grants.len());
    eventually("all leases are revoked", || async { etcd.leases().is_empty() }).await;
}

/// Takes locks in quick succession, until there is a lease that none of them has.
async fn until_a_lease_is_ready(etcd: &Etcd, authority: &EtcdAuthority) -> HashSet<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut in_use = HashSet::new();
    // On a busy machine the succession may not be quick enough at once.
    loop {
        let ready: HashSet<_> =
            etcd.leases().into_iter().filter(|lease| !in_use.contains(lease)).collect();
        if !ready.is_empty() {
            return ready;
        }
        assert!(Instant::now() < deadline, "no lease was granted ahead");
        for _ in 0..12 {
            in_use.insert(acquire(authority, &unique_key("ahead"), Duration::ZERO).await.lease);
        }
    }
}

#[tokio::test]
async fn where_locks_are_taken_in_quick_succession_a_lease_is_kept_ready() {
    let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    until_a_lease_is_ready(&etcd, &authority).await;
}

/// As when etcd is wiped. Nobody holds the lock then, so nobody is told so.
#[tokio::test]
async fn who_cannot_wait_gets_a_free_lock_even_if_its_lease_was_lost() {
    let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    for lease in until_a_lease_is_ready(&etcd, &authority).await {
        etcd.ctl(&["lease", "revoke", &lease]);
    }
    // One of them is meant to have it.
    for _ in 0..5 {
        acquire(&authority, &unique_key("lost"), Duration::ZERO).await;
    }
}

#[tokio::test]
async fn the_lease_that_etcd_really_gave_is_told() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = etcd::authority(etcd, &held.open().await);
    let name = unique_key("least");
    let shortest = Ask { ttl: Duration::from_secs(1), ..ask(&name, "short", Duration::ZERO) };
    let grant = granted(authority.acquire(&shortest).await.expect("an answer"));
    // etcd has a minimum of its own.
    assert!(grant.ttl >= Duration::from_secs(2), "{grant:?}");
}

#[tokio::test]
async fn a_renewal_by_any_fencepost_keeps_a_lock_and_never_resurrects_it() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let store = held.open().await;
    let [one, other] = [0, 1].map(|_| etcd::authority(etcd, &store));
    let name = unique_key("renewed");
    let short = Ask { ttl: Duration::from_secs(12), ..ask(&name, "short", Duration::ZERO) };
    let grant = granted(one.acquire(&short).await.expect("an answer"));
    let deadline = Instant::now() + grant.ttl * 3 / 2;
    while Instant::now() < deadline {
        for authority in [&other, &one] {
            let renewed = authority.renew(&name, grant.token).await.expect("an answer");
            assert_eq!(renewed, Some(grant.ttl));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    eventually("the lease ends", || async { etcd.entries(name.as_str()).is_empty() }).await;
    for authority in [&one, &other] {
        assert_eq!(authority.renew(&name, grant.token).await.expect("an answer"), None);
        assert!(!authority.release(&name, grant.token).await.expect("an answer"));
    }
    // Not even when somebody else has it now.
    let next = acquire(&other, &name, Duration::ZERO).await;
    assert!(next.token > grant.token);
    assert_eq!(one.renew(&name, grant.token).await.expect("an answer"), None);
    assert!(!one.release(&name, grant.token).await.expect("an answer"));
    let holder = one.inspect(&name).await.expect("a state").holder.expect("a holder");
    assert_eq!(holder.token, next.token);
    // Nor under another lock's name.
    let elsewhere = unique_key("elsewhere");
    assert_eq!(one.renew(&elsewhere, next.token).await.expect("an answer"), None);
    assert!(!one.release(&elsewhere, next.token).await.expect("an answer"));
    assert!(one.release(&name, next.token).await.expect("an answer"));
    // The one who granted it has not been told, and its lease lives on for a moment.
    assert_eq!(other.renew(&name, next.token).await.expect("an answer"), None);
    assert!(!other.release(&name, next.token).await.expect("an answer"));
}

#[tokio::test]
async fn a_waiter_keeps_its_place_beyond_its_lease_and_gets_a_fresh_one() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(etcd, &held.open().await));
    let name = unique_key("long-wait");
    let first = acquire(&authority, &name, Duration::ZERO).await;
    let lease = Duration::from_secs(9);
    let waiter = Ask { ttl: lease, ..ask(&name, "patient", PATIENCE + lease * 2) };
    let waiting = tokio::spawn({
        let authority = authority.clone();
        async move { authority.acquire(&waiter).await }
    });
    eventually("it waits", || async { etcd.entries(name.as_str()).len() == 2 }).await;
    let entries = etcd.entries(name.as_str());
    // Between two of its own renewals, which come in every third of the lease.
    tokio::time::sleep(lease * 23 / 18).await;
    assert_eq!(etcd.entries(name.as_str()), entries, "the same entry, after more than its lease");
    let released = Instant::now();
    assert!(authority.release(&name, first.token).await.expect("an answer"));
    let grant = granted(waiting.await.expect("no panic").expect("an answer"));
    assert_eq!(grant.token.get(), entries[1].1);
    assert!(grant.renewed >= released, "its lease is fresh");
}
