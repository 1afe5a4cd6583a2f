//! Three members of etcd, of which some are killed or frozen: waiters go on waiting, and holders
//! keep their locks for as long as a quorum can renew them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use fencepost::{
    authority::{Ask, Authority, AuthorityError, Grant, etcd::EtcdAuthority},
    token::Token,
};
use nix::sys::signal::Signal;
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    etcd_locks::{acquire, ask, granted},
    harness::{
        PATIENCE,
        etcd::{Cluster, unique_key},
        eventually,
        store::TestStore,
    },
};

/// Renews a grant until it is told to stop; panics as soon as the lock is lost.
struct Renewing {
    stop: Arc<AtomicBool>,
    renewals: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl Renewing {
    fn start(authority: &Arc<EtcdAuthority>, grant: &Grant) -> Self {
        let (stop, renewals) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let task = tokio::spawn({
            let (authority, grant) = (authority.clone(), grant.clone());
            let (stop, renewals) = (stop.clone(), renewals.clone());
            async move {
                while !stop.load(Ordering::Relaxed) {
                    match authority.renew(&grant.name, grant.token).await {
                        Ok(renewed) => {
                            assert_eq!(renewed, Some(grant.ttl), "the lock was lost");
                            renewals.fetch_add(1, Ordering::Relaxed);
                        }
                        // No answer in time is no loss: the lease is longer than an election.
                        Err(AuthorityError::Unavailable(_)) => {}
                        Err(other) => panic!("{other}"),
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
        Self { stop, renewals, task }
    }

    /// Waits for some more renewals from here on.
    async fn goes_on(&self) {
        let now = self.renewals.load(Ordering::Relaxed);
        eventually("it is renewed", || async {
            assert!(!self.task.is_finished(), "the lock was lost");
            self.renewals.load(Ordering::Relaxed) > now + 5
        })
        .await;
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("it was never lost");
    }
}

async fn wait_in_line(
    cluster: &Cluster,
    authority: &Arc<EtcdAuthority>,
    first: &Grant,
    count: usize,
) -> Vec<JoinHandle<Token>> {
    let mut waiters = Vec::new();
    for number in 1..=count {
        let (authority, name) = (authority.clone(), first.name.clone());
        waiters.push(tokio::spawn(async move {
            let grant = acquire(&authority, &name, PATIENCE * 2).await;
            assert!(authority.release(&name, grant.token).await.expect("an answer"));
            grant.token
        }));
        eventually("it waits", || async {
            cluster.members[0].entries(first.name.as_str()).len() == number + 1
        })
        .await;
    }
    waiters
}

#[tokio::test]
async fn nobody_loses_a_lock_or_a_place_when_the_leader_is_killed() {
    let (mut cluster, held) = (Cluster::start().await, TestStore::sqlite());
    let authority = Arc::new(cluster.authority(&held.open().await));
    let first = acquire(&authority, &unique_key("leader"), Duration::ZERO).await;
    let waiters = wait_in_line(&cluster, &authority, &first, 5).await;
    let renewing = Renewing::start(&authority, &first);
    renewing.goes_on().await;
    let leader = cluster.leader();
    cluster.members[leader].kill();
    renewing.goes_on().await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    renewing.stop().await;
    assert_eq!(authority.status().epoch, 0, "a new leader is no new etcd");
    assert!(authority.release(&first.name, first.token).await.expect("an answer"));
    let mut last = first.token;
    for waiter in waiters {
        let token = waiter.await.expect("it got its turn");
        assert!(token > last, "in the order they came");
        last = token;
    }
    // And with the member back, the leader once more.
    cluster.members[leader].run().await;
    let again = acquire(&authority, &first.name, PATIENCE).await;
    assert!(again.token > last);
}

#[tokio::test]
async fn a_frozen_member_is_left_aside() {
    let (cluster, held) = (Cluster::start().await, TestStore::sqlite());
    let authority = Arc::new(cluster.authority(&held.open().await));
    let first = acquire(&authority, &unique_key("frozen"), Duration::ZERO).await;
    let waiters = wait_in_line(&cluster, &authority, &first, 2).await;
    let renewing = Renewing::start(&authority, &first);
    renewing.goes_on().await;
    // The one that is asked first: it answers nothing, and refuses nothing.
    cluster.members[0].signal(Signal::SIGSTOP);
    renewing.goes_on().await;
    renewing.stop().await;
    assert!(authority.release(&first.name, first.token).await.expect("an answer"));
    for waiter in waiters {
        waiter.await.expect("it got its turn");
    }
    cluster.members[0].signal(Signal::SIGCONT);
}

#[tokio::test]
async fn without_a_quorum_a_holder_is_told_within_its_lease() {
    let (cluster, held) = (Cluster::start().await, TestStore::sqlite());
    let authority = Arc::new(cluster.authority(&held.open().await));
    let name = unique_key("quorum");
    let short = Ask { ttl: Duration::from_secs(4), ..ask(&name, "us", Duration::ZERO) };
    let grant = granted(authority.acquire(&short).await.expect("an answer"));
    for member in &cluster.members[1..] {
        member.signal(Signal::SIGSTOP);
    }
    let mut asked;
    loop {
        asked = Instant::now();
        match authority.renew(&name, grant.token).await {
            // The isolated leader may not have noticed yet; but a renewal that succeeded did so
            // with a quorum, before they froze.
            Ok(renewed) => assert_eq!(renewed, Some(grant.ttl)),
            Err(AuthorityError::Unavailable(_)) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(asked.elapsed() < grant.ttl + PATIENCE, "{:?}", asked.elapsed());
    let other = unique_key("other");
    let refused = authority.acquire(&ask(&other, "us", Duration::ZERO)).await;
    assert!(matches!(refused, Err(AuthorityError::Unavailable(_))), "{refused:?}");
    eventually("it is known to be down", || async { !authority.status().up }).await;
    for member in &cluster.members[1..] {
        member.signal(Signal::SIGCONT);
    }
    eventually("it is up again", || async { authority.status().up }).await;
    acquire(&authority, &other, PATIENCE).await;
    assert_eq!(authority.status().epoch, 0);
}
