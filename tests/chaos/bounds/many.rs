//! More keys than anybody could keep in memory.

use std::time::Instant;

use fastrand::Rng;
use futures_util::{StreamExt, stream};
use serde_json::json;

use crate::it::harness::{
    http::{Client, answer},
    postgres,
};

/// How many are put there, written or read at a time.
const AT_ONCE: usize = 500_000;
const BATCH: usize = 1_000;
const READERS: usize = 16;

const READS: usize = 2_000;

fn key(number: usize) -> String {
    format!("many/{number:08}")
}

/// Straight into the table, with the mark 1: through a fencepost it would take hours.
pub async fn fill(url: &str, keys: usize) {
    let since = Instant::now();
    for first in (0..keys).step_by(AT_ONCE) {
        let last = (first + AT_ONCE).min(keys) - 1;
        let sql = format!(
            "INSERT INTO fencepost.resources
                 (key, token, version, created, value, content_type)
             SELECT 'many/' || lpad(n::text, 8, '0'), 1, 1, true, n::text::bytea, 'text/plain'
             FROM generate_series({first}, {last}) AS n"
        );
        postgres::execute(url, &sql).await;
        println!("{:>5} s  {} of {keys} keys", since.elapsed().as_secs(), last + 1);
    }
}

/// Writes some, all over them, reads others, and tries to overwrite with an older token. What was not as
/// it should be.
pub async fn use_them(client: &Client, keys: usize, touched: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    // Evenly, and never one twice.
    let stride = keys / touched;
    for first in (0..touched).step_by(BATCH) {
        let writes: Vec<_> = (first..(first + BATCH).min(touched))
            .map(|place| json!({ "key": key(place * stride), "token": 2, "value": place }))
            .collect();
        let done = answer(client.batch(&json!({ "writes": writes }))).await;
        let next = done.json()["results"].as_array().is_some_and(|results| {
            results.len() == writes.len() && results.iter().all(|result| result["version"] == 2)
        });
        if done.status != 200 || !next {
            wrong.push(format!("{} for the batch from {first}", done.status));
        }
    }
    let mut random = Rng::with_seed(7);
    let places: Vec<usize> = (0..READS).map(|_| random.usize(..keys)).collect();
    let checks = places.into_iter().map(|place| check(client, place, stride, touched));
    let found: Vec<Option<String>> = stream::iter(checks).buffer_unordered(READERS).collect().await;
    wrong.extend(found.into_iter().flatten().take(5));
    wrong
}

/// Whether one of them is as it was left.
async fn check(client: &Client, place: usize, stride: usize, touched: usize) -> Option<String> {
    let name = key(place);
    let written = place.is_multiple_of(stride) && place / stride < touched;
    let read = answer(client.read(&name)).await;
    let value = if written { place / stride } else { place };
    let expected = (200, value.to_string(), if written { "2" } else { "1" });
    let mark = read.header("x-fencing-mark").unwrap_or_default();
    if (read.status, read.text(), mark) != (expected.0, expected.1.clone(), expected.2) {
        return Some(format!("{name} is {} {} {mark}, not {expected:?}", read.status, read.text()));
    }
    if written {
        let stale = answer(client.put(&name, 1, "stale")).await.status;
        return (stale != 409).then(|| format!("{name} could be overwritten: {stale}"));
    }
    None
}
