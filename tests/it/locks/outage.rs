//! A lock that nobody needs any more is released even if its lock service was away just then: as soon
//! as it is back, and not when the lease ends.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{
    etcd::Etcd, eventually, fencepost::Fencepost, http::answer, postgres::Postgres,
    store::TestStore,
};

/// Far longer than the test.
const TTL_MS: u64 = 600_000;

async fn release_is_put_off(server: &Fencepost) {
    let put_off = || async { server.log().contains("could not be released yet") };
    eventually("a release is put off", put_off).await;
}

async fn is_free_again(server: &Fencepost) {
    eventually("the lock is free", || async {
        let state = answer(server.client().get("/v1/locks/k")).await;
        state.status == 200 && state.json()["held"] == false
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_closes_while_etcd_is_away_is_released_when_it_is_back() {
    let etcd = Etcd::start(&[]).await;
    let store = TestStore::sqlite();
    let flags = ["--authority", &etcd.url(), "--log", "debug"];
    let server = Fencepost::with(&store, &flags).await;
    let mut hold = server.client().hold("k", &json!({"ttl_ms": TTL_MS})).await;
    hold.expect("granted").await;
    etcd.signal(Signal::SIGSTOP);
    drop(hold);
    release_is_put_off(&server).await;
    etcd.signal(Signal::SIGCONT);
    is_free_again(&server).await;
}

#[tokio::test]
async fn a_hold_that_closes_while_postgres_is_away_is_released_when_it_is_back() {
    let mut cluster = Postgres::start(&["fsync=off"]).await;
    let url = cluster.database("").await;
    let server = Fencepost::start(&url, &["--authority", "store", "--log", "debug"]);
    server.wait_until_ready().await;
    let mut hold = server.client().hold("k", &json!({"ttl_ms": TTL_MS})).await;
    hold.expect("granted").await;
    cluster.stop("fast").await;
    drop(hold);
    release_is_put_off(&server).await;
    cluster.run().await;
    is_free_again(&server).await;
}
