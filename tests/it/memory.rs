//! What bodies take up: the real binary stays below the memory that the chart gives a pod, whatever is asked
//! of it at once. What it has no room for it refuses, with 429 or 503, and says when to come back.
//!
//! Where this machine lets us limit a process's memory, the kernel would kill a server that takes up more.
//! In any case its peak is looked at.

use std::{collections::BTreeMap, fs, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::harness::{
    blocker::Blocker,
    eventually,
    fencepost::Fencepost,
    http::{Answer, Client, answer, insist},
    memory_limit::MemoryLimit,
    store::{TestStore, on_each_store},
};

/// `resources.limits.memory` of the chart.
const POD_MIB: u64 = 128;

const MB: usize = 1_000_000;

/// However busy the machine is: what is waited for is an answer.
const NO_HURRY: Duration = Duration::from_mins(10);

/// How many answers there were of each status.
type Tally = BTreeMap<u16, usize>;

fn tally(statuses: impl IntoIterator<Item = u16>) -> Tally {
    let mut tally = Tally::new();
    for status in statuses {
        *tally.entry(status).or_default() += 1;
    }
    tally
}

/// Whoever is refused is told when to come back, and nothing else goes wrong.
#[track_caller]
fn assert_sound(answer: &Answer) {
    match answer.status {
        200 | 201 => {}
        429 | 503 => {
            assert!(answer.header("retry-after").is_some(), "{}", answer.text());
            assert_eq!(answer.json()["retryable"], json!(true), "{}", answer.text());
        }
        other => panic!("{other}: {}", answer.text()),
    }
}

/// A server of its own, with the memory of a pod. The limit goes after the server.
async fn pod(store: &TestStore) -> (Option<MemoryLimit>, Fencepost) {
    pod_with(store, &[]).await
}

async fn pod_with(store: &TestStore, flags: &[&str]) -> (Option<MemoryLimit>, Fencepost) {
    let server = Fencepost::with(store, flags).await;
    // What it has already counts elsewhere.
    let left = (POD_MIB << 20) - (status_kib(&server, "RssAnon:") << 10);
    let limit = MemoryLimit::of(&server, left);
    (limit, server)
}

fn status_kib(server: &Fencepost, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The most that the process has taken up since it started. Its program is not a part of that: the kernel
/// drops such pages, and reads them again, before it kills.
fn peak_mib(server: &Fencepost) -> u64 {
    status_kib(server, "VmHWM:").saturating_sub(status_kib(server, "RssFile:")) >> 10
}

async fn body_bytes(server: &Fencepost) -> String {
    let scraped = answer(server.admin_client().get("/metrics")).await.text();
    let value = scraped.lines().find_map(|line| line.strip_prefix("fencepost_body_bytes "));
    value.expect("a series").to_owned()
}

/// It has never been near its limit, forgets nothing that it has counted, and goes on at once.
async fn assert_survived(server: &mut Fencepost, case: &str, tally: &Tally) {
    assert!(server.is_running(), "{}", server.log());
    let peak = peak_mib(server);
    eprintln!("{case}: {peak} MiB at most; answers {tally:?}");
    assert!(peak < POD_MIB, "{case}: {peak} MiB; answers {tally:?}");
    eventually("nothing is counted any more", || async { body_bytes(server).await == "0" }).await;
    let client = server.client();
    let body = Bytes::from(vec![b'y'; MB]);
    assert!([200, 201].contains(&insist(put(&client, "afterwards", &body)).await.status));
    let read = answer(client.read("afterwards")).await;
    assert_eq!((read.status, read.body.len()), (200, MB));
}

fn put(client: &Client, key: &str, body: &Bytes) -> RequestBuilder {
    let request = client.request(Method::PUT, &format!("/v1/resources/{key}"));
    request.header("X-Fencing-Token", 5).body(body.clone()).timeout(NO_HURRY)
}

/// Sends them all, so many at a time.
async fn answers_of(requests: Vec<RequestBuilder>, at_once: usize) -> Vec<u16> {
    let answers = stream::iter(requests).map(|request| async {
        let answer = answer(request).await;
        assert_sound(&answer);
        answer.status
    });
    answers.buffer_unordered(at_once).collect().await
}

/// Batches of one megabyte: a few large values, or a thousand small ones.
fn batch(client: &Client, writes: usize, encoded: bool) -> RequestBuilder {
    let value = "x".repeat(MB / writes - 60);
    let member = if encoded { "value_base64" } else { "value" };
    let value = if encoded { &value[..value.len() / 4 * 4] } else { &value[..] };
    let write = |number| json!({"key": format!("k/{number}"), "token": 5, member: value});
    let writes: Vec<_> = (0..writes).map(write).collect();
    client.batch(&json!({ "writes": writes })).timeout(NO_HURRY)
}

/// The statement of another program keeps every write of this store waiting.
enum Block {
    Postgres(Blocker),
    Sqlite(SqliteConnection),
}

impl Block {
    async fn of(store: &TestStore) -> Self {
        if store.is_postgres() {
            let lock = "LOCK TABLE fencepost.resources IN ACCESS EXCLUSIVE MODE";
            return Self::Postgres(Blocker::holding(&store.url, lock).await);
        }
        let mut connection = SqliteConnection::connect(&store.url).await.expect("a connection");
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.expect("a lock");
        Self::Sqlite(connection)
    }

    async fn release(self) {
        match self {
            Self::Postgres(blocker) => blocker.release().await,
            Self::Sqlite(connection) => connection.close().await.expect("it is closed"),
        }
    }
}

/// Sends requests that get stuck behind a store which does not move, and lets it move again once all
/// that will be refused have been.
async fn behind_a_blocked_store(store: &TestStore, requests: Vec<RequestBuilder>) -> Tally {
    let count = requests.len();
    let block = Block::of(store).await;
    let answers = stream::iter(requests).map(|request| async {
        let answer = answer(request).await;
        assert_sound(&answer);
        answer.status
    });
    let mut answers = answers.buffer_unordered(256);
    // There is room for less than so many.
    let mut statuses: Vec<u16> = answers.by_ref().take(count - 64).collect().await;
    block.release().await;
    statuses.extend(answers.collect::<Vec<_>>().await);
    tally(statuses)
}

on_each_store! {
    async fn batches_behind_a_blocked_store(store: TestStore) {
        for (count, writes, encoded) in [(1100, 4, false), (150, 1000, false), (150, 4, true)] {
            let (_limit, mut server) = pod(&store).await;
            let client = server.client();
            let template = batch(&client, writes, encoded);
            let requests = (0..count).map(|_| template.try_clone().expect("a body in memory"));
            let tally = behind_a_blocked_store(&store, requests.collect()).await;
            assert!(tally[&429] > 90, "{tally:?}");
            let case = format!("{count} batches of {writes} writes, encoded: {encoded}");
            assert_survived(&mut server, &case, &tally).await;
        }
    }
}

on_each_store! {
    async fn plain_writes(store: TestStore) {
        let body = Bytes::from(vec![b'x'; MB]);
        for count in [100, 400] {
            let (_limit, mut server) = pod(&store).await;
            let client = server.client();
            let requests = (0..count).map(|number| put(&client, &format!("p/{number}"), &body));
            let tally = tally(answers_of(requests.collect(), count).await);
            assert!(tally.contains_key(&201) || tally.contains_key(&200), "{tally:?}");
            assert_survived(&mut server, &format!("{count} plain writes"), &tally).await;
        }
    }
}

/// Windows of many streams on many connections hold bytes that have not been looked at.
#[tokio::test]
async fn plain_writes_over_http_2() {
    let store = TestStore::postgres().await;
    let (_limit, mut server) = pod(&store).await;
    let body = Bytes::from(vec![b'x'; MB]);
    let clients: Vec<_> = (0..20).map(|_| Client::over_http_2(&server.address)).collect();
    let requests =
        (0..400).map(|number| put(&clients[number % 20], &format!("p/{number}"), &body)).collect();
    let tally = tally(answers_of(requests, 400).await);
    assert_survived(&mut server, "400 plain writes over HTTP/2", &tally).await;
}

/// Puts so many values of one megabyte into the store, behind the server's back.
async fn fill(store: &TestStore, values: usize) {
    let columns = "(key, token, version, value, content_type";
    let sql = if store.is_postgres() {
        format!(
            "INSERT INTO resources {columns})
             SELECT 'r/' || n, 1, 1, convert_to(repeat('x', {MB}), 'UTF8'), 'text/plain'
             FROM generate_series(0, {values} - 1) AS n"
        )
    } else {
        format!(
            "WITH RECURSIVE all_of(n) AS
                 (SELECT 0 UNION ALL SELECT n + 1 FROM all_of WHERE n + 1 < {values})
             INSERT INTO resources {columns}, touched_at)
             SELECT 'r/' || n, 1, 1, zeroblob({MB}), 'text/plain', unixepoch() FROM all_of"
        )
    };
    store.execute(&sql).await.expect("values");
}

/// Asks for something, and takes no more of the answer than its first bytes.
async fn begin_to_read(address: &str, target: &str, headers: &str) -> (TcpStream, Vec<u8>) {
    let mut stream = ask(address, target, headers).await;
    let mut begun = vec![0; 1024];
    let read = stream.read(&mut begun).await.expect("an answer");
    assert!(read > 0, "closed without an answer");
    begun.truncate(read);
    (stream, begun)
}

async fn ask(address: &str, target: &str, headers: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    // So that the answer does not simply wait in the kernel, on this side.
    socket.set_recv_buffer_size(16 << 10).expect("a small buffer");
    let mut stream =
        socket.connect(address.parse().expect("an address")).await.expect("it listens");
    let head = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    stream
}

async fn read_the_rest((mut stream, mut bytes): (TcpStream, Vec<u8>)) -> Answer {
    loop {
        if let Some(answer) = Answer::parse(&bytes) {
            return answer;
        }
        assert!(stream.read_buf(&mut bytes).await.expect("an answer") > 0, "closed half way");
    }
}

/// Nobody takes more than the beginning of an answer before everybody has one.
async fn slow_readers(server: &Fencepost, readers: usize, values: usize) -> Vec<u16> {
    let targets = (0..readers).map(|number| {
        let headers = if number % 4 == 0 { "X-Fencing-Token: 7\r\n" } else { "" };
        (format!("/v1/resources/r/{}", number % values), headers)
    });
    let answers = slow_answers(server, targets).await;
    let sound = answers.iter().map(|answer| {
        assert!(answer.status != 200 || answer.body.len() == MB, "{}", answer.body.len());
        answer.status
    });
    sound.collect()
}

async fn slow_answers(
    server: &Fencepost,
    targets: impl IntoIterator<Item = (String, &'static str)>,
) -> Vec<Answer> {
    let begun = targets.into_iter().map(|(target, headers)| {
        let address = server.address.clone();
        tokio::spawn(async move { begin_to_read(&address, &target, headers).await })
    });
    let begun: Vec<_> =
        join_all(begun).await.into_iter().map(|begun| begun.expect("one")).collect();
    let answers = begun.into_iter().map(|begun| async {
        let answer = read_the_rest(begun).await;
        assert_sound(&answer);
        answer
    });
    join_all(answers).await
}

/// A listing of `rows` is 6 MB of JSON for each thousand: every byte of a name takes up six.
async fn slow_listings(server: &mut Fencepost, target: &str, rows: &str, count: usize) {
    let targets = (0..80).map(|_| (target.to_owned(), ""));
    let answers = slow_answers(server, targets).await;
    for answer in answers.iter().filter(|answer| answer.status == 200) {
        assert_eq!(answer.json()[rows].as_array().expect("rows").len(), count);
        assert!(answer.body.len() > count * 6_000, "{}", answer.body.len());
    }
    let tally = tally(answers.iter().map(|answer| answer.status));
    assert!(tally.contains_key(&200) && tally.contains_key(&429), "{tally:?}");
    assert_survived(server, &format!("80 slow listings of {rows}"), &tally).await;
}

on_each_store! {
    async fn slow_listings_of_resources(store: TestStore) {
        let (_limit, mut server) = pod(&store).await;
        let columns = "(key, token, version, value, content_type";
        let of_type = format!("'text/{}'", "t".repeat(251));
        let sql = if store.is_postgres() {
            format!(
                "INSERT INTO resources {columns})
                 SELECT repeat(chr(1), 1000) || n, 1, 1, 'x', {of_type} FROM generate_series(1, 2000) AS n"
            )
        } else {
            format!(
                "WITH RECURSIVE all_of(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM all_of WHERE n < 2000)
                 INSERT INTO resources {columns}, touched_at)
                 SELECT replace(hex(zeroblob(500)), '0', char(1)) || n, 1, 1, x'78', {of_type}, unixepoch()
                 FROM all_of"
            )
        };
        store.execute(&sql).await.expect("keys");
        slow_listings(&mut server, "/v1/resources?limit=1000", "resources", 1000).await;
    }
}

#[tokio::test]
async fn slow_listings_of_locks() {
    let store = TestStore::sqlite();
    let (_limit, mut server) = pod_with(&store, &["--authority", "store"]).await;
    let sql =
        "WITH RECURSIVE all_of(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM all_of WHERE n < 2000)
               INSERT INTO locks (token, name, lease, owner, ttl_ms, expires_at)
               SELECT n, replace(hex(zeroblob(500)), '0', char(1)) || n, 'l' || n, 'o', 3600000,
                      (unixepoch() + 3600) * 1000
               FROM all_of";
    store.execute(sql).await.expect("locks");
    store.execute("UPDATE tokens SET issued = 2000").await.expect("their tokens");
    slow_listings(&mut server, "/v1/locks?limit=1000", "locks", 1000).await;
}

/// Refused writes whose key and scope are a thousand bytes each, and each of these is six in JSON.
async fn refused_writes(server: &Fencepost, count: usize) {
    let client = server.client();
    let key = "%01".repeat(1000);
    assert_eq!(answer(client.put(&key, 9, "x")).await.status, 201);
    let refused = stream::iter(0..count).map(|_| async {
        let stale = client.put(&key, 1, "x").header("X-Fencing-Scope", &key);
        answer(stale.header("X-Fencing-Client", "c".repeat(250))).await.status
    });
    let statuses: Vec<u16> = refused.buffer_unordered(16).collect().await;
    assert!(statuses.iter().all(|status| *status == 409), "{:?}", tally(statuses));
}

#[tokio::test]
async fn slow_listings_of_rejections() {
    let store = TestStore::sqlite();
    let (_limit, mut server) = pod(&store).await;
    refused_writes(&server, 1000).await;
    eventually("they can be listed", || async {
        let listing = answer(server.client().get("/v1/rejections?limit=500")).await;
        listing.json()["rejections"].as_array().expect("rejections").len() == 500
    })
    .await;
    slow_listings(&mut server, "/v1/rejections?limit=500", "rejections", 500).await;
}

#[tokio::test]
async fn followers_that_read_nothing() {
    let store = TestStore::sqlite();
    let (_limit, mut server) = pod(&store).await;
    let mut followers = Vec::new();
    for _ in 0..64 {
        followers
            .push(ask(&server.address, "/v1/rejections", "Accept: text/event-stream\r\n").await);
    }
    refused_writes(&server, 3000).await;
    assert!(server.is_running(), "{}", server.log());
    drop(followers);
    assert_survived(&mut server, "64 followers that read nothing", &tally([409])).await;
}

/// The windows of HTTP/2 would be all that bounds them, on each connection.
#[tokio::test]
async fn unread_bodies_of_reads_are_dropped_before_the_store_answers() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = Client::over_http_2(&server.address);
    let block = Block::of(&store).await;
    let reads = (0..8).map(|number| {
        let read = client.read(&format!("k/{number}")).body(vec![b'x'; 60_000]).timeout(NO_HURRY);
        tokio::spawn(async move { answer(read).await.status })
    });
    let reads: Vec<_> = reads.collect();
    // Beside their bodies there is still room on the connection: none of them stays in its window.
    for _ in 0..20 {
        let malformed = client.request(Method::POST, "/v1/batch").body(vec![b'x'; 20_000]);
        assert_eq!(answer(malformed).await.status, 415);
    }
    block.release().await;
    for read in reads {
        assert_eq!(read.await.expect("an answer"), 404);
    }
}

on_each_store! {
    async fn slow_reads_of_distinct_values(store: TestStore) {
        let (_limit, mut server) = pod(&store).await;
        let values = if store.is_postgres() { 400 } else { 150 };
        fill(&store, values).await;
        let tally = tally(slow_readers(&server, 400, values).await);
        assert!(tally[&200] >= 30 && tally[&429] > 90, "{tally:?}");
        assert_survived(&mut server, "400 slow reads", &tally).await;
    }
}

on_each_store! {
    async fn everything_at_once(store: TestStore) {
        let (_limit, mut server) = pod(&store).await;
        fill(&store, 100).await;
        let client = server.client();
        let body = Bytes::from(vec![b'x'; MB]);
        let template = batch(&client, 10, false);
        let puts = (0..200).map(|number| put(&client, &format!("p/{number}"), &body));
        let batches = (0..200).map(|_| template.try_clone().expect("a body in memory"));
        let writes = puts.zip(batches).flat_map(|(put, batch)| [put, batch]).collect();
        let (writes, reads) =
            tokio::join!(answers_of(writes, 400), slow_readers(&server, 200, 100));
        let tally = tally(writes.into_iter().chain(reads));
        assert_survived(&mut server, "everything at once", &tally).await;
    }
}
