//! Writing, reading and deleting a resource over HTTP, and the fence around it.

use reqwest::Method;
use serde_json::json;

use crate::harness::{fencepost::Fencepost, http::answer, store::on_each_store};

on_each_store! {
    async fn a_write_below_the_mark_is_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();

        let created = answer(client.put("orders/42", 5, "paid")).await;
        assert_eq!(created.status, 201);
        assert_eq!(created.header("content-type"), Some("application/json"));
        assert_eq!(created.json(), json!({"key": "orders/42", "version": 1, "token": 5}));
        assert_eq!(created.fencing(), (Some("5"), Some("\"1\"")));

        let stale = answer(client.put("orders/42", 4, "oops")).await;
        assert_eq!(stale.status, 409);
        assert_eq!(stale.fencing(), (Some("5"), Some("\"1\"")));
        assert_eq!(
            stale.members(),
            json!({
                "type": "urn:fencepost:stale-token", "status": 409, "retryable": false,
                "key": "orders/42", "token": 4, "mark": 5, "version": 1,
            })
        );

        assert_eq!(answer(client.read("orders/42")).await.text(), "paid");
        assert_eq!(client.mark("orders/42").await, (5, 0));
    }
}

on_each_store! {
    /// The same refusal by a server that has nothing in its cache yet.
    async fn a_restarted_server_refuses_the_same(store: TestStore) {
        answer(Fencepost::on(&store).await.client().put("k", 5, "paid")).await;
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for _ in 0..2 {
            let stale = answer(client.put("k", 4, "oops").header("X-Fencing-Seq", 9)).await;
            assert_eq!(stale.fencing(), (Some("5"), Some("\"1\"")));
            assert_eq!(
                stale.members(),
                json!({
                    "type": "urn:fencepost:stale-token", "status": 409, "retryable": false,
                    "key": "k", "token": 4, "seq": 9, "mark": 5, "version": 1,
                })
            );
        }
        let read = answer(client.read("k")).await;
        assert_eq!((read.status, read.text().as_str()), (200, "paid"));
    }
}

on_each_store! {
    async fn a_higher_token_takes_over_and_an_equal_one_goes_on(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "a")).await;

        let again = answer(client.put("k", 5, "b")).await;
        assert_eq!(again.status, 200);
        assert_eq!(again.json(), json!({"key": "k", "version": 2, "token": 5}));
        assert_eq!(again.fencing(), (Some("5"), Some("\"2\"")));

        let successor = answer(client.put("k", i64::MAX, "c")).await;
        assert_eq!(successor.status, 200);
        assert_eq!(successor.json(), json!({"key": "k", "version": 3, "token": i64::MAX}));
        assert_eq!(successor.fencing(), (Some("9223372036854775807"), Some("\"3\"")));
        assert_eq!(answer(client.put("k", i64::MAX - 1, "d")).await.problem(), "stale-token");
        assert_eq!(answer(client.read("k")).await.text(), "c");
    }
}

on_each_store! {
    async fn the_rule_above_allows_one_write_for_each_token(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let put = |token, rule| client.put("k", token, "v").header("X-Fencing-Rule", rule);

        assert_eq!(answer(put(5, "above")).await.status, 201);
        let second = answer(put(5, "above")).await;
        assert_eq!(second.problem(), "stale-token");
        assert_eq!(second.json()["mark"], 5);
        assert_eq!(second.fencing(), (Some("5"), Some("\"1\"")));
        let delete = answer(client.delete("k", 5).header("X-Fencing-Rule", "above")).await;
        assert_eq!(delete.problem(), "stale-token");

        assert_eq!(answer(put(5, "at-least")).await.status, 200);
        assert_eq!(answer(client.put("k", 5, "v")).await.status, 200);
        assert_eq!(answer(put(6, "above")).await.status, 200);
        assert_eq!(answer(put(6, "below")).await.problem(), "invalid-request");
    }
}

on_each_store! {
    async fn a_request_may_overrule_the_servers_rule(store: TestStore) {
        let server = Fencepost::with(&store, &["--rule", "above"]).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", 5, "a")).await.status, 201);
        assert_eq!(answer(client.put("k", 5, "b")).await.problem(), "stale-token");
        assert_eq!(answer(client.delete("k", 5)).await.problem(), "stale-token");
        let batch = json!({"writes": [{"key": "k", "token": 5, "value": 1}]});
        assert_eq!(answer(client.batch(&batch)).await.problem(), "stale-token");

        let at_least = client.put("k", 5, "c").header("X-Fencing-Rule", "at-least");
        assert_eq!(answer(at_least).await.status, 200);
        let batch = json!({"writes": [{"key": "k", "token": 5, "rule": "at-least", "value": 1}]});
        assert_eq!(answer(client.batch(&batch)).await.status, 200);
    }
}

on_each_store! {
    async fn a_read_gives_back_the_bytes_and_their_type(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let everything: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        for (key, content_type, body) in [
            ("json", Some("application/json; charset=utf-8"), b"{ \"a\":1.0 }".to_vec()),
            ("odd", Some("x/y;  Z=\"q;r\""), b"?".to_vec()),
            ("bytes", None, everything),
            ("empty", None, Vec::new()),
        ] {
            let mut put = client
                .request(Method::PUT, &format!("/v1/resources/{key}"))
                .header("X-Fencing-Token", 3)
                .body(body.clone());
            if let Some(content_type) = content_type {
                put = put.header("Content-Type", content_type);
            }
            assert_eq!(answer(put).await.status, 201, "{key}");

            let read = answer(client.read(key)).await;
            assert_eq!(read.status, 200, "{key}");
            assert_eq!(read.body, body, "{key}");
            let expected = content_type.unwrap_or("application/octet-stream");
            assert_eq!(read.header("content-type"), Some(expected));
            assert_eq!(read.header("content-length"), Some(body.len().to_string().as_str()));
            assert_eq!(read.fencing(), (Some("3"), Some("\"1\"")));
            // It is data, and no page of this server, whatever it says it is.
            assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
            let policy = read.header("content-security-policy");
            assert_eq!(policy, Some("sandbox; default-src 'none'"));
        }
    }
}

on_each_store! {
    async fn a_head_is_a_get_without_the_body(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let head = |key: &str| client.request(Method::HEAD, &format!("/v1/resources/{key}"));
        answer(client.put("k", 3, "four").header("Content-Type", "text/plain")).await;

        let there = answer(head("k")).await;
        assert_eq!((there.status, there.body.len()), (200, 0));
        assert_eq!(there.header("content-type"), Some("text/plain"));
        assert_eq!(there.header("content-length"), Some("4"));
        assert_eq!(there.fencing(), (Some("3"), Some("\"1\"")));

        let known = answer(head("k").header("If-None-Match", "\"1\"")).await;
        assert_eq!((known.status, known.body.len()), (304, 0));

        let absent = answer(head("none")).await;
        assert_eq!((absent.status, absent.body.len()), (404, 0));
        assert_eq!(absent.header("content-type"), Some("application/problem+json"));
        assert_eq!(absent.fencing(), (Some("0"), None));
    }
}

on_each_store! {
    async fn a_reader_that_has_the_version_is_told_so(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 3, "a")).await;
        answer(client.put("k", 3, "b")).await;
        let read = |etags| client.read("k").header("If-None-Match", etags);

        for known in ["\"2\"", "W/\"2\"", "\"1\", \"2\"", "\"x\",\"2\"", "*"] {
            let answer = answer(read(known)).await;
            assert_eq!((answer.status, answer.body.len()), (304, 0), "{known}");
            assert_eq!(answer.fencing(), (Some("3"), Some("\"2\"")), "{known}");
        }
        for unknown in ["\"1\"", "\"3\"", "\"x\"", "2"] {
            let answer = answer(read(unknown)).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, "b"), "{unknown}");
        }
        let absent = client.read("none").header("If-None-Match", "*");
        assert_eq!(answer(absent).await.problem(), "not-found");
    }
}

on_each_store! {
    async fn an_absent_key_is_not_found(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let absent = answer(server.client().read("no/such%20key")).await;
        assert_eq!(absent.status, 404);
        assert_eq!(absent.fencing(), (Some("0"), None));
        assert_eq!(
            absent.members(),
            json!({
                "type": "urn:fencepost:not-found", "status": 404, "retryable": false,
                "key": "no/such key",
            })
        );
    }
}

on_each_store! {
    async fn a_delete_keeps_the_mark(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "v")).await;
        assert_eq!(answer(client.delete("k", 4)).await.problem(), "stale-token");

        let deleted = answer(client.delete("k", 7)).await;
        assert_eq!((deleted.status, deleted.body.len()), (204, 0));
        assert_eq!(deleted.fencing(), (Some("7"), None));

        let read = answer(client.read("k")).await;
        assert_eq!(read.problem(), "not-found");
        assert_eq!(read.fencing(), (Some("7"), None));

        let zombie = answer(client.put("k", 6, "back")).await;
        assert_eq!(zombie.fencing(), (Some("7"), None));
        assert_eq!(
            zombie.members(),
            json!({
                "type": "urn:fencepost:stale-token", "status": 409, "retryable": false,
                "key": "k", "token": 6, "mark": 7,
            })
        );
        assert_eq!(answer(client.delete("k", 6)).await.problem(), "stale-token");
        assert_eq!(client.mark("k").await, (7, 0));
    }
}

on_each_store! {
    async fn a_delete_of_nothing_raises_the_mark_and_no_version(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for token in [8, 8, 9] {
            let deleted = answer(client.delete("k", token)).await;
            assert_eq!((deleted.status, deleted.body.len()), (204, 0));
            assert_eq!(deleted.fencing(), (Some(token.to_string().as_str()), None));
        }
        assert_eq!(answer(client.put("k", 8, "v")).await.problem(), "stale-token");
        let created = answer(client.put("k", 9, "v")).await;
        assert_eq!((created.status, &created.json()["version"]), (201, &json!(1)));
    }
}

on_each_store! {
    async fn versions_go_on_over_a_delete(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 1, "a")).await;
        answer(client.put("k", 1, "a")).await;
        answer(client.delete("k", 1)).await;
        // Nothing is there to delete, so nothing changes.
        answer(client.delete("k", 1)).await;
        answer(client.claim("k", 2)).await;

        let created = answer(client.put("k", 2, "b")).await;
        assert_eq!(created.status, 201);
        assert_eq!(created.json(), json!({"key": "k", "version": 4, "token": 2}));
        assert_eq!(created.fencing(), (Some("2"), Some("\"4\"")));
    }
}

on_each_store! {
    async fn a_write_needs_a_token(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for (method, path) in [
            (Method::PUT, "/v1/resources/k"),
            (Method::DELETE, "/v1/resources/k"),
            (Method::PUT, "/v1/marks/k"),
        ] {
            let refused = answer(client.request(method, path).body("v")).await;
            assert_eq!((refused.status, refused.problem().as_str()), (428, "token-required"));
            assert_eq!(refused.json()["retryable"], false);
        }
        assert_eq!(client.mark("k").await, (0, 0));
    }
}
