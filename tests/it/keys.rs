//! A key is the rest of the path, decoded once and taken literally.

use reqwest::Method;
use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{answer, send},
    store::on_each_store,
};

const TOKEN: &str = "X-Fencing-Token: 5";

/// (as it is written in a path, as it is meant). Sent over a raw socket, since a client library
/// would tidy some of them up.
const ODD_KEYS: &[(&str, &str)] = &[
    ("a%2Fb", "a/b"),
    ("a//b", "a//b"),
    ("/", "/"),
    ("//", "//"),
    ("a/", "a/"),
    (".", "."),
    ("..", ".."),
    ("a/../b", "a/../b"),
    ("%2e%2e/%2E", "../."),
    ("a%20b", "a b"),
    ("a+b", "a+b"),
    ("a%2Bc", "a+c"),
    ("%252F", "%2F"),
    ("a%3Fb%23c", "a?b#c"),
    ("%F0%9F%94%92", "🔒"),
    ("%C3%A9", "\u{e9}"),
    ("e%CC%81", "e\u{301}"),
    ("%E2%80%AE%EF%BB%BF", "\u{202e}\u{feff}"),
    ("%0D%0A%1B[31m%07%7F", "\r\n\u{1b}[31m\u{7}\u{7f}"),
    ("%01", "\u{1}"),
    ("a;b=c,d&e!$'()*:@~_-", "a;b=c,d&e!$'()*:@~_-"),
    ("A", "A"),
    ("a", "a"),
    ("%EF%BF%BD", "\u{fffd}"),
    ("%F4%8F%BF%BF", "\u{10ffff}"),
    ("';DROP%20TABLE%20resources;--", "';DROP TABLE resources;--"),
];

on_each_store! {
    async fn odd_keys_are_data(store: TestStore) {
        let server = Fencepost::on(&store).await;
        for (encoded, key) in ODD_KEYS {
            let target = format!("/v1/resources/{encoded}");
            let created = send(&server.address, "PUT", &target, &[TOKEN], encoded).await;
            assert_eq!(created.status, 201, "{encoded}: {}", created.text());
            assert_eq!(created.json(), json!({"key": key, "version": 1, "token": 5}));
        }
        for (encoded, key) in ODD_KEYS {
            let target = format!("/v1/resources/{encoded}");
            let read = send(&server.address, "GET", &target, &[], "").await;
            assert_eq!((read.status, read.text().as_str()), (200, *encoded));
            let mark = send(&server.address, "GET", &format!("/v1/marks/{encoded}"), &[], "").await;
            assert_eq!(mark.json(), json!({"key": key, "token": 5, "seq": 0}));
        }

        let listed = answer(server.client().get("/v1/resources?limit=1000")).await.json();
        let mut expected: Vec<&str> = ODD_KEYS.iter().map(|(_, key)| *key).collect();
        expected.sort_unstable();
        let listed: Vec<_> = listed["resources"].as_array().expect("a list").iter().collect();
        assert_eq!(listed.iter().map(|entry| &entry["key"]).collect::<Vec<_>>(), expected);
    }
}

on_each_store! {
    async fn an_escaped_slash_is_a_slash(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("orders%2F42", 5, "paid")).await;
        assert_eq!(answer(client.read("orders/42")).await.text(), "paid");
        assert_eq!(answer(client.put("orders/42", 4, "oops")).await.problem(), "stale-token");
        assert_eq!(answer(client.claim("orders%2f42", 6)).await.status, 200);
        assert_eq!(client.mark("orders/42").await, (6, 0));
    }
}

on_each_store! {
    async fn a_key_has_1024_bytes_at_most(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        // 1024 bytes as they are kept, three times as many as they are sent.
        let longest = "%C3%A9".repeat(512);
        assert_eq!(answer(client.put(&longest, 5, "v")).await.status, 201);
        assert_eq!(answer(client.read(&longest)).await.text(), "v");
        for too_long in [format!("{longest}a"), "k".repeat(1025)] {
            let refused = answer(client.put(&too_long, 5, "v")).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-key"));
        }
    }
}

on_each_store! {
    /// `..` in a path must not lead to another resource, or out of the API.
    async fn the_server_never_rewrites_a_path(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let put = |target: &'static str| send(&server.address, "PUT", target, &[TOKEN], "v");
        assert_eq!(put("/v1/resources/a/../b").await.status, 201);
        assert_eq!(answer(server.client().read("b")).await.status, 404);
        assert_eq!(put("/v1/marks/../resources/c").await.json()["key"], "../resources/c");
        assert_eq!(answer(server.client().read("c")).await.status, 404);
        assert_eq!(put("//v1/resources/d").await.problem(), "not-found");
        assert_eq!(put("/v1//resources/d").await.problem(), "not-found");
    }
}

on_each_store! {
    async fn a_key_that_cannot_be_is_refused_everywhere(store: TestStore) {
        let server = Fencepost::on(&store).await;
        for encoded in ["", "%00", "a%00b", "%ff", "%C3", "%ED%A0%80", "%zz", "%", "a%2", "%%32"] {
            for method in ["GET", "PUT", "DELETE"] {
                let target = format!("/v1/resources/{encoded}");
                let refused = send(&server.address, method, &target, &[TOKEN], "").await;
                assert_eq!(refused.status, 400, "{method} {encoded:?}: {}", refused.text());
                assert_eq!(refused.problem(), "invalid-key");
                assert_eq!(refused.header("x-fencing-mark"), None);
            }
            // A token means nothing where a mark is only read.
            for (method, headers) in [("GET", &[][..]), ("PUT", &[TOKEN][..])] {
                let target = format!("/v1/marks/{encoded}");
                let refused = send(&server.address, method, &target, headers, "").await;
                assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-key"));
            }
            let scope = format!("X-Fencing-Scope: {encoded}");
            let refused =
                send(&server.address, "PUT", "/v1/resources/k", &[TOKEN, &scope], "").await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-key"));
        }
    }
}

on_each_store! {
    /// Whoever sends one has most likely left a `?` of the key unescaped.
    async fn a_query_on_a_resource_is_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for (method, path) in [
            (Method::GET, "/v1/resources/k?x"),
            (Method::PUT, "/v1/resources/k?x=1"),
            (Method::DELETE, "/v1/resources/k?"),
            (Method::GET, "/v1/marks/k?x"),
            (Method::PUT, "/v1/marks/k?x"),
        ] {
            let refused = client.request(method, path).header("X-Fencing-Token", 5);
            assert_eq!(answer(refused).await.problem(), "invalid-request", "{path}");
        }
        assert_eq!(client.mark("k").await, (0, 0));
    }
}
