//! A lock is only its holder's: nobody else renews it, releases it, or, under `granted`, uses its
//! token.

use std::time::Duration;

use serde_json::json;

use crate::harness::fencepost::Fencepost;
use crate::harness::{
    access::Access,
    authority::{TestAuthority, on_each_authority},
    http::answer,
    store::TestStore,
};

const LONG: Duration = Duration::from_mins(5);

on_each_authority! {
    async fn only_who_was_granted_a_lock_can_renew_and_release_it(authority: TestAuthority) {
        let access = Access::new();
        let (alice, mallory) = (access.token("alice"), access.token("mallory"));
        let tokens = access.path("tokens");
        let given = ["--tokens-file", tokens.as_str()];
        let server = authority.fencepost_with(&given).await;
        let other_server = authority.fencepost_with(&given).await;
        let token = server.client().bearing(&alice).lock("k", LONG).await;
        // The identity is kept with the grant: it makes no difference who is asked.
        for server in [&server, &other_server] {
            let mallory = server.client().bearing(&mallory);
            for refused in [mallory.renew("k", token), mallory.release("k", token)] {
                let refused = answer(refused).await;
                assert_eq!((refused.status, &*refused.problem()), (403, "forbidden"));
            }
            // What does not hold the lock is lost, whoever asks.
            assert_eq!(answer(mallory.renew("k", token + 1)).await.problem(), "lock-lost");
            let alice = server.client().bearing(&alice);
            assert_eq!(answer(alice.renew("k", token)).await.status, 200);
        }
        drop(server);
        let restarted = authority.fencepost_with(&given).await;
        let (alice, mallory) =
            (restarted.client().bearing(&alice), restarted.client().bearing(&mallory));
        assert_eq!(answer(mallory.release("k", token)).await.status, 403);
        assert_eq!(answer(alice.release("k", token)).await.status, 204);
        let next = mallory.lock("k", LONG).await;
        assert_eq!(answer(alice.release("k", token)).await.problem(), "lock-lost");
        assert_eq!(answer(alice.release("k", next)).await.status, 403);
        assert_eq!(mallory.holder("k").await, next);
    }
}

on_each_authority! {
    async fn a_token_that_leaked_is_of_no_use_to_anybody_else(authority: TestAuthority) {
        let access = Access::new();
        let (alice, mallory) = (access.token("alice"), access.token("mallory"));
        let tokens = access.path("tokens");
        let given = ["--tokens-file", tokens.as_str(), "--trust", "granted"];
        let server = authority.fencepost_with(&given).await;
        let other_server = authority.fencepost_with(&given).await;
        let token = server.client().bearing(&alice).lock("k", LONG).await;
        for server in [&server, &other_server] {
            let mallory = server.client().bearing(&mallory);
            for request in [
                mallory.put("k", token, "x"),
                mallory.delete("k", token),
                mallory.claim("k", token),
                mallory.read("k").header("X-Fencing-Token", token),
                mallory.put("child", token, "x").header("X-Fencing-Scope", "k"),
                mallory.batch(&json!({"writes": [{"key": "k", "token": token, "value": 1}]})),
            ] {
                let refused = answer(request).await;
                assert_eq!((refused.status, &*refused.problem()), (403, "forbidden"));
            }
            let alice = server.client().bearing(&alice);
            assert!(answer(alice.put("k", token, "mine")).await.status < 300);
            let child = alice.put("child", token, "mine").header("X-Fencing-Scope", "k");
            assert!(answer(child).await.status < 300);
            assert_eq!(answer(mallory.read("k")).await.text(), "mine");
        }
        // A former holder hears from the fence that it is one.
        let alice = server.client().bearing(&alice);
        assert_eq!(answer(alice.release("k", token)).await.status, 204);
        let next = server.client().bearing(&mallory).lock("k", LONG).await;
        assert_eq!(answer(alice.put("k", token, "x")).await.problem(), "stale-token");
        let elsewhere = other_server.client().bearing(&mallory);
        assert_eq!(answer(elsewhere.put("k", next, "theirs")).await.status, 200);
    }
}

on_each_authority! {
    async fn a_lock_that_was_granted_to_nobody_known_is_nobodys(authority: TestAuthority) {
        let access = Access::new();
        let alice = access.token("alice");
        let tokens = access.path("tokens");
        let given = ["--tokens-file", tokens.as_str(), "--trust", "granted"];
        let (token, _held) = authority.lock_without_claim("k").await;
        let server = authority.fencepost_with(&given).await;
        let alice = server.client().bearing(&alice);
        for request in [
            alice.renew("k", token),
            alice.release("k", token),
            alice.claim("k", token),
            alice.put("k", token, "x"),
        ] {
            assert_eq!(answer(request).await.problem(), "forbidden");
        }
        assert_eq!(alice.holder("k").await, token);
    }
}

on_each_authority! {
    /// Whose a grant was is forgotten with it, except where it was handed out.
    async fn a_grant_that_is_over_is_nobodys(authority: TestAuthority) {
        let access = Access::new();
        let (alice, mallory) = (access.token("alice"), access.token("mallory"));
        let tokens = access.path("tokens");
        let given = ["--tokens-file", tokens.as_str(), "--trust", "granted"];
        let server = authority.fencepost_with(&given).await;
        let here = server.client().bearing(&alice);
        let token = here.lock("k", LONG).await;
        assert_eq!(answer(here.put("k", token, "mine")).await.status, 201);
        assert_eq!(answer(here.release("k", token)).await.status, 204);

        let newcomer = authority.fencepost_with(&given).await;
        let [alice, mallory] = [&alice, &mallory].map(|who| newcomer.client().bearing(who));
        for client in [&mallory, &alice] {
            let refused = answer(client.put("k", token, "x")).await;
            assert_eq!((refused.status, &*refused.problem()), (403, "forbidden"));
        }
        // Where somebody else has it by now, that is the news.
        here.lock("k", LONG).await;
        for client in [&mallory, &alice] {
            let refused = answer(client.put("k", token, "x")).await;
            assert_eq!((refused.status, &*refused.problem()), (409, "stale-token"));
        }
        assert_eq!(answer(here.read("k")).await.text(), "mine");
    }
}

/// Whose a grant is, is known where it was handed out: nobody has to be asked.
#[tokio::test]
async fn a_holder_goes_on_writing_while_the_lock_service_is_away() {
    let mut authority = TestAuthority::in_etcd(TestStore::sqlite()).await;
    let access = Access::new();
    let (alice, mallory) = (access.token("alice"), access.token("mallory"));
    let tokens = access.path("tokens");
    let server =
        authority.fencepost_with(&["--tokens-file", tokens.as_str(), "--trust", "granted"]).await;
    let (alice, mallory) = (server.client().bearing(&alice), server.client().bearing(&mallory));
    let token = alice.lock("k", LONG).await;
    authority.etcd.as_mut().unwrap().kill();
    assert_eq!(answer(alice.put("k", token, "mine")).await.status, 201);
    assert_eq!(answer(mallory.put("k", token, "x")).await.problem(), "forbidden");
}

#[tokio::test]
async fn where_nobody_proves_who_they_are_a_token_is_enough() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store", "--trust", "granted"]).await;
    let client = server.client();
    let token = client.lock("k", LONG).await;
    assert_eq!(answer(client.put("k", token, "x")).await.status, 201);
    assert_eq!(answer(client.release("k", token)).await.status, 204);
}
