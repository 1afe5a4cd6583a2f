//! A standby takes over. What was acknowledged is still there, if it was replicated synchronously; and if
//! it was not, whoever had been fenced off stays so all the same.

use std::time::{Duration, Instant};

use reqwest::RequestBuilder;
use serde_json::json;

use crate::harness::{
    PATIENCE,
    chaos_proxy::Weather,
    etcd,
    fencepost::{Fencepost, run},
    http::{Answer, Client, answer},
    pair::Pair,
    pgbouncer::Pgbouncer,
};

/// Again, for as long as it fails or nobody knows: a server has just died.
async fn insist(request: RequestBuilder) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = answer(request.try_clone().expect("a body in memory")).await;
        if ![503, 504].contains(&answer.status) || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn acquire(client: &Client, lock: &str) -> i64 {
    let request = client
        .request(reqwest::Method::POST, &format!("/v1/locks/{lock}"))
        .header("Content-Type", "application/json")
        .body(json!({ "ttl_ms": 60_000, "wait_ms": 10_000 }).to_string());
    let granted = insist(request).await;
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].as_i64().expect("a token")
}

async fn release(client: &Client, lock: &str, token: i64) -> Answer {
    let request = client.request(reqwest::Method::DELETE, &format!("/v1/locks/{lock}"));
    insist(request.header("X-Fencing-Token", token)).await
}

/// The newer holder is acknowledged, the standby never hears of it, and takes over. A fencepost that was
/// there all the time and one that has seen nothing must both refuse the older one.
async fn stays_fenced_off(authority: &str) -> i64 {
    let mut pair = Pair::start().await;
    let server = Fencepost::start(&pair.url, &["--authority", authority]);
    server.wait_until_ready().await;
    let client = server.client();
    let lock = etcd::unique("failover");
    let older = acquire(&client, &lock).await;
    assert_eq!(answer(client.put(&lock, older, "older")).await.status, 201);
    assert_eq!(release(&client, &lock, older).await.status, 204);
    pair.wait_until_replicated().await;
    pair.replication.set(Weather::Cut);
    let newer = acquire(&client, &lock).await;
    assert_eq!(answer(client.put(&lock, newer, "newer")).await.status, 200);

    pair.fail_over().await;
    let innocent = Fencepost::start_as_it_is(&pair.url, &["--authority", authority]);
    innocent.wait_until_ready().await;
    // Not even a reader is told of a mark that has fallen.
    let mark = insist(innocent.client().get(&format!("/v1/marks/{lock}"))).await.json();
    assert!(mark["token"].as_i64() >= Some(newer), "{mark} after {newer}");
    let refused = insist(innocent.client().put(&lock, older, "zombie")).await;
    assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
    assert!(pair.floor().await > older, "the floor has risen");
    let refused = insist(client.put(&lock, older, "zombie")).await;
    assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));

    // What the newer one wrote is gone, as asynchronous replication has it; its token is not reused.
    release(&client, &lock, newer).await;
    let newest = acquire(&innocent.client(), &lock).await;
    assert!(newest > newer, "{newest} after {newer}");
    assert_eq!(insist(innocent.client().put(&lock, newest, "newest")).await.status, 200);
    assert_eq!(insist(client.put(&lock, newest, "again")).await.status, 200);
    // Once is enough: nobody raises the floor again.
    let floor = pair.floor().await;
    let another = Fencepost::start_as_it_is(&pair.url, &["--authority", authority]);
    another.wait_until_ready().await;
    assert_eq!(insist(another.client().put(&lock, newest, "still")).await.status, 200);
    assert_eq!(pair.floor().await, floor);
    newest
}

#[tokio::test]
async fn a_lost_mark_lets_nobody_back_in_with_tokens_from_etcd() {
    let newest = stays_fenced_off(&etcd::url_of_shared().await).await;
    assert_eq!(newest >> 48, 0, "etcd has lost nothing, and no epoch is spent");
}

#[tokio::test]
async fn a_lost_mark_lets_nobody_back_in_with_tokens_from_the_store() {
    stays_fenced_off("store").await;
}

/// The lock table has forgotten its last tokens, and so has everybody else.
#[tokio::test]
async fn a_lost_token_is_not_issued_again_though_nobody_remembers_it() {
    let mut pair = Pair::start().await;
    let server = Fencepost::start(&pair.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let older = acquire(&server.client(), "lock").await;
    assert_eq!(release(&server.client(), "lock", older).await.status, 204);
    pair.wait_until_replicated().await;
    pair.replication.set(Weather::Cut);
    // More than the 32 by which a sequence is ahead in the log.
    for _ in 0..40 {
        let token = acquire(&server.client(), "other").await;
        assert_eq!(release(&server.client(), "other", token).await.status, 204);
    }
    let lost = acquire(&server.client(), "lock").await;
    assert_eq!(answer(server.client().put("lock", lost, "lost")).await.status, 201);
    drop(server);

    pair.fail_over().await;
    let innocent = Fencepost::start_as_it_is(&pair.url, &["--authority", "store"]);
    innocent.wait_until_ready().await;
    for zombie in [older, lost] {
        let refused = insist(innocent.client().put("lock", zombie, "zombie")).await;
        assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
    }
    let newest = acquire(&innocent.client(), "lock").await;
    assert!(newest > lost, "{newest} after {lost}");
}

/// Its sessions do not end with their server, so nobody would ask who it is.
#[tokio::test]
async fn a_pooler_that_leads_to_another_server_is_noticed() {
    let mut pair = Pair::start().await;
    let direct = pair.primary.url(&pair.database);
    assert!(run(&["migrate", "--store", &direct]).status.success());
    // So that it is not late to notice that the other server answers.
    let pgbouncer = Pgbouncer::before_port(pair.way.port(), 3, "server_login_retry = 1").await;
    let server = Fencepost::start_as_it_is(&pgbouncer.url(&pair.url), &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let older = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("lock", older, "older")).await.status, 201);
    pair.wait_until_replicated().await;
    pair.replication.set(Weather::Cut);
    let lost = answer(client.put("lock", older, "lost")).await;
    assert_eq!(lost.status, 200, "{}", lost.text());

    pair.fail_over().await;
    let refused = insist(client.put("lock", older, "zombie")).await;
    assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
    assert!(pair.floor().await > older, "the floor has risen");
    release(&client, "lock", older).await;
    let newest = acquire(&client, "lock").await;
    assert_eq!(insist(client.put("lock", newest, "newest")).await.status, 200);
}

#[tokio::test]
async fn what_was_acknowledged_survives_on_a_synchronous_standby() {
    let mut pair = Pair::start().await.synchronously().await;
    let server = Fencepost::start(&pair.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let token = acquire(&client, "lock").await;
    for number in 0..20 {
        assert_eq!(answer(client.put(&format!("key-{number}"), token, "value")).await.status, 201);
    }
    pair.fail_over().await;
    for number in 0..20 {
        let read = insist(client.read(&format!("key-{number}"))).await;
        assert_eq!((read.status, read.text().as_str()), (200, "value"));
    }
    // Nobody can tell from the outside that nothing was lost, so this holder must acquire again too.
    let refused = insist(client.put("key-0", token, "later")).await;
    assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
}
