//! The seq: how a holder orders its own writes, and how a repeated one is recognised.

use reqwest::RequestBuilder;
use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{Answer, Client, answer},
    store::on_each_store,
};

fn put(client: &Client, token: i64, seq: i64, body: &'static str) -> RequestBuilder {
    client.put("k", token, body).header("X-Fencing-Seq", seq)
}

fn is_replay(answer: &Answer) -> bool {
    match answer.header("x-fencing-replay") {
        None => false,
        Some(text) => {
            assert_eq!(text, "true");
            true
        }
    }
}

on_each_store! {
    async fn writes_of_one_holder_go_by_their_seq(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for (seq, status) in [(3, 201), (4, 200), (i64::MAX, 200)] {
            let accepted = answer(put(&client, 5, seq, "v")).await;
            assert_eq!((accepted.status, is_replay(&accepted)), (status, false));
            assert_eq!(client.mark("k").await, (5, seq));
        }
        let late = answer(put(&client, 5, 4, "v")).await;
        assert_eq!(late.fencing(), (Some("5"), Some("\"3\"")));
        assert_eq!(
            late.members(),
            json!({
                "type": "urn:fencepost:out-of-order", "status": 409, "retryable": false,
                "key": "k", "token": 5, "seq": 4, "mark": 5, "version": 3,
            })
        );
        assert!(!is_replay(&late));
        assert_eq!(client.mark("k").await, (5, i64::MAX));
    }
}

on_each_store! {
    async fn a_replay_is_answered_as_the_first_time(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for (seq, body, status, version) in [(1, "a", 201, 1), (2, "b", 200, 2), (3, "b", 200, 3)] {
            let etag = format!("\"{version}\"");
            let first = answer(put(&client, 5, seq, body)).await;
            assert!(!is_replay(&first));
            for _ in 0..2 {
                let again = answer(put(&client, 5, seq, body)).await;
                assert!(is_replay(&again));
                assert_eq!((again.status, &again.body), (status, &first.body));
                assert_eq!(again.json(), json!({"key": "k", "version": version, "token": 5}));
                assert_eq!(again.fencing(), (Some("5"), Some(etag.as_str())));
            }
            assert_eq!(answer(client.read("k")).await.text(), body);
        }
    }
}

on_each_store! {
    async fn a_delete_can_be_replayed_too(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(put(&client, 5, 1, "a")).await;
        let delete = || client.delete("k", 5).header("X-Fencing-Seq", 2);
        for replay in [false, true, true] {
            let deleted = answer(delete()).await;
            assert_eq!((deleted.status, deleted.body.len()), (204, 0));
            assert_eq!((is_replay(&deleted), deleted.fencing()), (replay, (Some("5"), None)));
        }
        let put_instead = answer(put(&client, 5, 2, "")).await;
        assert_eq!((put_instead.status, put_instead.problem().as_str()), (422, "seq-reused"));
        assert_eq!(answer(put(&client, 5, 3, "b")).await.json()["version"], 3);
    }
}

on_each_store! {
    async fn a_seq_is_not_used_for_two_bodies(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(put(&client, 5, 2, "a")).await;
        let reused = answer(put(&client, 5, 2, "b")).await;
        assert_eq!(reused.fencing(), (Some("5"), Some("\"1\"")));
        assert_eq!(
            reused.members(),
            json!({
                "type": "urn:fencepost:seq-reused", "status": 422, "retryable": false,
                "key": "k", "token": 5, "seq": 2, "mark": 5, "version": 1,
            })
        );
        let delete = answer(client.delete("k", 5).header("X-Fencing-Seq", 2)).await;
        assert_eq!(delete.problem(), "seq-reused");
        assert_eq!(answer(client.read("k")).await.text(), "a");
        assert!(is_replay(&answer(put(&client, 5, 2, "a")).await));
    }
}

on_each_store! {
    async fn whoever_has_used_seq_must_go_on_using_it(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        // A write without seq counts as 0, so the first one may come after it.
        answer(client.put("k", 5, "a")).await;
        assert_eq!(answer(put(&client, 5, 1, "b")).await.status, 200);
        for refused in [client.put("k", 5, "c"), client.delete("k", 5)] {
            let refused = answer(refused).await;
            assert_eq!(refused.fencing(), (Some("5"), Some("\"2\"")));
            assert_eq!(
                refused.members(),
                json!({
                    "type": "urn:fencepost:out-of-order", "status": 409, "retryable": false,
                    "key": "k", "token": 5, "mark": 5, "version": 2,
                })
            );
        }
        // The next holder begins anew.
        assert_eq!(answer(client.put("k", 6, "d")).await.status, 200);
        assert_eq!(client.mark("k").await, (6, 0));
        assert_eq!(answer(put(&client, 7, 1, "e")).await.status, 200);
        assert_eq!(client.mark("k").await, (7, 1));
    }
}

on_each_store! {
    async fn a_seq_orders_writes_under_the_rule_above_too(store: TestStore) {
        let server = Fencepost::with(&store, &["--rule", "above"]).await;
        let client = server.client();
        assert_eq!(answer(put(&client, 5, 1, "a")).await.status, 201);
        assert_eq!(answer(put(&client, 5, 2, "b")).await.status, 200);
        assert!(is_replay(&answer(put(&client, 5, 2, "b")).await));
        assert_eq!(answer(put(&client, 5, 1, "a")).await.problem(), "out-of-order");
        assert_eq!(answer(client.put("k", 5, "c")).await.problem(), "stale-token");
    }
}

on_each_store! {
    async fn a_replay_from_an_overtaken_holder_is_stale(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(put(&client, 5, 1, "a")).await;
        answer(client.claim("k", 6)).await;
        let late = answer(put(&client, 5, 1, "a")).await;
        assert_eq!(late.problem(), "stale-token");
        assert!(!is_replay(&late));
        // The new holder's seq 1 is its own, whatever the old one did with its.
        let own = answer(put(&client, 6, 1, "a")).await;
        assert_eq!((own.status, is_replay(&own), own.fencing().1), (200, false, Some("\"2\"")));
    }
}

on_each_store! {
    async fn a_claim_without_seq_does_not_disturb_the_order(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(put(&client, 5, 3, "a")).await;
        let claimed = answer(client.claim("k", 5)).await;
        assert_eq!(claimed.json(), json!({"key": "k", "token": 5, "seq": 3}));
        let read = answer(client.read("k").header("X-Fencing-Token", 5)).await;
        assert_eq!(read.status, 200);
        assert!(is_replay(&answer(put(&client, 5, 3, "a")).await));
        assert_eq!(answer(put(&client, 5, 2, "b")).await.problem(), "out-of-order");
    }
}

on_each_store! {
    async fn a_claim_with_seq_is_ordered_like_a_write(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let claim = |seq: i64| client.claim("k", 5).header("X-Fencing-Seq", seq);
        answer(put(&client, 5, 1, "a")).await;
        let claimed = answer(claim(3)).await;
        assert_eq!(claimed.json(), json!({"key": "k", "token": 5, "seq": 3}));
        assert_eq!(claimed.fencing(), (Some("5"), Some("\"1\"")));
        assert!(!is_replay(&claimed));

        let again = answer(claim(3)).await;
        assert_eq!((again.status, &again.body, is_replay(&again)), (200, &claimed.body, true));
        assert_eq!(answer(claim(2)).await.problem(), "out-of-order");
        assert_eq!(answer(put(&client, 5, 2, "b")).await.problem(), "out-of-order");
        assert_eq!(answer(put(&client, 5, 3, "b")).await.problem(), "seq-reused");
        assert_eq!(answer(put(&client, 5, 4, "b")).await.status, 200);
        assert_eq!(answer(claim(4)).await.problem(), "seq-reused");
    }
}

on_each_store! {
    /// The answer to v1 is lost, v2 is answered, and then a delayed copy of v1 arrives.
    async fn trap_3_a_late_duplicate_does_not_overwrite_what_came_after(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(put(&client, 5, 1, "v1")).await;
        answer(put(&client, 5, 2, "v2")).await;
        let duplicate = answer(put(&client, 5, 1, "v1")).await;
        assert_eq!((duplicate.status, duplicate.problem().as_str()), (409, "out-of-order"));
        assert_eq!(answer(client.read("k")).await.text(), "v2");
    }
}

on_each_store! {
    async fn a_replay_survives_a_restart(store: TestStore) {
        let first = answer(put(&Fencepost::on(&store).await.client(), 5, 1, "a")).await;
        let server = Fencepost::on(&store).await;
        let again = answer(put(&server.client(), 5, 1, "a")).await;
        assert_eq!((again.status, &again.body, is_replay(&again)), (201, &first.body, true));
        assert_eq!(answer(put(&server.client(), 5, 1, "b")).await.problem(), "seq-reused");
    }
}
