//! One lock for many keys: the mark of the scope guards them all.

use reqwest::RequestBuilder;
use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{Client, answer},
    store::on_each_store,
};

trait Scoped {
    fn under(self, scope: &str) -> Self;
}

impl Scoped for RequestBuilder {
    fn under(self, scope: &str) -> Self {
        self.header("X-Fencing-Scope", scope)
    }
}

async fn marks<const N: usize>(client: &Client, keys: [&str; N]) -> Vec<i64> {
    let mut tokens = Vec::new();
    for key in keys {
        tokens.push(client.mark(key).await.0);
    }
    tokens
}

on_each_store! {
    async fn a_write_raises_the_marks_of_its_key_and_its_scope(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let created = answer(client.put("k1", 5, "v").under("lock")).await;
        assert_eq!(created.status, 201);
        assert_eq!(created.json(), json!({"key": "k1", "version": 1, "token": 5}));
        assert_eq!(created.fencing(), (Some("5"), Some("\"1\"")));
        assert_eq!(marks(&client, ["k1", "lock", "k2"]).await, [5, 5, 0]);

        // The scope was seen, not written.
        let lock = answer(client.read("lock")).await;
        assert_eq!((lock.problem().as_str(), lock.fencing()), ("not-found", (Some("5"), None)));

        answer(client.delete("k2", 6).under("lock")).await;
        assert_eq!(marks(&client, ["k1", "lock", "k2"]).await, [5, 6, 6]);
        answer(client.claim("k3", 7).under("lock")).await;
        assert_eq!(marks(&client, ["lock", "k3"]).await, [7, 7]);
        answer(client.read("k4").header("X-Fencing-Token", 8).under("lock")).await;
        assert_eq!(marks(&client, ["lock", "k4"]).await, [8, 8]);
    }
}

on_each_store! {
    async fn a_token_below_the_scopes_mark_is_stale(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 3, "v")).await;
        answer(client.claim("lock", 10)).await;
        for refused in [
            client.put("k", 9, "zombie").under("lock"),
            client.delete("k", 9).under("lock"),
            client.claim("k", 9).under("lock"),
            client.read("k").header("X-Fencing-Token", 9).under("lock"),
        ] {
            let refused = answer(refused).await;
            // The header is the key's own mark; the member is the one that refused.
            assert_eq!(refused.fencing(), (Some("3"), Some("\"1\"")));
            assert_eq!(
                refused.members(),
                json!({
                    "type": "urn:fencepost:stale-token", "status": 409, "retryable": false,
                    "key": "k", "scope": "lock", "token": 9, "mark": 10, "version": 1,
                })
            );
        }
        let untouched = answer(client.put("new", 9, "zombie").under("lock")).await;
        assert_eq!(untouched.fencing(), (Some("0"), None));
        assert_eq!(marks(&client, ["k", "lock", "new"]).await, [3, 10, 0]);
        assert_eq!(answer(client.read("k")).await.text(), "v");
    }
}

on_each_store! {
    async fn a_token_below_the_keys_own_mark_is_stale_under_any_scope(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 10, "v")).await;
        let stale = answer(client.put("k", 9, "zombie").under("lock")).await;
        assert_eq!(stale.problem(), "stale-token");
        assert_eq!((&stale.json()["mark"], stale.fencing().0), (&json!(10), Some("10")));
        assert_eq!(marks(&client, ["k", "lock"]).await, [10, 0]);
    }
}

on_each_store! {
    /// What a scope has seen must show in refusals of writes to the scope's own key, too.
    async fn a_scope_that_has_a_value_keeps_showing_its_version(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("lock", 5, "v")).await;
        answer(client.put("k", 6, "v").under("lock")).await;
        let stale = answer(client.put("lock", 5, "zombie")).await;
        assert_eq!(stale.fencing(), (Some("6"), Some("\"1\"")));
        assert_eq!(stale.json()["version"], 1);

        // The same where this server has met the key only as a scope.
        let other = Fencepost::on(&store).await;
        answer(other.client().put("k", 7, "v").under("lock")).await;
        let stale = answer(other.client().put("lock", 5, "zombie")).await;
        assert_eq!(stale.fencing(), (Some("7"), Some("\"1\"")));
        assert_eq!(stale.json()["version"], 1);
    }
}

on_each_store! {
    async fn a_scope_is_spelled_as_in_a_path(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "v").under("a%2Fb%20%C3%A9")).await;
        assert_eq!(marks(&client, ["a/b%20%C3%A9"]).await, [5]);
        let stale = answer(client.put("k2", 4, "v").under("a/b%20%C3%A9")).await;
        assert_eq!(stale.json()["scope"], "a/b é");
        let twice = client.put("k", 5, "v").under("a").under("a");
        assert_eq!(answer(twice).await.problem(), "invalid-key");
    }
}

on_each_store! {
    async fn a_key_may_be_its_own_scope(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", 5, "v").under("k")).await.status, 201);
        assert_eq!(answer(client.put("k", 5, "v").under("k")).await.status, 200);
        let stale = answer(client.put("k", 4, "v").under("%6B")).await;
        assert_eq!(stale.problem(), "stale-token");
        assert_eq!(client.mark("k").await, (5, 0));
    }
}

on_each_store! {
    /// `above` and seq ask what this token has done to the written key, not to its neighbours.
    async fn rule_and_seq_are_kept_for_each_written_key(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for key in ["a1", "a2"] {
            let above = client.put(key, 5, "v").under("lock").header("X-Fencing-Rule", "above");
            assert_eq!(answer(above).await.status, 201);
        }
        for (key, seq) in [("s1", 9), ("s2", 3)] {
            let put = client.put(key, 6, "v").under("lock").header("X-Fencing-Seq", seq);
            assert_eq!(answer(put).await.status, 201);
            assert_eq!(client.mark(key).await, (6, seq));
        }
        assert_eq!(client.mark("lock").await, (6, 0));
        // Nor does a scope that was itself written with a seq bind the others.
        answer(client.put("lock", 6, "v").header("X-Fencing-Seq", 7)).await;
        assert_eq!(answer(client.put("plain", 6, "v").under("lock")).await.status, 201);
        assert_eq!(client.mark("lock").await, (6, 7));
    }
}

on_each_store! {
    async fn a_replay_raises_the_mark_of_its_scope(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let put = || client.put("k", 5, "v").header("X-Fencing-Seq", 1);
        answer(put()).await;
        let replay = answer(put().under("lock")).await;
        assert_eq!((replay.status, replay.header("x-fencing-replay")), (201, Some("true")));
        assert_eq!(marks(&client, ["k", "lock"]).await, [5, 5]);

        answer(client.claim("lock", 6)).await;
        assert_eq!(answer(put().under("lock")).await.problem(), "stale-token");
    }
}

on_each_store! {
    async fn a_refusal_by_order_raises_no_mark(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let put = |seq, body| client.put("k", 5, body).header("X-Fencing-Seq", seq);
        answer(put(2, "v")).await;
        let late = answer(put(1, "v").under("lock")).await;
        assert_eq!(late.problem(), "out-of-order");
        assert_eq!(late.json()["scope"], "lock");
        assert_eq!(answer(put(2, "w").under("lock")).await.problem(), "seq-reused");
        assert_eq!(marks(&client, ["k", "lock"]).await, [5, 0]);
    }
}

on_each_store! {
    /// The new holder has written k1; without a scope the old one could still write k2.
    async fn trap_2_one_lock_guards_several_keys(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for key in ["k1", "k2"] {
            answer(client.put(key, 9, "old").under("lock")).await;
        }
        answer(client.put("k1", 10, "new").under("lock")).await;
        let zombie = answer(client.put("k2", 9, "zombie").under("lock")).await;
        assert_eq!(zombie.problem(), "stale-token");
        assert_eq!(answer(client.read("k2")).await.text(), "old");
        assert_eq!(answer(client.put("k2", 10, "new").under("lock")).await.status, 200);
    }
}
