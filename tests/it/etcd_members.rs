//! Which member of etcd is asked, and for how long. Here the members are ways to one and the same etcd, some of them closed.

use std::{sync::Arc, time::Duration};

use fencepost::{
    authority::{
        Ask, Authority, AuthorityError,
        etcd::{EtcdAuthority, EtcdOptions},
    },
    store::Store,
};

use crate::{
    etcd_locks::{acquire, ask, granted},
    harness::{
        PATIENCE,
        chaos_proxy::{ChaosProxy, Weather},
        etcd::{self, Etcd, unique_key},
        eventually,
        fencepost::Fencepost,
        store::TestStore,
    },
};

fn authority(members: &[String], store: &Arc<dyn Store>) -> EtcdAuthority {
    let options =
        EtcdOptions { members: members.into(), tls: None, user: None, prefix: String::new() };
    EtcdAuthority::start(options, store)
}

async fn way_to(etcd: &Etcd) -> (ChaosProxy, String) {
    let port = etcd.address().rsplit(':').next().unwrap().parse().unwrap();
    let way = ChaosProxy::before(port).await;
    let address = format!("127.0.0.1:{}", way.port());
    (way, address)
}

/// Nobody listens there: no server, and no test, is given such a port.
fn closed(number: u8) -> String {
    format!("127.0.0.1:{number}")
}

#[tokio::test]
async fn a_member_that_is_down_is_passed_over_from_the_start() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = authority(&[closed(1), etcd.address()], &held.open().await);
    acquire(&authority, &unique_key("passed-over"), Duration::ZERO).await;
    assert!(authority.status().up);
}

/// Where etcd has not been heard of for long, whoever asks is told so at once.
#[tokio::test]
async fn while_no_member_answers_nobody_is_kept_waiting() {
    let held = TestStore::sqlite();
    let authority = authority(&[closed(1), closed(2)], &held.open().await);
    let waits = ask(&unique_key("away"), "us", PATIENCE * 10);
    let refused = tokio::time::timeout(PATIENCE, authority.acquire(&waits)).await.expect("in time");
    assert!(matches!(refused, Err(AuthorityError::Unavailable(_))), "{refused:?}");
    assert!(!authority.status().up);
}

/// A renewal has no more time than the lease. A third of it is enough to see that a member is silent.
#[tokio::test]
async fn a_silent_member_does_not_cost_a_holder_its_short_lease() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let (way, address) = way_to(etcd).await;
    let authority = authority(&[address, etcd.address()], &held.open().await);
    let name = unique_key("short");
    let shortest = Ask { ttl: Duration::from_secs(2), ..ask(&name, "short", PATIENCE) };
    let grant = granted(authority.acquire(&shortest).await.expect("an answer"));
    way.set(Weather::Stalled);
    let renewed = authority.renew(&name, grant.token).await.expect("an answer in time");
    // Later than that it may have ended by itself: a machine can be slow.
    if grant.renewed.elapsed() < grant.ttl {
        assert_eq!(renewed, Some(grant.ttl));
    }
}

#[tokio::test]
async fn all_questions_go_over_one_connection() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let (way, address) = way_to(etcd).await;
    let authority = authority(&[address], &held.open().await);
    // Whoever comes first finds none, and makes one.
    acquire(&authority, &unique_key("first"), PATIENCE).await;
    let before = way.links();
    for _ in 0..5 {
        let grant = acquire(&authority, &unique_key("next"), PATIENCE).await;
        assert!(authority.release(&grant.name, grant.token).await.expect("an answer"));
    }
    assert_eq!(way.links(), before);
}

#[tokio::test]
async fn the_log_names_the_version_of_each_member() {
    let (etcd, store) = (Etcd::start(&[]).await, TestStore::sqlite());
    let server = Fencepost::with(&store, &["--authority", &etcd.url()]).await;
    eventually("the version is logged", || async {
        server.log().lines().any(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
            entry["version"] == etcd.version()
                && entry["member"] == format!("http://{}", etcd.address())
        })
    })
    .await;
}
