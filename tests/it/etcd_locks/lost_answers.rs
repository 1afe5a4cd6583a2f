//! What was asked of etcd has happened, and its answer was lost on the way. So it is asked again.

use std::sync::Arc;

use fencepost::{
    authority::{
        Authority,
        etcd::{EtcdAuthority, EtcdOptions},
    },
    token::Key,
};

use super::{acquire, ask, granted};
use crate::harness::{
    PATIENCE,
    chaos_proxy::{ChaosProxy, Weather},
    etcd::{Etcd, unique_key},
    eventually,
    store::TestStore,
};

struct Stage {
    etcd: Etcd,
    link: ChaosProxy,
    authority: Arc<EtcdAuthority>,
    name: Key,
    _held: TestStore,
}

impl Stage {
    async fn new() -> Self {
        let (etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
        let port = etcd.address().rsplit(':').next().unwrap().parse().unwrap();
        let link = ChaosProxy::before(port).await;
        let options = EtcdOptions {
            members: vec![format!("127.0.0.1:{}", link.port())],
            tls: None,
            user: None,
            prefix: String::new(),
        };
        let authority = Arc::new(EtcdAuthority::start(options, &held.open().await));
        // So that etcd is known to answer, and worth asking again.
        acquire(&authority, &unique_key("before"), PATIENCE).await;
        Self { etcd, link, authority, name: unique_key("answer"), _held: held }
    }

    /// The connection is lost, with all that was under way, and there is another one.
    fn reconnect(&self) {
        self.link.set(Weather::Cut);
        self.link.set(Weather::Fair);
    }
}

#[tokio::test]
async fn a_lease_and_a_place_are_the_same_when_they_are_asked_for_again() {
    let stage = Stage::new().await;
    let leases = stage.etcd.leases().len();
    stage.link.set(Weather::AnswersStalled);
    let acquiring = tokio::spawn({
        let (authority, name) = (stage.authority.clone(), stage.name.clone());
        async move { authority.acquire(&ask(&name, "us", PATIENCE)).await }
    });
    eventually("etcd has made the lease", || async { stage.etcd.leases().len() > leases }).await;
    stage.reconnect();
    let grant = granted(acquiring.await.unwrap().expect("an answer"));
    let entries = stage.etcd.entries(stage.name.as_str());
    assert_eq!(entries, [(format!("{}/{}", stage.name, grant.lease), grant.token.get())]);
}

#[tokio::test]
async fn a_release_that_has_happened_is_told_as_one() {
    let stage = Stage::new().await;
    let grant = acquire(&stage.authority, &stage.name, PATIENCE).await;
    stage.link.set(Weather::AnswersStalled);
    let releasing = tokio::spawn({
        let (authority, name) = (stage.authority.clone(), stage.name.clone());
        async move { authority.release(&name, grant.token).await }
    });
    eventually("etcd has removed it", || async {
        stage.etcd.entries(stage.name.as_str()).is_empty()
    })
    .await;
    stage.reconnect();
    assert!(releasing.await.unwrap().expect("an answer"), "it was ours until we released it");
}

#[tokio::test]
async fn a_lock_that_ended_before_it_could_be_released_was_lost() {
    let stage = Stage::new().await;
    let grant = acquire(&stage.authority, &stage.name, PATIENCE).await;
    stage.link.set(Weather::RequestsStalled);
    let releasing = tokio::spawn({
        let (authority, name) = (stage.authority.clone(), stage.name.clone());
        async move { authority.release(&name, grant.token).await }
    });
    // As it would end if nobody had renewed it for long.
    stage.etcd.ctl(&["lease", "revoke", &grant.lease]);
    stage.reconnect();
    assert!(!releasing.await.unwrap().expect("an answer"));
}
