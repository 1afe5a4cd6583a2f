//! What is counted, and that the number of series is nobody's to choose.

#![allow(clippy::float_cmp, reason = "counts are whole numbers, which floats hold exactly")]

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::harness::{
    blocker::Blocker,
    eventually,
    fencepost::Fencepost,
    http::{self, answer},
    postgres::{self, Postgres},
    prometheus::{Prometheus, Scrape, promtool_complains},
    store::{TestStore, on_each_store},
};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0";

/// What one request has added: counters by their labels, histograms by their counts.
fn rises<const N: usize>(series: [(&str, f64); N]) -> BTreeMap<String, f64> {
    series.into_iter().map(|(series, rise)| (format!("fencepost_{series}"), rise)).collect()
}

#[tokio::test]
async fn every_series_is_there_from_the_start() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let scrape = Scrape::of(&server).await;
    let listing = scrape.series().join("\n").replace(env!("CARGO_PKG_VERSION"), "[version]");
    insta::assert_snapshot!("series", listing);
    for series in scrape.series() {
        let expected = match series {
            "fencepost_store_up" => 1.0,
            series if series.starts_with("fencepost_build_info") => 1.0,
            "fencepost_queue_limit" => 1024.0,
            // It may have been asked already, or not.
            "fencepost_authority_up" => continue,
            _ => 0.0,
        };
        assert_eq!(scrape.get(series), expected, "{series}");
    }
    let asked = server.admin_client().get("/metrics").header("Accept", OPENMETRICS);
    let openmetrics = answer(asked).await;
    assert_eq!(
        openmetrics.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(openmetrics.text().ends_with("# EOF\n"));
    assert_eq!(Scrape::parse(&openmetrics.text()).series(), scrape.series());
}

#[tokio::test]
async fn an_authority_that_nobody_has_set_up_is_not_down() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "none"]).await;
    let scrape = Scrape::of(&server).await;
    assert!(scrape.series().iter().all(|series| !series.starts_with("fencepost_authority")));
}

#[tokio::test]
async fn promtool_has_nothing_to_say_about_it() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let scraped = answer(server.admin_client().get("/metrics")).await;
    assert_eq!(scraped.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(promtool_complains(&scraped.text()), "");
    // And it would have, if something were wrong.
    let untyped = scraped.text().replace("# HELP fencepost_writes_total", "#");
    assert!(promtool_complains(&untyped).contains("fencepost_writes_total"), "{untyped}");
}

#[tokio::test]
async fn every_metric_is_on_its_page_with_its_type() {
    let store = TestStore::sqlite();
    // With everything that has metrics of its own. Nothing is sent to that collector.
    let flags = ["--authority", "store", "--otlp-endpoint", "http://127.0.0.1:9"];
    let server = Fencepost::with(&store, &flags).await;
    let scraped = answer(server.admin_client().get("/metrics")).await.text();
    let page = std::fs::read_to_string("docs/metrics.md").expect("a page");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `fencepost_")).collect();
    let declared: Vec<&str> =
        scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    for declaration in &declared {
        let (name, kind) = declaration.split_once(' ').expect("a name and a type");
        let row = format!("| `{name}` | {kind} | ");
        assert!(rows.iter().any(|line| line.starts_with(&row)), "docs/metrics.md lacks {row}");
    }
    let described = rows.iter().filter(|line| line.matches(" | ").count() == 2);
    assert_eq!(described.count(), declared.len(), "and it describes no other");
}

#[tokio::test]
async fn a_real_prometheus_reads_it() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store", "--trust", "open"]).await;
    let client = server.client();
    let prometheus = Prometheus::scraping(&server);
    eventually("it is scraped", || async { prometheus.query("up").await == ["1"] }).await;
    assert_eq!(prometheus.query("sum(fencepost_writes_total)").await, ["0"]);
    assert_eq!(answer(client.put("k", 5, "v")).await.status, 201);
    assert_eq!(answer(client.put("k", 4, "v")).await.status, 409);
    let rejected = r#"fencepost_rejected_writes_total{decided_by="cache",reason="stale-token"}"#;
    eventually("the rejection is seen", || async { prometheus.query(rejected).await == ["1"] })
        .await;
    let p99 = "histogram_quantile(0.99, sum by (le) (fencepost_write_duration_seconds_bucket))";
    let p99 = prometheus.query(p99).await;
    assert!(p99[0].parse::<f64>().is_ok_and(|seconds| seconds > 0.0 && seconds < 15.0), "{p99:?}");
    let series = prometheus.query(r#"count({__name__=~"fencepost_.+"})"#).await;
    assert_eq!(series, [Scrape::of(&server).await.series().len().to_string()]);
}

on_each_store! {
    async fn a_write_is_counted_by_what_became_of_it(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let batch = |token: i64| client.batch(&json!({"writes": [
            {"key": "b/1", "token": token, "value": 1}, {"key": "b/2", "token": token, "delete": true},
        ]}));
        // A batch is one however short it is.
        let short = json!({"writes": [{"key": "b/3", "token": 7, "value": 1}]});
        let settled = [("batch_writes_count", 1.0), ("store_duration_seconds_count", 1.0)];
        let ordered = || client.put("k", 5, "v").header("X-Fencing-Seq", 1);
        let outcome = |outcome| format!("write_duration_seconds_count{{outcome=\"{outcome}\"}}");
        // Whether a mark that was known before has risen.
        let (raises, not) = (true, false);
        for (request, status, op, became, raised) in [
            (ordered(), 201, "put", "accepted", not),
            (ordered(), 201, "put", "replayed", not),
            (client.delete("k", 6), 204, "delete", "accepted", raises),
            (client.claim("k", 7), 200, "claim", "accepted", raises),
            (batch(7), 200, "batch", "accepted", not),
            (client.batch(&short), 200, "batch", "accepted", not),
            // A fenced read claims.
            (client.read("b/1").header("X-Fencing-Token", 8), 200, "claim", "accepted", raises),
        ] {
            let before = Scrape::of(&server).await;
            let is_read = request.try_clone().unwrap().build().unwrap().method() == Method::GET;
            assert_eq!(answer(request).await.status, status);
            let total = format!("writes_total{{op=\"{op}\",outcome=\"{became}\"}}");
            let duration = outcome(became);
            let mut expected = rises([(&total, 1.0), (&duration, 1.0)]);
            expected.extend(rises(settled));
            if raised {
                expected.extend(rises([("marks_raised_total{by=\"client\"}", 1.0)]));
            }
            if is_read {
                expected.extend(rises([("read_duration_seconds_count{outcome=\"answered\"}", 1.0)]));
            }
            let rose = Scrape::of(&server).await.since(&before);
            assert_eq!(rose, expected, "{op} {became}");
        }
        let sum = Scrape::of(&server).await.get("fencepost_batch_writes_sum");
        assert!((sum - 8.0).abs() < 0.1, "five single writes, and batches of two and one: {sum}");
    }
}

on_each_store! {
    async fn a_refusal_is_counted_by_its_reason_and_by_who_refused(store: TestStore) {
        let [server, other] = [Fencepost::on(&store).await, Fencepost::on(&store).await];
        let client = server.client();
        let with_seq = |token, seq: i64, body| client.put("k", token, body).header("X-Fencing-Seq", seq);
        assert_eq!(answer(with_seq(10, 5, "v")).await.status, 201);
        // This one has not been seen here, so only the store can know.
        assert_eq!(answer(other.client().put("elsewhere", 10, "v")).await.status, 201);
        let tokenless = client.request(Method::PUT, "/v1/marks/k");
        let one_bad = json!({"writes": [{"key": "k", "token": 0, "value": 1}]});
        for (request, op, reason, decided_by, lag) in [
            (client.put("k", 7, "v"), "put", "stale-token", "cache", Some(3.0)),
            (client.delete("elsewhere", 4), "delete", "stale-token", "store", Some(6.0)),
            (with_seq(10, 4, "v"), "put", "out-of-order", "store", None),
            (with_seq(10, 5, "w"), "put", "seq-reused", "store", None),
            (client.put("k", 11, "v").header("If-None-Match", "*"), "put", "version-mismatch", "store", None),
            (tokenless, "claim", "token-required", "input", None),
            (client.put("k", -3, "v"), "put", "invalid-token", "input", None),
            (client.put("k", 12, "v").header("X-Fencing-Seq", "0"), "put", "invalid-seq", "input", None),
            (client.delete("a%00b", 12), "delete", "invalid-key", "input", None),
            (client.delete("k?", 12), "delete", "invalid-request", "input", None),
            (client.batch(&one_bad), "batch", "invalid-token", "input", None),
            (client.batch(&one_bad).header("Content-Type", "text/plain"), "batch", "invalid-request", "input", None),
        ] {
            let before = Scrape::of(&server).await;
            let refused = answer(request).await;
            assert_eq!(refused.problem(), reason);
            let now = Scrape::of(&server).await;
            let rose = |read: &dyn Fn(&Scrape) -> f64| read(&now) - read(&before);
            assert_eq!(rose(&|scrape| scrape.writes(op, "rejected")), 1.0, "{reason}");
            assert_eq!(rose(&|scrape| scrape.rejected(reason, decided_by)), 1.0, "{reason}");
            let lags = rose(&|scrape| scrape.get("fencepost_rejected_token_lag_sum"));
            assert_eq!(lags, lag.unwrap_or(0.0), "{reason}");
            let by_anyone: f64 = now.since(&before).iter()
                .filter(|(series, _)| series.starts_with("fencepost_rejected_writes_total"))
                .map(|(_, rise)| rise).sum();
            assert_eq!(by_anyone, 1.0, "{reason}");
        }
    }
}

on_each_store! {
    async fn a_mark_that_rises_without_a_grant_is_told_apart(store: TestStore) {
        let server = Fencepost::with(&store, &["--authority", "store"]).await;
        let client = server.client();
        let raised = async |by: &str| {
            Scrape::of(&server).await.get(&format!("fencepost_marks_raised_total{{by=\"{by}\"}}"))
        };
        let mut token = 0;
        for _ in 0..2 {
            let granted = answer(client.request(Method::POST, "/v1/locks/l")).await;
            assert_eq!(granted.status, 201, "{}", granted.text());
            token = granted.json()["token"].as_i64().unwrap();
            let scoped = client.put("k", token, "v").header("X-Fencing-Scope", "l");
            assert!(matches!(answer(scoped).await.status, 200 | 201));
            let release = client.request(Method::DELETE, "/v1/locks/l");
            assert_eq!(answer(release.header("X-Fencing-Token", token)).await.status, 204);
        }
        // The first grant met a lock that nobody knew.
        assert_eq!((raised("grant").await, raised("client").await), (1.0, 0.0));
        // Another lock's token is none that was granted for this one.
        let other = answer(client.request(Method::POST, "/v1/locks/other")).await;
        let foreign = other.json()["token"].as_i64().unwrap();
        assert!(foreign > token);
        assert_eq!(answer(client.put("l", foreign, "v")).await.status, 201);
        assert_eq!((raised("grant").await, raised("client").await), (1.0, 1.0));
    }
}

#[tokio::test]
async fn what_a_stranger_sends_makes_no_series() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let before = Scrape::of(&server).await;
    let client = server.client();
    for hostile in ["a%22%7D%201%0Ab", "%3Cimg%3E", "x{y=\"z\"}"] {
        for method in [Method::PUT, Method::GET, Method::DELETE, Method::POST, Method::TRACE] {
            for path in ["resources", "marks", "locks", hostile] {
                let path = format!("/v1/{path}/{hostile}");
                let request = client.request(method.clone(), &path).header("X-Fencing-Token", 1);
                answer(request.header("X-Fencing-Client", "nobody")).await;
            }
        }
    }
    let after = Scrape::of(&server).await;
    assert_eq!(after.series(), before.series());
    assert!(after.writes("put", "accepted") > 0.0);
}

#[tokio::test]
async fn two_hosts_are_a_refused_write() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let request = "PUT /v1/resources/k HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(http::status(&http::raw(&server.address, request).await), 400);
    let scrape = Scrape::of(&server).await;
    assert_eq!(scrape.rejected("invalid-request", "input"), 1.0);
    assert_eq!(scrape.writes("put", "rejected"), 1.0);
}

#[tokio::test]
async fn a_write_whose_client_has_hung_up_is_counted_all_the_same() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    assert_eq!(answer(server.client().put("k", 5, "v")).await.status, 201);
    let lock = postgres::lock_row(&store.url, "k").await;
    let mut hasty = TcpStream::connect(&server.address).await.unwrap();
    let request = http::text("PUT", "/v1/resources/k", &["X-Fencing-Token: 6"], "w");
    hasty.write_all(request.as_bytes()).await.unwrap();
    eventually("it waits for the row", || postgres::somebody_waits(&store.url)).await;
    drop(hasty);
    drop(lock);
    eventually("it is counted", || async {
        Scrape::of(&server).await.writes("put", "accepted") == 2.0
    })
    .await;
}

#[tokio::test]
async fn whoever_waits_for_the_store_is_in_the_queue() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    assert_eq!(answer(client.put("k", 5, "v")).await.status, 201);
    let lock = postgres::lock_row(&store.url, "k").await;
    let put = || tokio::spawn(answer(client.put("k", 6, "w")));
    let mut waiting = vec![put()];
    eventually("one is with the store", || postgres::somebody_waits(&store.url)).await;
    waiting.extend((0..3).map(|_| put()));
    eventually("three wait", || async {
        Scrape::of(&server).await.get("fencepost_queue_depth") == 3.0
    })
    .await;
    drop(lock);
    for request in waiting {
        assert_eq!(request.await.unwrap().status, 200);
    }
    assert_eq!(Scrape::of(&server).await.get("fencepost_queue_depth"), 0.0);
}

#[tokio::test]
async fn whoever_waits_to_read_is_in_the_queue_too() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let everything = "LOCK TABLE fencepost.resources IN ACCESS EXCLUSIVE MODE";
    let blocker = Blocker::holding(&store.url, everything).await;
    let list = || tokio::spawn(answer(server.client().get("/v1/resources")));
    let mut waiting = vec![list()];
    blocker.until_waiting(1).await;
    waiting.extend((0..3).map(|_| list()));
    eventually("three wait", || async {
        Scrape::of(&server).await.get("fencepost_queue_depth") == 3.0
    })
    .await;
    blocker.release().await;
    for request in waiting {
        assert_eq!(request.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_store_that_is_away_is_down_and_what_it_was_asked_has_failed() {
    let mut postgres = Postgres::start(&[]).await;
    let server = Fencepost::start(&postgres.database("").await, &[]);
    server.wait_until_ready().await;
    let client = server.client();
    assert_eq!(answer(client.put("k", 5, "v")).await.status, 201);
    assert_eq!(Scrape::of(&server).await.get("fencepost_store_up"), 1.0);

    postgres.stop("fast").await;
    assert_eq!(Scrape::of(&server).await.get("fencepost_store_up"), 0.0);
    let before = Scrape::of(&server).await;
    eventually("nothing was changed", || async {
        answer(client.put("k", 6, "v")).await.status == 503
    })
    .await;
    assert_eq!(answer(client.read("k")).await.status, 503);
    let rose = Scrape::of(&server).await.since(&before);
    assert!(rose["fencepost_writes_total{op=\"put\",outcome=\"failed\"}"] >= 1.0, "{rose:?}");
    let reads = rose["fencepost_read_duration_seconds_count{outcome=\"failed\"}"];
    assert!(reads >= 1.0, "{rose:?}");

    postgres.run().await;
    server.wait_until_ready().await;
    assert_eq!(Scrape::of(&server).await.get("fencepost_store_up"), 1.0);
}
