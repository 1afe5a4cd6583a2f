//! What was refused: recorded once, whoever refused it, and found again by whoever asks.

mod audit;
mod command;
mod flood;
mod reasons;
mod stream;

use serde_json::{Value, json};

use crate::harness::{
    eventually,
    fencepost::Fencepost,
    http::{Client, answer, send},
    prometheus::Scrape,
    store::{TestStore, on_each_store},
};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The rejections that a query finds, newest first.
pub async fn rejections(client: &Client, query: &str) -> Vec<Value> {
    let listing = answer(client.get(&format!("/v1/rejections{query}"))).await;
    assert_eq!(listing.status, 200, "{}", listing.text());
    listing.json()["rejections"].as_array().expect("a list").clone()
}

/// One write that is refused from memory: the mark is 9.
pub async fn one_stale_write(client: &Client, key: &str) {
    assert!(answer(client.put(key, 9, "new")).await.status < 300);
    assert_eq!(answer(client.put(key, 7, "old")).await.status, 409);
}

on_each_store! {
    async fn a_rejection_says_who_was_fenced_off_on_which_key_and_how_far_behind(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("orders/42", 9, "new")).await.status, 201);
        let stale = client
            .put("orders/42", 7, "old")
            .header("X-Fencing-Seq", 3)
            .header("X-Fencing-Scope", "orders")
            .header("X-Fencing-Client", "billing-7")
            .header("traceparent", TRACEPARENT);
        let refused = answer(stale).await;
        assert_eq!(refused.status, 409);

        let found = rejections(&client, "").await;
        assert_eq!(found.len(), 1, "{found:?}");
        let mut rejection = found[0].clone();
        let at = rejection["at"].as_str().expect("a time").to_owned();
        let age = humantime::parse_rfc3339(&at).expect("RFC 3339").elapsed().expect("the past");
        assert!(age.as_secs() < 3600 && at.len() == "2026-01-31T12:00:00.000Z".len(), "{at}");
        let peer = rejection["peer"].as_str().expect("an address");
        assert!(peer.starts_with("127.0.0.1:"), "{peer}");
        for varying in ["at", "id", "peer"] {
            rejection.as_object_mut().expect("an object").remove(varying);
        }
        assert_eq!(rejection, json!({
            "key": "orders/42", "scope": "orders", "reason": "stale-token", "token": 7, "mark": 9,
            "seq": 3, "client": "billing-7", "trace": "0af7651916cd43dd8448eb211c80319c",
            "decided_by": "cache", "overtaken_by": null, "identity": null,
        }));

        // The trace goes on, under a step of our own.
        let parent = refused.header("traceparent").expect("passed on");
        let (trace, step) = (&parent[..36], &parent[36..52]);
        assert_eq!(trace, &TRACEPARENT[..36]);
        assert_ne!(step, &TRACEPARENT[36..52]);
        assert!(parent.ends_with("-01"), "{parent}");
    }
}

on_each_store! {
    /// As many records as the metrics count, with the same reasons and the same judges.
    async fn every_reason_is_recorded_once_by_whoever_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for key in ["k", "s"] {
            let first = client.put(key, 9, "new").header("X-Fencing-Seq", 5);
            assert_eq!(answer(first).await.status, 201);
        }
        let with_seq = |seq: i64, body| client.put("k", 9, body).header("X-Fencing-Seq", seq);
        let put = |key: &str| client.request(reqwest::Method::PUT, &format!("/v1/resources/{key}"));
        let batch = json!({"writes": [
            {"key": "a", "token": 9, "value": 1}, {"key": "k", "token": 8, "value": 1},
        ]});
        let requests = [
            (client.put("k", 8, "old"), "stale-token", "cache", json!("k")),
            (client.batch(&batch), "stale-token", "store", json!("k")),
            (with_seq(4, "late"), "out-of-order", "store", json!("k")),
            (with_seq(5, "other"), "seq-reused", "store", json!("k")),
            (with_seq(6, "x").header("If-Match", "\"7\""), "version-mismatch", "store", json!("k")),
            (put("k"), "token-required", "input", json!("k")),
            (put("k").header("X-Fencing-Token", "+5"), "invalid-token", "input", json!("k")),
            (client.put("k", 9, "x").header("X-Fencing-Seq", "x"), "invalid-seq", "input", json!("k")),
            (client.put("%00", 9, "x"), "invalid-key", "input", json!(null)),
            (client.put("k", 9, "x").header("X-Fencing-Rule", "x"), "invalid-request", "input", json!("k")),
            (client.batch(&json!({"writes": [{"key": "b", "value": 1}]})), "token-required", "input", json!("b")),
            (client.claim("s", 8), "stale-token", "cache", json!("s")),
            (client.read("s").header("X-Fencing-Token", 8), "stale-token", "cache", json!("s")),
        ];
        let before = Scrape::of(&server).await;
        let mut expected = Vec::new();
        for (request, reason, judge, key) in requests {
            let refused = answer(request).await;
            assert_eq!(refused.problem(), reason, "{}", refused.text());
            expected.insert(0, (json!(reason), json!(judge), key));
        }
        let found = rejections(&client, "").await;
        let told: Vec<_> = found
            .iter()
            .map(|r| (r["reason"].clone(), r["decided_by"].clone(), r["key"].clone()))
            .collect();
        assert_eq!(told, expected);
        let rises = Scrape::of(&server).await.since(&before);
        let counted: f64 = rises
            .iter()
            .filter(|(series, _)| series.starts_with("fencepost_rejected_writes_total"))
            .map(|(_, rise)| rise)
            .sum();
        #[allow(clippy::cast_precision_loss, reason = "there are a dozen")]
        let recorded = found.len() as f64;
        assert!((counted - recorded).abs() < 0.5, "{counted} counted, {recorded} recorded");
    }
}

#[tokio::test]
async fn a_token_that_nobody_was_given_is_recorded_too() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let forged = answer(client.put("k", i64::MAX, "x")).await;
    assert_eq!(forged.problem(), "unissued-token");
    let found = rejections(&client, "?reason=unissued-token").await;
    assert_eq!((found.len(), &found[0]["token"]), (1, &json!(i64::MAX)));
}

on_each_store! {
    async fn whoever_overtook_it_is_named_where_the_grant_is_known(store: TestStore) {
        let server = Fencepost::with(&store, &["--authority", "store"]).await;
        let client = server.client();
        let first = client.lock("k", std::time::Duration::from_secs(30)).await;
        assert_eq!(answer(client.release("k", first)).await.status, 204);
        let terms = json!({"ttl_ms": 30_000, "owner": "billing-8"});
        let second = answer(client.acquire("k", &terms)).await.json()["token"].clone();
        assert_eq!(answer(client.put("k", first, "late")).await.problem(), "stale-token");
        let found = rejections(&client, "").await;
        assert_eq!(found[0]["mark"], second);
        assert_eq!(found[0]["overtaken_by"], "billing-8");
        // A lock that is lost is no write.
        assert_eq!(answer(client.renew("k", first)).await.problem(), "lock-lost");
        assert_eq!(rejections(&client, "").await.len(), 1);
    }
}

on_each_store! {
    /// The lock service is asked, off the way of the write.
    async fn whoever_overtook_it_by_way_of_another_fencepost_is_found_out(store: TestStore) {
        let flags = ["--authority", "store"];
        let [here, there] =
            [Fencepost::with(&store, &flags).await, Fencepost::with(&store, &flags).await];
        let client = here.client();
        let first = client.lock("lock", std::time::Duration::from_secs(30)).await;
        assert_eq!(answer(client.release("lock", first)).await.status, 204);
        let terms = json!({"ttl_ms": 600_000, "owner": "billing-8"});
        let second = answer(there.client().acquire("lock", &terms)).await;
        assert_eq!(second.status, 201, "{}", second.text());
        let late = client.put("orders/42", first, "late").header("X-Fencing-Scope", "lock");
        assert_eq!(answer(late).await.problem(), "stale-token");
        for server in [&here, &there] {
            let client = server.client();
            eventually("it is named, here and in the store", || async {
                let found = rejections(&client, "").await;
                found.first().is_some_and(|rejection| rejection["overtaken_by"] == "billing-8")
            })
            .await;
        }
    }
}

#[tokio::test]
async fn who_asked_is_told_by_the_client_header_or_else_the_user_agent() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    let put = || client.request(reqwest::Method::PUT, "/v1/resources/k");
    let long = "u".repeat(300);
    for (request, who) in [
        (put().header("User-Agent", "curl/8"), json!("curl/8")),
        (put().header("User-Agent", "curl/8").header("X-Fencing-Client", "me"), json!("me")),
        (put().header("User-Agent", &long), json!("u".repeat(256))),
        (put().header("X-Fencing-Client", &long), json!("u".repeat(256))),
    ] {
        assert!(answer(request).await.status >= 400);
        assert_eq!(rejections(&client, "?limit=1").await[0]["client"], who);
    }
    // A trace that is not as the standard has it is ignored.
    let bad = put().header("traceparent", TRACEPARENT.to_uppercase());
    assert_eq!(answer(bad).await.header("traceparent"), None);
    assert_eq!(rejections(&client, "?limit=1").await[0]["trace"], json!(null));
}

on_each_store! {
    async fn they_are_found_by_key_reason_and_time(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        one_stale_write(&client, "a").await;
        one_stale_write(&client, "b%0A%3Cb%3E").await;
        let put = client.request(reqwest::Method::PUT, "/v1/resources/a");
        assert_eq!(answer(put).await.status, 428);
        let count = async |query: &str| rejections(&client, query).await.len();
        assert_eq!(count("").await, 3);
        assert_eq!(count("?key=a").await, 2);
        assert_eq!(count("?key=b%0A%3Cb%3E").await, 1);
        assert_eq!(count("?reason=stale-token").await, 2);
        assert_eq!(count("?key=a&reason=stale-token").await, 1);
        assert_eq!(count("?since=1h&limit=2").await, 2);
        assert_eq!(count("?since=2999-01-01T00:00:00Z").await, 0);
        let first = rejections(&client, "").await[2]["at"].as_str().expect("a time").to_owned();
        assert_eq!(count(&format!("?since={first}")).await, 3);
        for bad in ["?key=", "?reason=none", "?since=soon", "?limit=0", "?limit=1001", "?who=me", "?limit=1&limit=1"] {
            let refused = answer(client.get(&format!("/v1/rejections{bad}"))).await;
            assert_eq!(refused.status, 400, "{bad}");
        }
        let form = client.get("/v1/rejections").header("Accept", "text/html");
        assert_eq!(answer(form).await.problem(), "not-acceptable");
    }
}

#[tokio::test]
async fn a_hostile_client_cannot_forge_a_line_of_the_log() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    one_stale_write(&server.client(), "a%0D%0A%1B%5B31mforged").await;
    let headers = ["X-Fencing-Client: evil\u{9b}31m\u{202e}", "X-Fencing-Token: 1"];
    let path = "/v1/resources/a%0D%0A%1B%5B31mforged";
    assert_eq!(send(&server.address, "PUT", path, &headers, "x").await.status, 409);
    let lines = || {
        let log = server.log();
        let lines: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect();
        lines.into_iter().filter(|entry| entry["message"] == "a write was refused").collect()
    };
    eventually("both are logged", || async { Vec::<Value>::len(&lines()) == 2 }).await;
    let steers = |c: char| c.is_control() || c == '\u{202e}';
    assert!(!server.log().replace('\n', "").contains(steers), "{}", server.log());
    let line: Value = lines().remove(1);
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["reason"], "stale-token");
    assert_eq!((&line["token"], &line["mark"], &line["lag"]), (&json!(1), &json!(9), &json!(8)));
    assert_eq!(line["client"], "evil\u{9b}31m\u{202e}");
}
