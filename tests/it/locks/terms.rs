//! What may be asked for, and what is refused before anybody is asked.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    authority::TestAuthority,
    fencepost::Fencepost,
    http::{answer, raw, send},
    store::TestStore,
};

async fn server() -> (TestAuthority, Fencepost) {
    let authority = TestAuthority::in_store(TestStore::sqlite());
    let server = authority.fencepost().await;
    (authority, server)
}

#[tokio::test]
async fn every_term_may_be_left_out_and_so_may_all_of_them() {
    let (_authority, server) = server().await;
    let post = async |name: &str, headers: &[&str], body: &str| {
        let granted =
            send(&server.address, "POST", &format!("/v1/locks/{name}"), headers, body).await;
        assert_eq!(granted.status, 201, "{}", granted.text());
        let grant = granted.json();
        (grant["ttl_ms"].clone(), grant["owner"].clone())
    };
    let json_type = "Content-Type: application/json";
    let defaults = (json!(30_000), json!(""));
    assert_eq!(post("a", &[], "").await, defaults);
    assert_eq!(post("b", &[json_type], "").await, defaults);
    assert_eq!(post("c", &[json_type], "{}").await, defaults);
    assert_eq!(
        post("d", &["Content-Type: APPLICATION/JSON; charset=utf-8"], " null ").await,
        defaults
    );
    let nulls = r#"{"ttl_ms": null, "wait_ms": null, "owner": null}"#;
    assert_eq!(post("e", &[json_type], nulls).await, defaults);
    let client = "X-Fencing-Client: header";
    assert_eq!(post("f", &[client], "").await.1, "header");
    assert_eq!(post("g", &[client, json_type], r#"{"owner": "body"}"#).await.1, "body");
    assert_eq!(post("h", &[client, json_type], r#"{"owner": ""}"#).await.1, "");
    let utf8 = r#"{"owner": "\u00fc\n\ud83d\udd12"}"#;
    assert_eq!(post("i", &[json_type], utf8).await.1, "\u{fc}\n\u{1f512}");
    let most = json!({"ttl_ms": 3_600_000, "wait_ms": 600_000, "owner": "x".repeat(256)});
    assert_eq!(post("j", &[json_type], &most.to_string()).await.0, 3_600_000);
    assert_eq!(post("k", &[json_type], r#"{"ttl_ms": 1000, "wait_ms": 0}"#).await.0, 1000);
}

#[tokio::test]
async fn a_mistake_is_told_by_its_member() {
    let (_authority, server) = server().await;
    let client = server.client();
    let long = "x".repeat(257);
    let cases: &[(&str, &[Value])] = &[
        (
            "ttl_ms",
            &[
                json!(999),
                json!(3_600_001),
                json!(0),
                json!(-1),
                json!(5000.5),
                json!("5000"),
                json!(true),
                json!([]),
                json!(u64::MAX),
            ],
        ),
        ("wait_ms", &[json!(600_001), json!(-1), json!(0.5), json!("0"), json!({})]),
        ("owner", &[json!(7), json!(long), json!("\u{fc}".repeat(129)), json!("a\0b"), json!([])]),
        ("tll_ms", &[json!(5000)]),
        ("token", &[json!(1)]),
    ];
    for (member, values) in cases {
        for value in *values {
            let refused = answer(client.acquire("k", &json!({*member: value}))).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
            let detail = refused.json()["detail"].as_str().expect("a detail").to_owned();
            assert!(detail.contains(member), "{member} = {value}: {detail}");
        }
    }
    for text in [
        "{",
        "[]",
        " [5000, 0, \"me\"]",
        "7",
        r#"{"ttl_ms":1e4}"#,
        r#"{"ttl_ms":5000.0}"#,
        r#"{"ttl_ms":05000}"#,
        r#"{"ttl_ms":5000,"ttl_ms":6000}"#,
        r#"{"owner":"\ud800"}"#,
        "{} {}",
    ] {
        let refused = answer(client.acquire("k", &json!({})).body(text)).await;
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (400, "invalid-request"),
            "{text}"
        );
    }
    assert_eq!(client.holder("k").await, 0, "nothing was granted");
}

#[tokio::test]
async fn what_is_not_json_is_not_taken_for_it() {
    let (_authority, server) = server().await;
    for headers in [&[][..], &["Content-Type: text/plain"], &["Content-Type: application/jsonx"]] {
        let refused = send(&server.address, "POST", "/v1/locks/k", headers, "{}").await;
        assert_eq!((refused.status, refused.problem().as_str()), (415, "unsupported-media-type"));
    }
    let refused = server.client().acquire("k", &json!({})).header("Accept", "text/html");
    assert_eq!(answer(refused).await.problem(), "not-acceptable");
    let refused = server.client().get("/v1/locks/k").header("Accept", "image/png");
    let refused = answer(refused).await;
    assert_eq!((refused.status, refused.problem().as_str()), (406, "not-acceptable"));
    assert_eq!(server.client().holder("k").await, 0);
}

#[tokio::test]
async fn a_holder_says_which_grant_it_means() {
    let (_authority, server) = server().await;
    for method in ["PUT", "DELETE"] {
        for (headers, status, problem) in [
            (&[][..], 428, "token-required"),
            (&["X-Fencing-Token: 0"], 400, "invalid-token"),
            (&["X-Fencing-Token: 1.0"], 400, "invalid-token"),
            (&["X-Fencing-Token: 1", "X-Fencing-Token: 1"], 400, "invalid-token"),
            (&["X-Fencing-Token: 1", "If-Match: \"1\""], 400, "invalid-request"),
            (&["X-Fencing-Token: 1", "X-Fencing-Scope: s"], 400, "invalid-request"),
        ] {
            let refused = send(&server.address, method, "/v1/locks/k", headers, "").await;
            assert_eq!(
                (refused.status, refused.problem().as_str()),
                (status, problem),
                "{headers:?}"
            );
        }
    }
}

#[tokio::test]
async fn paths_and_queries_are_taken_as_elsewhere() {
    let (_authority, server) = server().await;
    for (method, target, status, problem) in [
        ("POST", "/v1/locks/", 400, "invalid-key"),
        ("GET", "/v1/locks/", 400, "invalid-key"),
        ("GET", "/v1/locks/%ff", 400, "invalid-key"),
        ("POST", "/v1/locks/k?wait_ms=5", 400, "invalid-request"),
        ("GET", "/v1/locks/k?x", 400, "invalid-request"),
        ("GET", "/v1/locks?name=k", 400, "invalid-request"),
        ("GET", "/v1/locks?limit=1001", 400, "invalid-request"),
        ("POST", "/v1/locks", 405, "method-not-allowed"),
        ("PATCH", "/v1/locks/k", 405, "method-not-allowed"),
    ] {
        let refused = send(&server.address, method, target, &[], "").await;
        assert_eq!((refused.status, refused.problem().as_str()), (status, problem), "{target}");
    }
    let long = format!("/v1/locks/{}", "k".repeat(1025));
    assert_eq!(send(&server.address, "POST", &long, &[], "").await.problem(), "invalid-key");
    let head = "HEAD /v1/locks/k HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    let head = raw(&server.address, head).await;
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn a_server_without_an_authority_says_what_to_set() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    for (method, path) in [
        (Method::POST, "/v1/locks/k"),
        (Method::PUT, "/v1/locks/k"),
        (Method::DELETE, "/v1/locks/k"),
        (Method::GET, "/v1/locks/k"),
        (Method::GET, "/v1/locks"),
    ] {
        let refused = answer(server.client().request(method, path)).await;
        assert_eq!((refused.status, refused.problem().as_str()), (404, "not-found"));
        assert!(refused.json()["detail"].as_str().is_some_and(|text| text.contains("--authority")));
    }
}
