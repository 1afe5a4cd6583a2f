//! The claim: a grant raises its key's mark before it is answered; where that fails, there was no
//! grant.

use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{LONG, SHORT};
use crate::harness::{
    authority::{TestAuthority, on_each_authority},
    blocker::Blocker,
    eventually,
    fencepost::Fencepost,
    http::{answer, read_to_end, text},
    locks::millis,
    store::TestStore,
};

on_each_authority! {
    async fn the_former_holder_is_fenced_off_before_the_next_has_written(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let [zombie, next] = servers.each_ref().map(Fencepost::client);
        let old = zombie.lock("account", SHORT).await;
        assert_eq!(answer(zombie.put("account", old, "100")).await.status, 201);
        let new = next.lock("account", LONG).await;
        assert_eq!(next.mark("account").await, (new, 0));
        // Through either fencepost, though the first has not heard of the new holder yet.
        for client in [&zombie, &next] {
            let late = answer(client.put("account", old, "150")).await;
            assert_eq!((late.status, late.problem().as_str()), (409, "stale-token"));
            assert_eq!(late.header("x-fencing-mark"), Some(new.to_string().as_str()));
        }
        assert_eq!(answer(next.read("account")).await.text(), "100");
    }
}

on_each_authority! {
    async fn a_lock_guards_other_keys_by_its_name_as_their_scope(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let write = |key: &str, token| client.put(key, token, "").header("X-Fencing-Scope", "job");
        let old = client.lock("job", SHORT).await;
        assert_eq!(answer(write("a", old)).await.status, 201);
        client.lock("job", LONG).await;
        for key in ["a", "b", "never-written"] {
            assert_eq!(answer(write(key, old)).await.problem(), "stale-token", "{key}");
        }
    }
}

on_each_authority! {
    /// Somebody has written the lock's key with a token of their own making.
    async fn a_grant_behind_its_mark_is_undone(authority: TestAuthority) {
        let open = authority.fencepost_with(&["--trust", "open"]).await;
        let client = open.client();
        let known = client.lock("other", LONG).await;
        let above = known + 1_000_000;
        assert_eq!(answer(client.claim("k", above)).await.status, 200);
        for accept in ["application/json", "text/event-stream"] {
            let refused = answer(client.acquire("k", &json!({})).header("Accept", accept)).await;
            assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
            let problem = refused.json();
            assert_eq!((&problem["key"], &problem["mark"]), (&json!("k"), &json!(above)));
            assert!(problem["token"].as_i64().is_some_and(|token| token > known && token < above));
            client.until_free("k").await;
        }
        assert_eq!(client.mark("k").await, (above, 0));
    }
}

/// A lock service that has lost its memory may issue a token twice. Two holders must not share it.
#[tokio::test]
async fn a_grant_of_a_token_that_was_seen_before_is_undone() {
    for store in [TestStore::sqlite(), TestStore::postgres().await] {
        let authority = TestAuthority::in_store(store);
        let open = authority.fencepost_with(&["--trust", "open"]).await;
        let client = open.client();
        let known = client.lock("other", LONG).await;
        // The lock table counts by one.
        assert_eq!(answer(client.claim("k", known + 1)).await.status, 200);
        let refused = answer(client.acquire("k", &json!({}))).await;
        assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
        client.until_free("k").await;
        assert_eq!(client.lock("k", LONG).await, known + 2);
    }
}

/// A lock table and resources in Postgres, where a row can be kept from being claimed.
async fn on_postgres() -> TestAuthority {
    TestAuthority::in_store(TestStore::postgres().await)
}

#[tokio::test]
async fn a_grant_that_the_store_does_not_take_is_undone() {
    let authority = on_postgres().await;
    let server = authority.fencepost().await;
    let client = server.client();
    let token = client.lock("k", LONG).await;
    assert_eq!(answer(client.release("k", token)).await.status, 204);
    let blocker = Blocker::on_row(&authority.store.url, "k").await;
    let refused = answer(client.acquire("k", &json!({"ttl_ms": millis(LONG)}))).await;
    assert_eq!((refused.status, refused.problem().as_str()), (503, "store-unavailable"));
    client.until_free("k").await;
    blocker.release().await;
    assert_eq!(client.mark("k").await, (token, 0));
    assert!(client.lock("k", LONG).await > token + 1, "that token was nobody's");
}

#[tokio::test]
async fn a_grant_whose_client_has_gone_is_given_back() {
    let authority = on_postgres().await;
    let server = authority.fencepost().await;
    let client = server.client();
    let token = client.lock("k", LONG).await;
    assert_eq!(answer(client.release("k", token)).await.status, 204);
    let blocker = Blocker::on_row(&authority.store.url, "k").await;
    let mut leaver = TcpStream::connect(&server.address).await.unwrap();
    leaver.write_all(text("POST", "/v1/locks/k", &[], "").as_bytes()).await.unwrap();
    blocker.until_waiting(1).await;
    assert!(client.inspect("k").await["held"] == true, "granted, and not yet claimed");
    leaver.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut leaver).await, "", "the server has noticed, and closed its side");
    blocker.release().await;
    client.until_free("k").await;
    assert_eq!(client.mark("k").await.0, token + 1, "the claim was carried out all the same");
}

#[tokio::test]
async fn a_claim_that_took_long_does_not_shorten_the_lease() {
    let authority = on_postgres().await;
    let server = authority.fencepost().await;
    let client = server.client();
    let token = client.lock("k", LONG).await;
    assert_eq!(answer(client.release("k", token)).await.status, 204);
    let blocker = Blocker::on_row(&authority.store.url, "k").await;
    let waiter = tokio::spawn(answer(client.acquire("k", &json!({"ttl_ms": 20_000}))));
    blocker.until_waiting(1).await;
    let left = async || client.inspect("k").await["ttl_ms"].as_u64().expect("milliseconds");
    eventually("the lease runs while the claim waits", || async { left().await < 17_000 }).await;
    let before = left().await;
    blocker.release().await;
    assert_eq!(waiter.await.unwrap().status, 201);
    assert!(left().await > before, "it was renewed before it was handed over");
}
