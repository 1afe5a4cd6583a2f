//! The picture of the page in the README: a scene with several clients, reasons and locks.
//!
//! `make picture` renews it. Otherwise the scene is short, and only has to come out whole.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{
    browser::Browser,
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
};

async fn lock(client: &Client, name: &str, owner: &str, ttl: u64) -> i64 {
    let granted = answer(client.acquire(name, &json!({"owner": owner, "ttl_ms": ttl}))).await;
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].as_i64().unwrap()
}

async fn put(client: &Client, key: &str, token: i64, who: &str, seq: Option<i64>) -> u16 {
    let request = client.put(key, token, "v").header("X-Fencing-Client", who);
    let request = match seq {
        Some(seq) => request.header("X-Fencing-Seq", seq),
        None => request,
    };
    answer(request).await.status
}

/// Ordinary work, now more and now less of it.
async fn traffic(client: Client, until: Instant) {
    let mut turn = 0_u32;
    let stock = lock(&client, "stock/berlin", "stock-sync-1", 600_000).await;
    while Instant::now() < until {
        let burst = 6.0 + 4.0 * (f64::from(turn) / 9.0).sin() + 2.0 * (f64::from(turn) / 2.3).sin();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is small")]
        for item in 0..burst.max(1.0) as u32 {
            put(&client, &format!("stock/berlin/{item}"), stock, "stock-sync-1", None).await;
        }
        turn += 1;
        tokio::time::sleep(Duration::from_millis(90)).await;
    }
}

#[tokio::test]
async fn it_is_a_picture() {
    let wanted = std::env::var("FENCEPOST_PICTURE").ok();
    let length = Duration::from_secs(if wanted.is_some() { 100 } else { 4 });
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let begin = Instant::now();
    let work = tokio::spawn(traffic(client.clone(), begin + length));

    let paused = lock(&client, "orders/42", "billing-7", 600_000).await;
    assert_eq!(put(&client, "orders/42", paused, "billing-7", Some(1)).await, 201);
    assert_eq!(put(&client, "orders/42", paused, "billing-7", Some(3)).await, 200);
    tokio::time::sleep(length.mul_f64(0.35)).await;
    assert_eq!(put(&client, "orders/42", paused, "billing-7", Some(2)).await, 409);
    assert_eq!(answer(client.release("orders/42", paused)).await.status, 204);
    let nightly = lock(&client, "reports/nightly", "report-runner-b", 600_000).await;
    lock(&client, "orders/42", "billing-8", 600_000).await;
    tokio::time::sleep(length.mul_f64(0.25)).await;
    assert_eq!(put(&client, "reports/today.csv", nightly + 900_000, "etl-import", None).await, 422);
    let tokenless = client.request(reqwest::Method::PUT, "/v1/resources/stock/berlin/3");
    assert_eq!(answer(tokenless.header("User-Agent", "curl/8.11.0").body("v")).await.status, 428);
    tokio::time::sleep(length.mul_f64(0.25)).await;
    for key in ["orders/42", "orders/42", "orders/42", "orders/42"] {
        assert_eq!(put(&client, key, paused, "billing-7", Some(4)).await, 409);
        tokio::time::sleep(length / 60).await;
    }
    let stale = put(&client, "reports/nightly", paused, "report-runner-a", None).await;
    assert_eq!(stale, 409);
    let mismatch = client.put("stock/audit", nightly, "v").header("If-Match", "\"1\"");
    let mismatch = answer(mismatch.header("X-Fencing-Client", "stock-audit")).await;
    assert_eq!(mismatch.status, 412, "{}", mismatch.text());

    lock(&client, "leader/scheduler", "scheduler-0", 60_000).await;
    let waiters: Vec<_> = ["billing-7", "billing-9"]
        .map(|owner| {
            let ask = client.acquire("orders/42", &json!({"owner": owner, "wait_ms": 20_000}));
            tokio::spawn(ask.send())
        })
        .into();

    let browser = Browser::start().await;
    browser.size(1280, 940, 1.5).await;
    browser.prefer("light").await;
    browser.open(&format!("http://{}/", server.admin)).await;
    browser.until("document.querySelectorAll('#rows li').length >= 8").await;
    browser.until("document.querySelectorAll('#locks li').length >= 3").await;
    browser.until("document.querySelectorAll('#times dt').length >= 4").await;
    browser.until("document.querySelector('#chart polyline')").await;
    let picture = browser.screenshot().await;
    assert!(picture.starts_with(b"\x89PNG"));
    if let Some(path) = wanted {
        std::fs::write(&path, picture).expect("the picture is kept");
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
    for waiter in waiters {
        waiter.abort();
    }
    work.await.unwrap();
}
