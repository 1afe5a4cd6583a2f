//! While the lock service is away, those whose tokens are known go on; others are told to come
//! again. Nobody is believed for want of an answer.

use super::LONG;
use crate::harness::{
    authority::TestAuthority,
    http::{Answer, Client, answer, insist},
    store::on_each_store,
};

fn check_away(refused: &Answer) {
    assert_eq!((refused.status, refused.problem().as_str()), (503, "authority-unavailable"));
    assert!(refused.header("retry-after").is_some());
}

async fn check_known_go_on(client: &Client, token: i64) {
    assert_eq!(answer(client.put("k", token, "x")).await.status, 200);
    let stale = answer(client.put("k", token - 1, "x")).await;
    assert_eq!((stale.status, stale.problem().as_str()), (409, "stale-token"));
    for unknown in [token + 1_000_000, i64::MAX] {
        check_away(&answer(client.put("k", unknown, "x")).await);
        check_away(&answer(client.claim("unseen", unknown)).await);
    }
    assert_eq!((client.mark("k").await.0, client.mark("unseen").await.0), (token, 0));
}

on_each_store! {
    async fn known_tokens_go_on_and_others_wait(store: TestStore) {
        let mut authority = TestAuthority::in_etcd(store).await;
        let server = authority.fencepost().await;
        let client = server.client();
        let old = client.lock("old", LONG).await;
        let token = client.lock("k", LONG).await;
        assert_eq!(answer(client.put("k", token, "x")).await.status, 201);
        authority.etcd.as_mut().unwrap().kill();
        check_known_go_on(&client, token).await;
        // Known, though its key has not seen it: it was issued before.
        assert_eq!(answer(client.put("new", old, "x")).await.status, 201);
        check_away(&answer(client.acquire("more", &serde_json::json!({}))).await);
        check_away(&answer(client.renew("k", token)).await);

        // One that starts now has only what is stored to go by.
        let newcomer = authority.fencepost().await;
        assert_eq!(answer(newcomer.client().put("newer", old, "x")).await.status, 201);
        check_known_go_on(&newcomer.client(), token).await;

        authority.etcd.as_mut().unwrap().run().await;
        let forged = insist(client.put("k", i64::MAX, "x")).await;
        assert_eq!(forged.problem(), "unissued-token");
        assert_eq!(insist(client.renew("k", token)).await.status, 200);
    }
}
