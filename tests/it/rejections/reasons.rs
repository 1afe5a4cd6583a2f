//! Every reason that there is: each is caused, answered, counted and recorded.

use std::{collections::BTreeSet, time::Duration};

use fencepost::metrics::Reason;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::rejections;
use crate::harness::{
    fencepost::Fencepost,
    http::{answer, read_answer},
    prometheus::Scrape,
    store::on_each_store,
};

const TTL: Duration = Duration::from_mins(10);

/// A head that promises more than ever comes.
const HALF_A_WRITE: &str = "PUT /v1/resources/slow HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 1\r\n\
                            X-Fencing-Client: slow\r\nContent-Length: 10\r\n\r\nhalf";

on_each_store! {
    async fn each_is_answered_counted_and_recorded(store: TestStore) {
        let flags = ["--authority", "store", "--max-body", "1KiB", "--body-timeout", "2s"];
        let server = Fencepost::with(&store, &flags).await;
        let client = server.client();
        let old = client.lock("k", TTL).await;
        assert_eq!(answer(client.release("k", old)).await.status, 204);
        let new = client.lock("k", TTL).await;
        let put = |seq: i64, body| client.put("k", new, body).header("X-Fencing-Seq", seq);
        assert_eq!(answer(put(5, "first")).await.status, 201);

        let bare = || client.request(reqwest::Method::PUT, "/v1/resources/k");
        let batch = client.request(reqwest::Method::POST, "/v1/batch");
        let requests = [
            ("stale-token", client.put("k", old, "late")),
            ("out-of-order", put(4, "late")),
            ("seq-reused", put(5, "other")),
            ("version-mismatch", put(6, "x").header("If-Match", "\"7\"")),
            ("unissued-token", client.put("k", i64::MAX, "x")),
            ("token-required", bare()),
            ("invalid-token", bare().header("X-Fencing-Token", "+5")),
            ("invalid-seq", client.put("k", new, "x").header("X-Fencing-Seq", "x")),
            ("invalid-key", client.put("%00", new, "x")),
            ("invalid-request", client.put("k", new, "x").header("X-Fencing-Rule", "x")),
            ("too-large", bare().header("X-Fencing-Token", new).body("x".repeat(2000))),
            ("unsupported-media-type", batch.header("Content-Type", "text/plain").body("{}")),
        ];
        let before = Scrape::of(&server).await;
        let mut caused = BTreeSet::from(["request-timeout"]);
        for (reason, request) in requests {
            assert_eq!(answer(request).await.problem(), reason);
            caused.insert(reason);
        }
        let mut slow = TcpStream::connect(&server.address).await.expect("it listens");
        slow.write_all(HALF_A_WRITE.as_bytes()).await.expect("half of it is sent");
        assert_eq!(read_answer(&mut slow).await.problem(), "request-timeout");
        // A reason that is added must be added here.
        assert_eq!(caused, Reason::all().map(Reason::name).collect());

        let found = rejections(&client, "").await;
        let recorded: BTreeSet<&str> =
            found.iter().filter_map(|rejection| rejection["reason"].as_str()).collect();
        assert_eq!((recorded, found.len()), (caused.clone(), caused.len()));
        let rises = Scrape::of(&server).await.since(&before);
        for reason in caused {
            let labels = format!("fencepost_rejected_writes_total{{reason=\"{reason}\"");
            let counted: f64 =
                rises.iter().filter(|(series, _)| series.starts_with(&labels)).map(|(_, n)| n).sum();
            assert!((counted - 1.0).abs() < 0.5, "{reason}: {counted}");
        }
        // As much as could be read of each is told.
        let told = |reason: &str| -> &Value {
            found.iter().find(|rejection| rejection["reason"] == reason).expect("a record")
        };
        assert_eq!(told("too-large")["key"], "k");
        assert_eq!(told("too-large")["token"], json!(new));
        assert_eq!(told("request-timeout")["key"], "slow");
        assert_eq!(told("request-timeout")["client"], "slow");
        assert_eq!(told("unsupported-media-type")["key"], json!(null));
    }
}
