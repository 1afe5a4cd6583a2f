//! A store that the previous release has served, and one that it goes on serving during a rollout. It does not know
//! the record, but the database does.

use fencepost::store::OwningAuthority;

use super::{lock, recorded, serve, try_lock};
use crate::harness::{
    etcd::{Etcd, unique},
    eventually,
    fencepost::{Fencepost, run, run_previous},
    http::answer,
    postgres::{self, apply_roles},
    store::TestStore,
};

/// A database that the previous release has migrated, on its own server or not.
struct Previous {
    owner: String,
    serving: String,
}

impl Previous {
    async fn on_postgres() -> Self {
        let superuser = postgres::database().await;
        apply_roles(&superuser).await;
        let [owner, serving] = ["fencepost_owner@", "fencepost_serve@"]
            .map(|role| superuser.replace("postgres@", role));
        let migrated = run_previous(&["migrate", "--store", &owner]);
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
        Self { owner, serving }
    }

    fn on_sqlite(store: &TestStore) -> Self {
        Self { owner: store.url.clone(), serving: store.url.clone() }
    }

    async fn serve(&self, authority: &str) -> Fencepost {
        let flags = ["--authority", authority];
        let migrates = [&["--migrate"], &flags[..]].concat();
        let flags = if self.serving.starts_with("sqlite") { &migrates[..] } else { &flags };
        let server = Fencepost::start_previous(&self.serving, flags);
        server.wait_until_ready().await;
        server
    }

    fn upgrade(&self) {
        let migrated = run(&["migrate", "--store", &self.owner]);
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    }

    /// What `fencepost authority` says of it, if it is recorded.
    fn recorded(&self) -> Option<serde_json::Value> {
        let shown = run(&["authority", "--store", &self.serving, "-o", "json"]);
        shown.status.success().then(|| serde_json::from_slice(&shown.stdout).expect("JSON"))
    }
}

async fn each_store() -> Vec<(Previous, Option<TestStore>)> {
    let file = TestStore::sqlite();
    vec![(Previous::on_sqlite(&file), Some(file)), (Previous::on_postgres().await, None)]
}

#[tokio::test]
async fn an_upgrade_records_the_authority_that_was_in_use() {
    let etcd = Etcd::start(&[]).await;
    for (store, _file) in each_store().await {
        let old = store.serve("store").await;
        lock(&old.client(), "k").await;
        drop(old);
        store.upgrade();
        assert_eq!(store.recorded().expect("a record")["kind"], "store");
        let flags = ["--authority", &etcd.url()];
        let refused = Fencepost::start_as_it_is(&store.serving, &flags).refusal().await;
        assert!(refused.contains("belongs to store"), "{refused}");
    }
    for (store, _file) in each_store().await {
        let (old, name) = (store.serve(&etcd.url()).await, unique("k"));
        let token = lock(&old.client(), &name).await;
        answer(old.client().release(&name, token)).await;
        drop(old);
        store.upgrade();
        let record = store.recorded().expect("a record");
        assert_eq!(record["kind"], "etcd");
        assert!(record["identity"].is_string() && record["namespace"].is_null(), "{record}");
        let refused = Fencepost::start_as_it_is(&store.serving, &["--authority", "store"]);
        assert!(refused.refusal().await.contains("belongs to etcd"));
        // What the previous release did not know is added by the first that does.
        let new = Fencepost::start_as_it_is(&store.serving, &["--authority", &etcd.url()]);
        new.wait_until_ready().await;
        assert!(lock(&new.client(), &name).await > token);
        assert_eq!(store.recorded().expect("a record")["namespace"], "");
    }
}

/// Tokens came from elsewhere, or from both: no record is better than a wrong one, which would refuse to start.
#[tokio::test]
async fn an_upgrade_records_nothing_that_is_not_certain() {
    let etcd = Etcd::start(&[]).await;
    for (store, _file) in each_store().await {
        let old = store.serve("none").await;
        assert_eq!(answer(old.client().put("k", 41, "v")).await.status, 201);
        drop(old);
        store.upgrade();
        assert_eq!(store.recorded(), None);
        let new = Fencepost::start_as_it_is(&store.serving, &["--authority", "store"]);
        new.wait_until_ready().await;
        assert_eq!(store.recorded().expect("a record")["kind"], "store");
        assert_eq!(lock(&new.client(), "k").await, 42);
    }
    for (store, _file) in each_store().await {
        let mut last = 0;
        for authority in [&etcd.url(), "store"] {
            let old = store.serve(authority).await;
            last = lock(&old.client(), "k").await;
            answer(old.client().release("k", last)).await;
        }
        store.upgrade();
        assert_eq!(store.recorded(), None);
        // Even an etcd that was never seen here: the first to serve has it.
        let other = Etcd::start(&[]).await;
        let new = Fencepost::start_as_it_is(&store.serving, &["--authority", &other.url()]);
        new.wait_until_ready().await;
        assert!(lock(&new.client(), "k").await > last);
        assert_eq!(store.recorded().expect("a record")["kind"], "etcd");
    }
}

/// The forgotten flag, on an instance that the rollout has not reached.
#[tokio::test]
async fn the_previous_release_grants_nothing_from_another_authority() {
    let etcd = Etcd::start(&[]).await;
    let store = Previous::on_postgres().await;
    let with_table = store.serve("store").await;
    let with_etcd = store.serve(&etcd.url()).await;
    store.upgrade();
    let new = Fencepost::start_as_it_is(&store.serving, &["--authority", &etcd.url()]);
    new.wait_until_ready().await;
    let held = lock(&new.client(), "k").await;
    let refused = try_lock(&with_table.client(), "k").await;
    assert_eq!((refused.status, &*refused.problem()), (503, "authority-unavailable"));
    // With the store's authority it goes on.
    assert_eq!(answer(new.client().release("k", held)).await.status, 204);
    let next = lock(&with_etcd.client(), "k").await;
    assert!(next > held);
    assert_eq!(answer(with_etcd.client().put("k", next, "v")).await.status, 201);
}

#[tokio::test]
async fn the_previous_release_claims_a_store_that_belongs_to_nobody() {
    for authority in ["etcd", "store"] {
        let etcd = Etcd::start(&[]).await;
        let store = Previous::on_postgres().await;
        store.upgrade();
        assert_eq!(store.recorded(), None);
        let url = etcd.url();
        let old = store.serve(if authority == "etcd" { &url } else { authority }).await;
        lock(&old.client(), "k").await;
        assert_eq!(store.recorded().expect("a record")["kind"], authority);
        let other = if authority == "etcd" { "store" } else { &url };
        let refused = Fencepost::start_as_it_is(&store.serving, &["--authority", other]);
        assert!(refused.refusal().await.contains(&format!("belongs to {authority}")));
    }
}

/// It would move the epoch with every look, back and forth.
#[tokio::test]
async fn the_previous_release_moves_no_epoch_for_another_etcd() {
    let [ours, other] = [Etcd::start(&[]).await, Etcd::start(&[]).await];
    let store = TestStore::postgres().await;
    let new = serve(&store, &ours.url(), &[]).await;
    lock(&new.client(), "k").await;
    let before = recorded(&store).await;
    let stray = Fencepost::start_previous(&store.to_serve().await, &["--authority", &other.url()]);
    stray.wait_until_ready().await;
    for _ in 0..10 {
        let refused = try_lock(&stray.client(), "k").await;
        assert_eq!((refused.status, &*refused.problem()), (503, "authority-unavailable"));
    }
    lock(&new.client(), "another").await;
    assert_eq!(recorded(&store).await, before);
    let epoch: i32 = postgres::fetch(&store.url, "SELECT epoch FROM fencepost.authority").await;
    assert_eq!(epoch, 0);
    // And it follows where an operator has moved the store to.
    super::move_to(&store, &other.url(), &[]).await;
    eventually("it grants", || async { try_lock(&stray.client(), "k").await.status == 201 }).await;
    is_not_store(&recorded(&store).await);
}

#[track_caller]
fn is_not_store(recorded: &OwningAuthority) {
    assert_eq!(recorded.kind, "etcd");
}
