//! `If-Match` and `If-None-Match`, which are looked at only after the fence.

use reqwest::Method;
use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{answer, send},
    store::on_each_store,
};

on_each_store! {
    async fn a_write_may_name_the_version_it_replaces(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "a")).await;
        assert_eq!(answer(client.put("k", 5, "b").header("If-Match", "\"1\"")).await.status, 200);
        for other in ["\"1\"", "\"3\"", "\"9223372036854775807\""] {
            let mismatch = answer(client.put("k", 5, "c").header("If-Match", other)).await;
            assert_eq!(mismatch.fencing(), (Some("5"), Some("\"2\"")));
            assert_eq!(
                mismatch.members(),
                json!({
                    "type": "urn:fencepost:version-mismatch", "status": 412, "retryable": false,
                    "key": "k", "token": 5, "mark": 5, "version": 2,
                })
            );
        }
        assert_eq!(answer(client.read("k")).await.text(), "b");

        let delete = |etag| client.delete("k", 5).header("If-Match", etag);
        assert_eq!(answer(delete("\"1\"")).await.problem(), "version-mismatch");
        assert_eq!(answer(delete("\"2\"")).await.status, 204);
    }
}

on_each_store! {
    async fn no_version_matches_an_absent_key(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("deleted", 5, "v")).await;
        answer(client.delete("deleted", 5)).await;
        answer(client.claim("claimed", 5)).await;
        for (key, etag) in [("deleted", "\"2\""), ("claimed", "\"1\""), ("unseen", "\"1\"")] {
            let mismatch = answer(client.put(key, 5, "v").header("If-Match", etag)).await;
            assert_eq!(mismatch.fencing(), (Some("5"), None), "{key}");
            assert_eq!(
                mismatch.members(),
                json!({
                    "type": "urn:fencepost:version-mismatch", "status": 412, "retryable": false,
                    "key": key, "token": 5, "mark": mismatch.json()["mark"],
                })
            );
            assert_eq!(client.mark(key).await, (5, 0));
        }
    }
}

on_each_store! {
    async fn a_write_may_ask_for_an_absent_key(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let create = |key: &str| client.put(key, 5, "v").header("If-None-Match", "*");
        assert_eq!(answer(create("k")).await.status, 201);
        let mismatch = answer(create("k")).await;
        assert_eq!((mismatch.status, mismatch.problem().as_str()), (412, "version-mismatch"));
        assert_eq!(mismatch.fencing(), (Some("5"), Some("\"1\"")));
        assert_eq!(mismatch.json()["version"], 1);

        // Claimed or deleted is absent.
        answer(client.claim("claimed", 5)).await;
        assert_eq!(answer(create("claimed")).await.status, 201);
        answer(client.delete("k", 5)).await;
        let created = answer(create("k")).await;
        assert_eq!((created.status, created.fencing().1), (201, Some("\"3\"")));
        let delete = client.delete("k", 5).header("If-None-Match", "*");
        assert_eq!(answer(delete).await.problem(), "version-mismatch");
    }
}

on_each_store! {
    async fn the_fence_is_judged_first(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "a").header("X-Fencing-Seq", 2)).await;
        for etag in ["\"1\"", "\"7\""] {
            let stale = client.put("k", 4, "b").header("If-Match", etag);
            assert_eq!(answer(stale).await.problem(), "stale-token");
            let late = client.put("k", 5, "b").header("X-Fencing-Seq", 1).header("If-Match", etag);
            assert_eq!(answer(late).await.problem(), "out-of-order");
            let reused = client.put("k", 5, "b").header("X-Fencing-Seq", 2);
            assert_eq!(answer(reused.header("If-Match", etag)).await.problem(), "seq-reused");
            let above = client.put("k", 5, "b").header("X-Fencing-Rule", "above");
            assert_eq!(answer(above.header("If-Match", etag)).await.problem(), "stale-token");
        }
        assert_eq!(client.mark("k").await, (5, 2));
    }
}

on_each_store! {
    async fn a_failed_precondition_raises_the_marks(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "a")).await;
        let mismatch = client.put("k", 7, "b").header("If-Match", "\"9\"");
        let mismatch = answer(mismatch.header("X-Fencing-Scope", "lock")).await;
        assert_eq!(mismatch.status, 412);
        assert_eq!(mismatch.fencing(), (Some("7"), Some("\"1\"")));
        assert_eq!(mismatch.json()["scope"], "lock");
        assert_eq!((client.mark("k").await, client.mark("lock").await), ((7, 0), (7, 0)));
        assert_eq!(answer(client.put("k", 6, "zombie")).await.problem(), "stale-token");

        // Without a scope, and where there is nothing at all yet.
        for (key, token) in [("k", 8), ("unseen", 8)] {
            let mismatch = answer(client.delete(key, token).header("If-Match", "\"9\"")).await;
            assert_eq!((mismatch.status, mismatch.fencing().0), (412, Some("8")));
            assert_eq!(client.mark(key).await, (8, 0));
            assert_eq!(answer(client.put(key, 7, "zombie")).await.problem(), "stale-token");
        }
        assert_eq!(answer(client.read("k")).await.text(), "a");
    }
}

on_each_store! {
    async fn a_failed_precondition_does_not_use_up_the_seq(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "a").header("X-Fencing-Seq", 1)).await;
        let put = |token, seq, etag| {
            client.put("k", token, "b").header("X-Fencing-Seq", seq).header("If-Match", etag)
        };
        let mismatch = answer(put(5, 4, "\"9\"")).await;
        assert_eq!(mismatch.problem(), "version-mismatch");
        assert_eq!(mismatch.json()["seq"], 4);
        assert_eq!(client.mark("k").await, (5, 1));
        assert_eq!(answer(put(6, 4, "\"9\"")).await.problem(), "version-mismatch");
        assert_eq!(client.mark("k").await, (6, 0));

        let mended = answer(put(6, 4, "\"1\"")).await;
        assert_eq!((mended.status, mended.header("x-fencing-replay")), (200, None));
        assert_eq!(client.mark("k").await, (6, 4));
    }
}

on_each_store! {
    async fn a_replay_is_answered_before_any_precondition(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let create = || client.put("k", 5, "a").header("X-Fencing-Seq", 1);
        assert_eq!(answer(create().header("If-None-Match", "*")).await.status, 201);
        for (name, value) in [("If-None-Match", "*"), ("If-Match", "\"7\"")] {
            let again = answer(create().header(name, value)).await;
            assert_eq!((again.status, again.header("x-fencing-replay")), (201, Some("true")));
            assert_eq!(again.json(), json!({"key": "k", "version": 1, "token": 5}));
        }
    }
}

on_each_store! {
    /// A condition that the server cannot check must not be taken for one that holds.
    async fn a_form_that_is_not_supported_is_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "a")).await;
        for header in [
            "If-Match: *",
            "If-Match: W/\"1\"",
            "If-Match: \"1\", \"2\"",
            "If-Match: 1",
            "If-Match: \"01\"",
            "If-Match: \"+1\"",
            "If-Match: \"0\"",
            "If-Match: \"abc\"",
            "If-Match: \"",
            "If-Match:",
            "If-Match: \"1\"\r\nIf-Match: \"1\"",
            "If-Match: \"1\"\r\nIf-None-Match: *",
            "If-None-Match: \"1\"",
            "If-None-Match: \"3\"",
            "If-None-Match:",
            "If-None-Match: *\r\nIf-None-Match: *",
            "If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT",
            "If-Modified-Since: Sat, 29 Oct 1994 19:43:31 GMT",
        ] {
            for method in ["PUT", "DELETE"] {
                let headers = ["X-Fencing-Token: 6", header];
                let refused =
                    send(&server.address, method, "/v1/resources/k", &headers, "").await;
                assert_eq!(refused.status, 400, "{method} {header}");
                assert_eq!(refused.problem(), "invalid-request", "{method} {header}");
            }
        }
        assert_eq!(client.mark("k").await, (5, 0));
        let read = client.request(Method::GET, "/v1/resources/k").header("If-Match", "\"1\"");
        assert_eq!(answer(read).await.problem(), "invalid-request");
    }
}
