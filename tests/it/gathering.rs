//! What comes together is settled together, and each gets the answer it would have got alone.
//!
//! A lock on the whole table makes requests gather: the first of them waits with the store, the rest
//! in the queue, and once the table is free they are one batch. `same_verdicts` compares every kind
//! of unit in a batch with the rule; here it is about the batch itself.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use reqwest::RequestBuilder;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::harness::{
    blocker::Blocker,
    eventually,
    fencepost::Fencepost,
    http::{Answer, Client, answer, insist},
    postgres,
    prometheus::Scrape,
    store::TestStore,
};

const TABLE: &str = "LOCK TABLE fencepost.resources IN EXCLUSIVE MODE";
/// As a compaction has it. It keeps writers out, and readers not.
const TABLE_OF_COMPACTION: &str = "LOCK TABLE fencepost.resources IN SHARE ROW EXCLUSIVE MODE";

struct Gathering {
    store: TestStore,
    server: Fencepost,
    client: Client,
}

impl Gathering {
    async fn new() -> Self {
        let store = TestStore::postgres().await;
        // What the cache refuses would not be in the batch.
        let flags = ["--store-connections", "1", "--mark-cache", "0B"];
        let server = Fencepost::with(&store, &flags).await;
        let client = server.client();
        // So that there is a connection, and every statement is known.
        assert_eq!(answer(client.put("warm", 1, "up")).await.status, 201);
        Self { store, server, client }
    }

    /// Sends these while nobody can write, and returns once all but the first are in the queue.
    async fn gather(&self, requests: Vec<RequestBuilder>) -> Vec<JoinHandle<Answer>> {
        let mut sent = vec![tokio::spawn(answer(self.client.put("warm", 1, "again")))];
        eventually("the first waits with the store", || postgres::somebody_waits(&self.store.url))
            .await;
        let count = f64::from(u32::try_from(requests.len()).expect("not that many"));
        sent.extend(requests.into_iter().map(|request| tokio::spawn(answer(request))));
        eventually("the rest have gathered", || async {
            let depth = Scrape::of(&self.server).await.get("fencepost_queue_depth");
            (depth - count).abs() < 0.5
        })
        .await;
        sent.remove(0);
        sent
    }

    /// All of these in one batch: their answers, in order.
    async fn together(&self, requests: Vec<RequestBuilder>) -> Vec<Answer> {
        let blocker = Blocker::holding(&self.store.url, TABLE).await;
        let sent = self.gather(requests).await;
        let before = Scrape::of(&self.server).await;
        blocker.release().await;
        let answers = join_all(sent).await.into_iter().map(|sent| sent.expect("an answer"));
        let answers = answers.collect();
        let rose = Scrape::of(&self.server).await.since(&before);
        // The one that waited, and the rest. Others may come for the detours that some tests take.
        assert!(rose["fencepost_batch_writes_count"] <= 3.0, "{rose:?}");
        answers
    }
}

fn version(answer: &Answer) -> i64 {
    answer.json()["version"].as_i64().expect("a version")
}

#[tokio::test]
async fn plain_writes_of_many_keys_share_a_statement() {
    let gathering = Gathering::new().await;
    let client = &gathering.client;
    let puts = |token| -> Vec<_> {
        (0..60).map(|number| client.put(&format!("key/{number}"), token, "x")).collect()
    };
    for put in gathering.together(puts(1)).await {
        assert_eq!((put.status, version(&put)), (201, 1), "{}", put.text());
    }
    for put in gathering.together(puts(2)).await {
        assert_eq!((put.status, version(&put)), (200, 2), "{}", put.text());
        assert_eq!(put.header("x-fencing-mark"), Some("2"));
    }
    for put in gathering.together(puts(1)).await {
        assert_eq!((put.status, put.problem().as_str()), (409, "stale-token"));
    }
    let deletes = (0..60).map(|number| client.delete(&format!("key/{number}"), 3)).collect();
    for delete in gathering.together(deletes).await {
        assert_eq!(delete.status, 204, "{}", delete.text());
    }
    let list = answer(client.get("/v1/resources?prefix=key/")).await;
    assert_eq!(list.json()["resources"], json!([]));
}

#[tokio::test]
async fn each_write_of_one_key_has_its_own_version() {
    let gathering = Gathering::new().await;
    let client = &gathering.client;
    for (token, created) in [(1, 1), (2, 0)] {
        let before = (token - 1) * 50;
        let puts = (0..50).map(|number| client.put("hot", token, "").body(number.to_string()));
        let mut last = (0, String::new());
        let mut statuses = BTreeMap::<u16, usize>::new();
        let mut versions = Vec::new();
        for (number, put) in gathering.together(puts.collect()).await.iter().enumerate() {
            *statuses.entry(put.status).or_default() += 1;
            versions.push(version(put));
            // Only the first may have created it, and it has the first version.
            assert_eq!(put.status == 201, created == 1 && version(put) == 1);
            last = last.max((version(put), number.to_string()));
        }
        assert_eq!(statuses.get(&201).copied().unwrap_or(0), created);
        versions.sort_unstable();
        assert_eq!(versions, (before + 1..=before + 50).collect::<Vec<_>>());
        let read = answer(client.read("hot")).await;
        assert_eq!(read.text(), last.1, "the value is that of the last version");
        assert_eq!(read.header("etag"), Some(format!("\"{}\"", last.0).as_str()));
    }
}

/// All kinds of writes in one batch, of keys of their own: each is answered as it would be alone.
#[tokio::test]
async fn every_kind_of_write_can_be_in_one_batch() {
    let gathering = Gathering::new().await;
    let client = &gathering.client;
    for key in ["put", "seq", "delete", "claim", "match", "read", "scoped", "atomic", "stale"] {
        assert_eq!(answer(client.put(key, 5, "before")).await.status, 201);
    }
    let seq = || client.put("seq", 6, "after").header("X-Fencing-Seq", 1);
    let atomic = |token: i64| {
        client.batch(&json!({"writes": [
            {"key": "atomic", "token": token, "value": 1},
            {"key": "fresh", "token": token, "value": 1},
        ]}))
    };
    let requests = vec![
        (client.put("put", 6, "after"), 200),
        (seq(), 200),
        (client.delete("delete", 6), 204),
        (client.claim("claim", 6), 200),
        (client.put("match", 6, "after").header("If-Match", "\"1\""), 200),
        (client.put("mismatch", 6, "after").header("If-Match", "\"1\""), 412),
        (client.read("read").header("X-Fencing-Token", 6), 200),
        (client.put("scoped", 6, "after").header("X-Fencing-Scope", "scope"), 200),
        (atomic(6), 200),
        (client.put("stale", 4, "after"), 409),
        (client.put("above", 6, "after").header("X-Fencing-Rule", "above"), 201),
        (client.put("new", 6, "after"), 201),
        (client.delete("never", 6), 204),
    ];
    let (requests, statuses): (Vec<_>, Vec<u16>) = requests.into_iter().unzip();
    for (number, (done, status)) in
        gathering.together(requests).await.iter().zip(statuses).enumerate()
    {
        assert_eq!(done.status, status, "request {number}: {}", done.text());
    }
    for key in ["put", "seq", "match", "scoped", "above", "new"] {
        assert_eq!(answer(client.read(key)).await.text(), "after", "{key}");
    }
    for (key, mark) in [("mismatch", (6, 0)), ("scope", (6, 0)), ("seq", (6, 1)), ("stale", (5, 0))]
    {
        assert_eq!(client.mark(key).await, mark, "{key}");
    }
    // And once more, when nothing of it is new: replays, stale ones, and no trace of the refused.
    let again =
        vec![seq(), atomic(5), client.put("ghost", 5, "x").header("X-Fencing-Scope", "put")];
    let again = gathering.together(again).await;
    assert_eq!(again.iter().map(|done| done.status).collect::<Vec<_>>(), [200, 409, 409]);
    assert_eq!(again[0].header("x-fencing-replay"), Some("true"));
    assert_eq!(client.mark("ghost").await, (0, 0));
    let rows: i64 = postgres::fetch(
        &gathering.store.url,
        "SELECT count(*) FROM fencepost.resources WHERE key IN ('ghost') OR token = 0",
    )
    .await;
    assert_eq!(rows, 0, "a refused write leaves no row behind");
}

/// Twice, since after the first new keys others are expected.
#[tokio::test]
async fn new_keys_and_old_ones_share_a_batch() {
    let gathering = Gathering::new().await;
    let client = &gathering.client;
    assert_eq!(answer(client.put("old", 5, "before")).await.status, 201);
    for round in 1..=2 {
        let new = |name: &str| format!("{name}/{round}");
        let requests = vec![
            client.put("old", 5, "after"),
            client.put(&new("new"), 5, "after"),
            client.put(&new("twice"), 5, "one"),
            client.put(&new("twice"), 5, "other"),
            client.put(&new("seq"), 5, "after").header("X-Fencing-Seq", 1),
            client.put(&new("absent"), 5, "after").header("If-None-Match", "*"),
            client.put("old", 4, "stale"),
            client.put(&new("version"), 5, "after").header("If-Match", "\"1\""),
            client.delete(&new("delete"), 5),
            client.claim(&new("claim"), 5),
            client.read(&new("read")).header("X-Fencing-Token", 5),
            client.put("warm", 1, "existing").header("If-None-Match", "*"),
        ];
        let done = gathering.together(requests).await;
        let statuses: Vec<u16> = done.iter().map(|done| done.status).collect();
        let expected = [200, 201, 201, 200, 201, 201, 409, 412, 204, 200, 404, 412];
        // Whichever of the two came first, it has created the key.
        let mut twice = [(statuses[2], version(&done[2])), (statuses[3], version(&done[3]))];
        twice.sort_unstable();
        assert_eq!(twice, [(200, 2), (201, 1)]);
        for (number, (status, expected)) in statuses.into_iter().zip(expected).enumerate() {
            let is_twice = [2, 3].contains(&number);
            assert!(is_twice || status == expected, "{number}: {}", done[number].text());
        }
        assert_eq!(version(&done[0]), 1 + round);
        for key in ["new", "twice", "seq", "absent", "version", "delete", "claim", "read"] {
            assert_eq!(client.mark(&new(key)).await.0, 5, "{key}");
        }
        assert_eq!(answer(client.read(&new("new"))).await.text(), "after");
        let replay = client.put(&new("seq"), 5, "after").header("X-Fencing-Seq", 1);
        let replay = answer(replay).await;
        assert_eq!((replay.status, replay.header("x-fencing-replay")), (201, Some("true")));
    }
}

/// Each claims its key, and gets the value as it is under the claim.
#[tokio::test]
async fn fenced_reads_that_come_together_claim_and_read() {
    let gathering = Gathering::new().await;
    let client = &gathering.client;
    let large = "v".repeat(200_000);
    assert_eq!(answer(client.put("large", 5, "").body(large.clone())).await.status, 201);
    for number in 0..10 {
        let body = format!("value {number}");
        let put = client.put(&format!("key/{number}"), 5, "").body(body);
        assert_eq!(answer(put.header("Content-Type", "text/x-test")).await.status, 201);
    }
    assert_eq!(answer(client.put("newer", 9, "x")).await.status, 201);
    let read = |key: &str, token: i64| client.read(key).header("X-Fencing-Token", token);
    // Above the mark, at the mark, and beside writes, which take them along.
    for (token, beside) in [(6, false), (6, false), (7, true)] {
        let mut requests: Vec<_> =
            (0..10).map(|number| read(&format!("key/{number}"), token)).collect();
        requests.extend([read("large", token), read("absent", token), read("newer", token)]);
        if beside {
            requests.push(client.put("beside", token, "x"));
        }
        let done = gathering.together(requests).await;
        for (number, read) in done[..10].iter().enumerate() {
            assert_eq!((read.status, read.text()), (200, format!("value {number}")));
            assert_eq!(read.header("content-type"), Some("text/x-test"));
            assert_eq!(read.header("etag"), Some("\"1\""));
            assert_eq!(read.header("x-fencing-mark"), Some(token.to_string().as_str()));
            assert_eq!(client.mark(&format!("key/{number}")).await, (token, 0));
        }
        assert_eq!((done[10].status, done[10].text()), (200, large.clone()));
        assert_eq!((done[11].status, client.mark("absent").await), (404, (token, 0)));
        assert_eq!((done[12].status, client.mark("newer").await), (409, (9, 0)));
    }
    // And those that concern two rows.
    let keys = (0..10).map(|number| format!("key/{number}")).chain(["absent".into()]);
    let scoped = |key: &str| read(key, 8).header("X-Fencing-Scope", "scope");
    let done = gathering.together(keys.map(|key| scoped(&key)).collect()).await;
    for (number, read) in done[..10].iter().enumerate() {
        assert_eq!((read.status, read.text()), (200, format!("value {number}")));
        assert_eq!(client.mark(&format!("key/{number}")).await, (8, 0));
    }
    assert_eq!((done[10].status, client.mark("scope").await), (404, (8, 0)));
}

#[tokio::test]
async fn a_floor_that_rises_under_a_batch_is_seen_by_it() {
    let gathering = Gathering::new().await;
    let client = &gathering.client;
    assert_eq!(answer(client.put("old", 3, "x")).await.status, 201);
    let raise = format!("{TABLE_OF_COMPACTION}; UPDATE fencepost.floor SET token = 7");
    let mut compaction = postgres::connect(&gathering.store.url).await;
    let begin = format!("BEGIN; {raise}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(begin)).execute(&mut compaction).await.unwrap();
    let requests = ["old", "new"].into_iter().flat_map(|key| {
        [
            client.put(&format!("{key}/a"), 6, "x"),
            client.put(key, 6, "x").header("X-Fencing-Scope", "scope"),
            client.put(&format!("{key}/b"), 7, "x"),
        ]
    });
    let sent = gathering.gather(requests.collect()).await;
    sqlx::raw_sql("COMMIT").execute(&mut compaction).await.unwrap();
    for (number, sent) in sent.into_iter().enumerate() {
        let done = sent.await.unwrap();
        let expected = if number % 3 == 2 { 201 } else { 409 };
        assert_eq!(done.status, expected, "{number}: {}", done.text());
        assert_eq!(done.header("x-fencing-mark"), Some("7"));
    }
}

/// Both take the same keys, some of them new in every round, in batches that overlap in every way.
#[tokio::test]
async fn two_fenceposts_batches_do_not_deadlock() {
    let store = TestStore::postgres().await;
    let servers = [Fencepost::on(&store).await, Fencepost::on(&store).await];
    let clients = servers.each_ref().map(Fencepost::client);
    for round in 0..6_usize {
        let requests = (0..160_usize).map(|number| {
            let client = &clients[number % 2];
            let key = if number % 4 < 2 { number / 4 } else { 40 - number / 4 };
            let name = match number % 3 {
                0 => format!("k/{key:02}/{round}"),
                _ => format!("k/{key:02}"),
            };
            let put = client.put(&name, 1, "x");
            answer(match (number + round) % 5 {
                0 => put.header("X-Fencing-Scope", format!("k/{:02}", 40 - key)),
                _ => put,
            })
        });
        for done in join_all(requests).await {
            assert_eq!(done.status / 100, 2, "{}", done.text());
        }
    }
    drop(servers);
    let deadlocks = postgres::counted_in_the_end(&store.url, "deadlocks").await;
    assert_eq!(deadlocks, 0);
}

/// Only what was in flight is in doubt, and the same seq clears it up.
#[tokio::test]
async fn a_backend_that_is_killed_leaves_only_its_batch_in_doubt() {
    let gathering = Gathering::new().await;
    let Gathering { store, client, .. } = &gathering;
    let put =
        |number: usize| client.put(&format!("key/{number}"), 1, "once").header("X-Fencing-Seq", 1);
    let blocker = Blocker::on_commits(&store.url).await;
    let sent: Vec<_> = (0..20).map(|number| tokio::spawn(answer(put(number)))).collect();
    eventually("one is killed while it waits at the commit", || async {
        let killed: i64 = postgres::fetch(
            &store.url,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE application_name = 'fencepost' AND datname = current_database()
               AND wait_event_type = 'Lock'",
        )
        .await;
        killed > 0
    })
    .await;
    blocker.release().await;
    let mut in_doubt = 0;
    for sent in sent {
        let done = sent.await.unwrap();
        assert!([201, 503, 504].contains(&done.status), "{}", done.text());
        in_doubt += usize::from(done.status == 504);
    }
    assert!(in_doubt > 0, "nothing was in flight");
    for number in 0..20 {
        let repeat = insist(put(number)).await;
        assert_eq!((repeat.status, version(&repeat)), (201, 1), "{}", repeat.text());
    }
    assert_eq!(answer(client.put("other", 1, "x")).await.status, 201);
}
