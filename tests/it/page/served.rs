//! What the admin address answers, without a browser.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    eventually,
    fencepost::Fencepost,
    http::{Answer, answer, raw},
    postgres::Postgres,
    store::TestStore,
};

async fn state(server: &Fencepost) -> Value {
    let state = answer(server.admin_client().get("/page/state")).await;
    assert_eq!(state.status, 200, "{}", state.text());
    state.json()
}

#[tokio::test]
async fn a_browser_is_told_to_run_nothing_else() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let page = answer(server.admin_client().get("/")).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none'", "script-src 'sha256-", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for path in ["/", "/page/state", "/v1/rejections"] {
        let guarded = answer(server.admin_client().get(path)).await;
        assert_eq!(guarded.status, 200, "{path}");
        assert_eq!(guarded.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(guarded.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(guarded.header("x-frame-options"), Some("DENY"), "{path}");
        assert!(guarded.header("access-control-allow-origin").is_none(), "{path}");
    }
}

#[tokio::test]
async fn before_it_has_asked_it_claims_nothing() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let page = answer(server.admin_client().get("/")).await.text();
    let (first_paint, _) = page.split_once("<script").expect("a script");
    assert!(first_paint.contains("Looking…"), "{first_paint}");
    for claim in ["None.", "Nothing"] {
        assert!(!first_paint.contains(claim), "{claim}");
    }
}

/// As a browser would ask that was led here by somebody else's name.
async fn asked_as(server: &Fencepost, host: &str, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let text = raw(&server.admin, request).await;
    Answer::parse(text.as_bytes()).expect("an answer")
}

#[tokio::test]
async fn a_stranger_s_name_is_not_answered() {
    let flags = ["--admin-hosts", "fence.example.com, other.example.com"];
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &flags).await;
    for path in ["/", "/page/state", "/v1/rejections"] {
        for host in ["127.0.0.1", "localhost:7421", "[::1]:7421", "fence.example.com:443"] {
            assert_eq!(asked_as(&server, host, path).await.status, 200, "{host}{path}");
        }
        for host in ["evil.example.com", "localhost.evil.example.com:7421", ""] {
            let refused = asked_as(&server, host, path).await;
            assert_eq!(refused.status, 400, "{host}{path}");
            assert_eq!(refused.problem(), "invalid-request");
        }
    }
    // Probes and scrapers use whatever name they like; there is nothing in it for a stranger.
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(asked_as(&server, "evil.example.com", path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn it_can_only_be_read() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    for path in ["/", "/page/state", "/v1/rejections"] {
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            let refused = answer(server.admin_client().request(method, path)).await;
            assert_eq!(refused.status, 405, "{path}");
        }
    }
    for path in ["/page", "/page/", "/v1/resources/k", "/v1/locks"] {
        assert_eq!(answer(server.admin_client().get(path)).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn the_state_says_what_there_is() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let granted = answer(client.acquire("orders/42", &json!({"owner": "billing-7"}))).await;
    let token = granted.json()["token"].as_i64().unwrap();
    assert_eq!(answer(client.put("orders/42", token, "v")).await.status, 201);
    for _ in 0..3 {
        assert_eq!(answer(client.put("orders/42", token + 9, "v")).await.status, 422);
    }
    let waiting = client.clone();
    let waiter = tokio::spawn(async move {
        let terms = json!({"owner": "billing-8", "wait_ms": 30_000});
        answer(waiting.acquire("orders/42", &terms)).await.status
    });
    client.until_waiting("orders/42", 1).await;

    let sum = |state: &Value, what: &str| -> u64 {
        state["history"][what].as_array().unwrap().iter().filter_map(Value::as_u64).sum()
    };
    // Two claims, a put: the grant's, and what follows.
    eventually("they are in the chart", || async {
        let state = state(&server).await;
        sum(&state, "rejected") == 3 && sum(&state, "accepted") >= 2
    })
    .await;
    eventually("the waiter is seen", || async {
        state(&server).await["locks"]["held"][0]["waiters"] == 1
    })
    .await;
    let state = state(&server).await;
    assert_eq!(state["trust"], "bounded");
    assert_eq!(state["authority"], "store");
    assert_eq!(state["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(state["epoch"], 0);
    assert_eq!(state["queue"], json!({"depth": 0, "limit": 1024}));
    assert_eq!(state["top"], json!({"of": 3, "keys": [{"key": "orders/42", "count": 3}]}));
    let lock = &state["locks"]["held"][0];
    assert_eq!(lock["name"], "orders/42");
    assert_eq!(lock["owner"], "billing-7");
    assert_eq!(lock["token"], token);
    let left = lock["ttl_ms"].as_u64().unwrap();
    assert!(left > 0 && left <= 30_000, "{left}");
    let names: Vec<&Value> =
        state["checks"].as_array().unwrap().iter().map(|check| &check["name"]).collect();
    assert_eq!(names, ["started", "serving", "store", "authority"]);
    assert_eq!(answer(client.release("orders/42", token)).await.status, 204);
    assert_eq!(waiter.await.unwrap(), 201);
}

#[tokio::test]
async fn without_an_authority_there_are_no_locks_and_no_epoch() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let state = state(&server).await;
    assert_eq!((&state["locks"], &state["epoch"]), (&Value::Null, &Value::Null));
    assert_eq!(state["trust"], "open");
}

#[tokio::test]
async fn a_store_that_is_away_is_an_answer_and_no_password_is_shown() {
    let mut postgres = Postgres::start(&[]).await;
    let url = postgres.database("").await;
    let server = Fencepost::start(&url, &["--authority", "store"]);
    server.wait_until_ready().await;
    assert!(!state(&server).await["store"].as_str().unwrap().contains("secret"));
    postgres.stop("fast").await;
    eventually("the store is seen to be away", || async {
        let state = state(&server).await;
        let checks = state["checks"].as_array().unwrap().clone();
        checks.iter().any(|check| check["name"] == "store" && check["ok"] == false)
            && state["locks"]["problem"].is_string()
    })
    .await;
}
