//! Many writers at once, through two fenceposts on one database.

use std::{collections::BTreeMap, sync::atomic::AtomicI64};

use futures_util::{StreamExt, stream};
use reqwest::RequestBuilder;
use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{Answer, Client, answer},
    postgres,
    store::{TestStore, on_each_store},
};

/// How many requests are under way at a time.
const AT_ONCE: usize = 64;

/// Two fenceposts on one database, and a client for each. One has a single thread and the other several,
/// which write by one lane.
struct Pair {
    _servers: [Fencepost; 2],
    clients: [Client; 2],
}

impl Pair {
    async fn on(store: &TestStore) -> Self {
        let one = Fencepost::with(store, &["--threads", "1"]).await;
        let servers = [one, Fencepost::with(store, &["--threads", "4"]).await];
        let clients = servers.each_ref().map(Fencepost::client);
        Self { _servers: servers, clients }
    }

    /// Either client, in turn.
    fn client(&self, number: usize) -> &Client {
        &self.clients[number % 2]
    }
}

/// One write, and what became of it.
#[derive(Debug)]
struct Outcome {
    token: i64,
    seq: i64,
    body: String,
    status: u16,
    version: i64,
    replayed: bool,
}

impl Outcome {
    fn new(token: i64, seq: i64, body: String, answer: &Answer) -> Self {
        let accepted = matches!(answer.status, 200 | 201);
        if !accepted {
            assert!(
                ["stale-token", "out-of-order"].contains(&answer.problem().as_str()),
                "{}",
                answer.text()
            );
        }
        Self {
            token,
            seq,
            body,
            status: answer.status,
            version: if accepted {
                answer.json()["version"].as_i64().expect("a version")
            } else {
                0
            },
            replayed: answer.header("x-fencing-replay").is_some(),
        }
    }

    fn was_accepted(&self) -> bool {
        self.version > 0
    }
}

/// The numbers below `count`, in an order that looks random and is always the same.
fn shuffled(count: i64) -> impl Iterator<Item = i64> {
    const PRIME: i64 = 7919;
    (0..count).map(move |number| (number * PRIME + 13) % count)
}

/// What must be true of all the writes of one key, whatever their order was.
async fn check_history(client: &Client, key: &str, outcomes: &[Outcome]) {
    let mut accepted: Vec<_> =
        outcomes.iter().filter(|outcome| outcome.was_accepted() && !outcome.replayed).collect();
    accepted.sort_by_key(|outcome| outcome.version);

    let versions: Vec<_> = accepted.iter().map(|outcome| outcome.version).collect();
    let dense: Vec<_> = (1..).take(accepted.len()).collect();
    assert_eq!(versions, dense, "{key}: each change has a version of its own, and none is missing");
    assert_eq!(
        accepted.iter().map(|outcome| outcome.status == 201).collect::<Vec<_>>(),
        dense.iter().map(|version| *version == 1).collect::<Vec<_>>(),
        "{key}: the first change creates, and no other"
    );
    for pair in accepted.windows(2) {
        let [earlier, later] = [pair[0], pair[1]].map(|outcome| (outcome.token, outcome.seq));
        assert!(earlier <= later, "{key}: {later:?} was accepted after {earlier:?}");
    }
    let highest = outcomes.iter().map(|outcome| (outcome.token, outcome.seq)).max();
    let last = accepted.last().expect("somebody was accepted");
    assert_eq!(Some((last.token, last.seq)), highest, "{key}: the highest is never refused");
    assert_eq!(client.mark(key).await, (last.token, last.seq));
    assert_eq!(answer(client.read(key)).await.text(), last.body);
}

on_each_store! {
    async fn hundreds_of_writers_of_one_key_leave_one_history(store: TestStore) {
        let pair = Pair::on(&store).await;
        let outcomes = write_all(&pair, shuffled(300).map(|number| {
            ("key".to_owned(), number / 10 + 1)
        })).await;
        check_history(pair.client(0), "key", &outcomes["key"]).await;
    }
}

on_each_store! {
    async fn hundreds_of_writers_of_many_keys_leave_one_history_each(store: TestStore) {
        let pair = Pair::on(&store).await;
        let outcomes = write_all(&pair, shuffled(300).map(|number| {
            (format!("key/{}", number % 15), number / 30 + 1)
        })).await;
        assert_eq!(outcomes.len(), 15);
        for (key, outcomes) in &outcomes {
            check_history(pair.client(1), key, outcomes).await;
        }
    }
}

/// Puts under (key, token) pairs, all at once, each with a body of its own.
async fn write_all(
    pair: &Pair,
    writes: impl Iterator<Item = (String, i64)>,
) -> BTreeMap<String, Vec<Outcome>> {
    let answers: Vec<_> = stream::iter(writes.enumerate())
        .map(|(number, (key, token))| async move {
            let body = format!("write {number}");
            let put = pair.client(number).put(&key, token, "").body(body.clone());
            let outcome = Outcome::new(token, 0, body, &answer(put).await);
            (key, outcome)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut outcomes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (key, outcome) in answers {
        outcomes.entry(key).or_default().push(outcome);
    }
    outcomes
}

on_each_store! {
    /// Every write is sent twice, through different fenceposts, as a retrying mesh would.
    async fn a_holders_earlier_write_never_overwrites_its_later_one(store: TestStore) {
        let pair = Pair::on(&store).await;
        let writes = shuffled(240).map(|number| number % 120);
        let outcomes: Vec<_> = stream::iter(writes.enumerate())
            .map(|(number, write)| {
                let (token, seq) = (write / 12 + 1, write % 12 + 1);
                let body = format!("{token}.{seq}");
                let put = pair.client(number).put("key", token, "").body(body.clone());
                async move {
                    let answer = answer(put.header("X-Fencing-Seq", seq)).await;
                    Outcome::new(token, seq, body, &answer)
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        check_history(pair.client(0), "key", &outcomes).await;

        let mut versions = BTreeMap::new();
        for outcome in outcomes.iter().filter(|outcome| outcome.was_accepted()) {
            let first = versions.entry((outcome.token, outcome.seq)).or_insert(outcome.version);
            assert_eq!(*first, outcome.version, "a replay says what the first answer said");
        }
    }
}

on_each_store! {
    async fn of_many_who_create_a_key_one_does(store: TestStore) {
        let pair = Pair::on(&store).await;
        for round in 0..15 {
            let key = format!("fresh/{round}");
            let create = |number| {
                pair.client(number).put(&key, 1, "mine").header("If-None-Match", "*")
            };
            let statuses = statuses((0..8).map(create)).await;
            assert_eq!(statuses, BTreeMap::from([(201, 1), (412, 7)]), "{key}");
        }
    }
}

on_each_store! {
    /// Holders come and go without waiting for one another: only the fence keeps them apart.
    async fn read_modify_write_with_fenced_reads_loses_no_update(store: TestStore) {
        const HOLDERS: usize = 160;
        let pair = Pair::on(&store).await;
        let newest = AtomicI64::new(0);
        let increments: Vec<bool> = stream::iter(0..HOLDERS)
            .map(|number| increment(pair.client(number), &newest))
            .buffer_unordered(6)
            .collect()
            .await;
        let acknowledged = increments.iter().filter(|done| **done).count();
        assert!(acknowledged > 0, "nobody got through");
        assert!(acknowledged < HOLDERS, "nobody was overtaken, so nothing was put to the test");
        let counter = answer(pair.client(0).read("counter")).await.text();
        assert_eq!(counter, acknowledged.to_string());
    }
}

/// One holder's turn: whether its increment was acknowledged.
async fn increment(client: &Client, newest: &AtomicI64) -> bool {
    let token = newest.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
    let read = answer(client.read("counter").header("X-Fencing-Token", token)).await;
    let count: u64 = match read.status {
        200 => read.text().parse().expect("a number"),
        404 => 0,
        409 => return false,
        _ => panic!("{}", read.text()),
    };
    let written = answer(client.put("counter", token, "").body((count + 1).to_string())).await;
    match written.status {
        200 | 201 => true,
        409 => false,
        _ => panic!("{}", written.text()),
    }
}

on_each_store! {
    /// Some keys are there before, some not; some batches are refused half way.
    async fn batches_in_opposite_orders_do_not_deadlock(store: TestStore) {
        const KEYS: usize = 12;
        let pair = Pair::on(&store).await;
        for number in (0..KEYS).step_by(2) {
            let put = answer(pair.client(0).put(&format!("k{number:02}"), 1, "before")).await;
            assert_eq!(put.status, 201);
        }
        let batch = |round: usize| {
            let mut writes: Vec<_> = (0..KEYS)
                .map(|number| json!({"key": format!("k{number:02}"), "token": 2, "value": round}))
                .collect();
            // Batches that begin with different keys take different connections.
            writes.rotate_left(round % KEYS);
            if round % 2 == 1 {
                writes.reverse();
            }
            if round.is_multiple_of(5) {
                writes[KEYS / 2]["if_match"] = json!("\"1000\"");
            }
            pair.client(round).batch(&json!({ "writes": writes }))
        };
        let statuses = statuses((0..100).map(batch)).await;
        assert_eq!(statuses, BTreeMap::from([(200, 80), (412, 20)]));

        let mut last = Vec::new();
        for number in 0..KEYS {
            last.push(answer(pair.client(1).read(&format!("k{number:02}"))).await.text());
        }
        last.dedup();
        assert_eq!(last.len(), 1, "all keys hold the value of one and the same batch");

        drop(pair);
        if store.is_postgres() {
            // None was needed: it would have been tried again, and nobody would have noticed.
            assert_eq!(postgres::counted_in_the_end(&store.url, "deadlocks").await, 0);
        }
    }
}

/// Sends them all at once, and counts the answers by status.
async fn statuses(requests: impl Iterator<Item = RequestBuilder>) -> BTreeMap<u16, usize> {
    let answers: Vec<_> =
        stream::iter(requests).map(answer).buffer_unordered(AT_ONCE).collect().await;
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.status).or_default() += 1;
    }
    counts
}
