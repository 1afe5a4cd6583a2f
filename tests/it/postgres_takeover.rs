//! Another server takes over while the old primary lives on, or while another heir of the same data does.
//! Once one session has seen the new server, nothing comes from the old one; and heirs that never met issue no
//! token twice.

use std::{
    collections::HashSet,
    process::Command,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::harness::{
    PATIENCE,
    chaos_proxy::{ChaosProxy, Weather},
    etcd, eventually,
    fencepost::{Fencepost, run},
    http::{Answer, Client, answer},
    postgres::{self, Postgres, execute, fetch, lock_row, somebody_waits},
};

/// A primary, standbys that follow it, and the way that new connections take.
struct Servers {
    primary: Postgres,
    standbys: Vec<Postgres>,
    way: ChaosProxy,
    url: String,
    database: String,
}

impl Servers {
    async fn start(standbys: usize) -> Self {
        let primary = Postgres::start(&["fsync=off"]).await;
        let url = primary.database("").await;
        let mut following = Vec::new();
        for _ in 0..standbys {
            following.push(Postgres::standby(primary.port(), &["fsync=off"]).await);
        }
        let way = ChaosProxy::before(primary.port()).await;
        let by_way = way.reroute(&url, primary.port());
        let database = postgres::name_of(&url).to_owned();
        Self { primary, standbys: following, way, url: by_way, database }
    }

    fn on_primary(&self) -> String {
        self.primary.url(&self.database)
    }

    fn on_standby(&self, number: usize) -> String {
        self.standbys[number].url(&self.database)
    }

    async fn wait_until_replicated(&self) {
        let primary = self.primary.url("postgres");
        let written: String = fetch(&primary, "SELECT pg_current_wal_flush_lsn()::text").await;
        let heard = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn");
        for standby in &self.standbys {
            eventually("the standby has caught up", || async {
                fetch(&standby.url("postgres"), &heard).await
            })
            .await;
        }
    }
}

/// Again, for as long as it fails or nobody knows.
async fn insist(request: RequestBuilder) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = answer(request.try_clone().expect("a body in memory")).await;
        if ![503, 504].contains(&answer.status) || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn acquisition(client: &Client, lock: &str) -> RequestBuilder {
    client
        .request(Method::POST, &format!("/v1/locks/{lock}"))
        .header("Content-Type", "application/json")
        .body(json!({ "ttl_ms": 60_000, "wait_ms": 10_000 }).to_string())
}

async fn acquire(client: &Client, lock: &str) -> i64 {
    let granted = insist(acquisition(client, lock)).await;
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].as_i64().expect("a token")
}

/// Writes with a token from before the takeover, one key after the other, until it is refused. It must be, as
/// soon as one session has seen the new server.
async fn write_until_refused(client: &Client, token: i64) {
    let deadline = Instant::now() + PATIENCE;
    for number in 0.. {
        let written = answer(client.put(&format!("before/{number}"), token, "before")).await;
        match written.status {
            409 => return,
            201 | 503 | 504 => {}
            other => panic!("{other}: {}", written.text()),
        }
        assert!(Instant::now() < deadline, "the old primary is used for ever");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn keys_like(prefix: &str) -> String {
    format!("SELECT count(*) FROM fencepost.resources WHERE key LIKE '{prefix}/%'")
}

/// The old primary is alive, and every session that was open still reaches it. New connections do not.
async fn nothing_comes_from_a_deposed_primary(authority: &str) {
    let servers = Servers::start(1).await;
    let flags = ["--authority", authority, "--rejections-keep-for", "1h"];
    let server = Fencepost::start(&servers.url, &flags);
    server.wait_until_ready().await;
    let client = server.client();
    let lock = etcd::unique("deposed");
    let token = acquire(&client, &lock).await;
    // The floor rises to the newest token that was issued, and stops those that are older.
    let before = acquire(&client, &format!("{lock}/newest")).await;
    // Every kind of session is open: writing, reading, listing, locks.
    assert_eq!(answer(client.put("shared", token, "old")).await.status, 201);
    assert_eq!(join_all((0..16).map(|_| answer(client.read("shared")))).await[0].text(), "old");
    assert_eq!(answer(client.get("/v1/resources?prefix=shared")).await.status, 200);
    assert_eq!(answer(client.get(&format!("/v1/locks/{lock}"))).await.status, 200);
    servers.wait_until_replicated().await;

    servers.standbys[0].promote().await;
    servers.way.lead_new_to(servers.standbys[0].port());
    write_until_refused(&client, token).await;

    // From here on everything is of the new primary, whichever session it takes.
    let locks = (0..8).map(|number| format!("{lock}/{number}"));
    let tokens = join_all(locks.map(|name| {
        let client = &client;
        async move { acquire(client, &name).await }
    }))
    .await;
    let newest = *tokens.iter().max().expect("tokens");
    assert!(newest > before);
    assert_eq!(insist(client.put("shared", newest, "new")).await.status, 200);
    let mut acknowledged = 0;
    for round in 0..10 {
        let writes = (0..8)
            .map(|number| answer(client.put(&format!("after/{round}-{number}"), newest, "after")));
        let reads = (0..16).map(|_| answer(client.read("shared")));
        let (writes, reads) = tokio::join!(join_all(writes), join_all(reads));
        acknowledged += writes.iter().filter(|answer| answer.status == 201).count();
        for read in reads.iter().filter(|answer| answer.status == 200) {
            assert_eq!(read.text(), "new", "no read is old");
        }
        let stale = answer(client.put("shared", token, "zombie")).await;
        assert!([409, 503].contains(&stale.status), "{}", stale.text());
    }
    assert!(acknowledged > 0, "it serves");
    let listed = insist(client.get("/v1/resources?prefix=after")).await;
    assert!(listed.text().contains("after/9-7"), "{}", listed.text());
    let held: i64 = insist(client.get(&format!("/v1/locks/{lock}/0"))).await.json()["token"]
        .as_i64()
        .expect("a token");
    assert_eq!(held, tokens[0]);
    eventually("the refusals are recorded on the new server", || async {
        let recorded = "SELECT count(*) > 0 FROM fencepost.rejections WHERE key = 'shared'";
        fetch(&servers.on_standby(0), recorded).await
    })
    .await;
    let there: i64 = fetch(&servers.on_standby(0), &keys_like("after")).await;
    assert!(there >= i64::try_from(acknowledged).expect("few"), "{there} of {acknowledged}");
    for nothing in [
        keys_like("after"),
        "SELECT count(*) FROM fencepost.resources WHERE value = 'new'".into(),
        format!("SELECT count(*) FROM fencepost.resources WHERE token > {before}"),
        format!("SELECT count(*) FROM fencepost.locks WHERE token > {before}"),
        // The zombie was refused after the takeover, so its refusals are recorded on the new server.
        "SELECT count(*) FROM fencepost.rejections WHERE key = 'shared'".into(),
    ] {
        let on_the_old: i64 = fetch(&servers.on_primary(), &nothing).await;
        assert_eq!(on_the_old, 0, "{nothing}");
    }

    // And the way back is closed.
    servers.way.retarget(servers.primary.port());
    for number in 0..20 {
        let refused = answer(client.put(&format!("back/{number}"), newest, "back")).await;
        assert!([503, 504].contains(&refused.status), "{}", refused.text());
        let refused = answer(client.read("shared")).await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        let refused = answer(acquisition(&client, "back")).await;
        assert!([503, 504].contains(&refused.status), "{}", refused.text());
    }
    assert_eq!(fetch::<i64>(&servers.on_primary(), &keys_like("back")).await, 0);
    assert!(server.log().contains("another has taken over from"), "{}", server.log());
    servers.way.retarget(servers.standbys[0].port());
    assert_eq!(insist(client.read("shared")).await.text(), "new");
    assert_eq!(insist(client.put("shared", newest, "again")).await.status, 200);
}

#[tokio::test]
async fn nothing_comes_from_a_deposed_primary_with_tokens_from_the_store() {
    nothing_comes_from_a_deposed_primary("store").await;
}

#[tokio::test]
async fn nothing_comes_from_a_deposed_primary_with_tokens_from_etcd() {
    nothing_comes_from_a_deposed_primary(&etcd::url_of_shared().await).await;
}

/// What a running server finds out about itself.
async fn self_examination(server: &Fencepost) -> String {
    let url = format!("http://{}", server.admin);
    // The proxies that it goes through live on this very thread.
    let asked = tokio::task::spawn_blocking(move || run(&["check", "--url", &url, "-o", "json"]));
    String::from_utf8_lossy(&asked.await.expect("a thread").stdout).into_owned()
}

#[tokio::test]
async fn check_says_that_a_running_server_refuses_its_store() {
    const REFUSED: &str = "another has taken over from";
    let servers = Servers::start(1).await;
    let server = Fencepost::start(&servers.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let token = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("key", token, "old")).await.status, 201);
    servers.wait_until_replicated().await;
    servers.standbys[0].promote().await;
    servers.way.lead_new_to(servers.standbys[0].port());
    write_until_refused(&client, token).await;
    let report = self_examination(&server).await;
    assert!(report.contains("it can be written to") && !report.contains(REFUSED), "{report}");

    servers.way.retarget(servers.primary.port());
    let refused = answer(client.read("key")).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    let report = self_examination(&server).await;
    assert!(report.contains(REFUSED) && report.contains("floor raise TOKEN"), "{report}");
}

/// Without an authority, a server looks now and then whether its store was moved to one.
#[tokio::test]
async fn the_record_of_a_deposed_primary_is_not_believed() {
    let servers = Servers::start(1).await;
    let server = Fencepost::start(&servers.url, &["--authority", "none"]);
    server.wait_until_ready().await;
    let client = server.client();
    assert_eq!(answer(client.put("key", 1, "old")).await.status, 201);
    servers.wait_until_replicated().await;
    servers.standbys[0].promote().await;
    servers.way.lead_new_to(servers.standbys[0].port());
    let on_standby = servers.on_standby(0);
    let moving = ["authority", "move", "--to", "store", "--yes", "--store", &on_standby];
    let moved = run(&moving);
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let is_refused = || async {
        let read = answer(client.read("key")).await;
        read.status == 503 && read.problem() == "authority-mismatch"
    };
    eventually("the move is noticed", is_refused).await;

    servers.way.retarget(servers.primary.port());
    let links = servers.way.links();
    eventually("it has looked again", || async { servers.way.links() >= links + 4 }).await;
    assert!(is_refused().await, "the old record says that it may serve");
}

/// It rests while the other takes over. Its first request is not for the old one.
#[tokio::test]
async fn a_quiet_process_notices_a_takeover_before_its_next_request() {
    let servers = Servers::start(1).await;
    let server = Fencepost::start(&servers.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let token = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("key", token, "old")).await.status, 201);
    servers.wait_until_replicated().await;
    servers.standbys[0].promote().await;
    servers.way.lead_new_to(servers.standbys[0].port());
    // Longer than a session may rest without being asked about.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let stale = answer(client.put("key", token, "stale")).await;
    // A session that has rested waits for its look for a second, and a busy machine may take longer;
    // the log tells if it did.
    let looked = !server.log().contains("could not tell in time");
    assert!(stale.status / 100 != 2 || !looked, "{}", stale.text());
    assert_eq!(insist(client.put("key", token, "stale")).await.status, 409);
}

/// To connect to the new server takes longer than a session that has rested waits for a look.
#[tokio::test]
async fn a_slow_way_to_the_new_server_hides_no_takeover() {
    let servers = Servers::start(1).await;
    let server = Fencepost::start(&servers.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let token = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("key", token, "old")).await.status, 201);
    servers.wait_until_replicated().await;
    servers.standbys[0].promote().await;
    let slow = ChaosProxy::before(servers.standbys[0].port()).await;
    // Both ways, and there are several questions before a connection is open.
    slow.set(Weather::Delayed(Duration::from_millis(150)));
    servers.way.lead_new_to(slow.port());
    write_until_refused(&client, token).await;
    slow.set(Weather::Fair);
    let newer = acquire(&client, "another-lock").await;
    assert_eq!(insist(client.put("key", newer, "new")).await.status, 200);
}

/// A write waits on the old primary for a row. The new one is seen; then the old one carries the write out.
#[tokio::test]
async fn a_write_that_the_old_primary_carries_out_too_late_is_not_acknowledged() {
    let servers = Servers::start(1).await;
    let server = Fencepost::start(&servers.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let token = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("key", token, "old")).await.status, 201);
    servers.wait_until_replicated().await;
    servers.standbys[0].promote().await;

    let row = lock_row(&servers.on_primary(), "key").await;
    let late = tokio::spawn(answer(client.put("key", token, "late")));
    let primary = servers.on_primary();
    eventually("it waits", || somebody_waits(&primary)).await;
    servers.way.lead_new_to(servers.standbys[0].port());
    write_until_refused(&client, token).await;
    drop(row);
    let late = late.await.expect("an answer");
    // Unknown; or, where all this took longer than a write waits for a row, certainly not done.
    assert!([503, 504].contains(&late.status), "{}: {}", late.status, late.text());
    let read = insist(client.read("key")).await;
    assert_eq!(read.text(), "old");
}

/// One fencepost sees both heirs. They have the same cluster and the same timeline.
#[tokio::test]
async fn an_heir_on_the_same_timeline_is_another_server() {
    let mut servers = Servers::start(2).await;
    let server = Fencepost::start(&servers.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let first = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("key", first, "first")).await.status, 201);
    servers.wait_until_replicated().await;
    servers.primary.stop("immediate").await;

    servers.standbys[0].promote().await;
    servers.way.retarget(servers.standbys[0].port());
    let second = acquire(&client, "lock-of-the-first-heir").await;
    assert_eq!(insist(client.put("key", second, "second")).await.status, 200);

    // The first heir lives on, and whoever is connected stays there.
    servers.standbys[1].promote().await;
    servers.way.lead_new_to(servers.standbys[1].port());
    let timeline = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)";
    let of_first: String = fetch(&servers.on_standby(0), timeline).await;
    let of_second: String = fetch(&servers.on_standby(1), timeline).await;
    assert_eq!(of_first, of_second, "cluster and timeline do not tell them apart");
    write_until_refused(&client, second).await;
    let third = acquire(&client, "lock-of-the-second-heir").await;
    assert!(third > second && second > first, "{first}, {second}, {third}");
    assert_eq!(insist(client.put("key", third, "third")).await.status, 200);
    assert_eq!(insist(client.read("key")).await.text(), "third");
    let newer = format!("SELECT count(*) FROM fencepost.resources WHERE token >= {third}");
    assert_eq!(fetch::<i64>(&servers.on_standby(0), &newer).await, 0);
}

/// Tokens that a new fencepost, which remembers nothing, gets from this database.
async fn tokens_from(url: &str) -> HashSet<i64> {
    let server = Fencepost::start_as_it_is(url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let mut tokens = HashSet::new();
    for number in 0..40 {
        tokens.insert(acquire(&client, &format!("lock-{number}")).await);
    }
    tokens
}

#[tokio::test]
async fn two_standbys_of_one_primary_issue_different_tokens() {
    let mut servers = Servers::start(2).await;
    let server = Fencepost::start(&servers.url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let before = acquire(&server.client(), "lock").await;
    servers.wait_until_replicated().await;
    drop(server);
    servers.primary.stop("immediate").await;
    let mut issued = HashSet::from([before]);
    for heir in 0..2 {
        servers.standbys[heir].promote().await;
        let tokens = tokens_from(&servers.on_standby(heir)).await;
        assert!(tokens.is_disjoint(&issued), "{tokens:?} after {issued:?}");
        assert!(tokens.iter().all(|token| *token > before && *token < 1 << 62));
        issued.extend(tokens);
        servers.standbys[heir].stop("immediate").await;
    }
}

/// A dump of the database, restored into a new one of the same cluster: its address.
async fn restored(cluster: &Postgres, dump: &[u8]) -> String {
    let url = cluster.database("").await;
    let file = cluster.directory().join(format!("{}.sql", postgres::name_of(&url)));
    std::fs::write(&file, dump).expect("a dump");
    let mut psql = Command::new(postgres::installed("psql"));
    psql.args(["--quiet", "--set=ON_ERROR_STOP=1", "--file"]).arg(&file).arg(&url);
    let restored = tokio::task::spawn_blocking(move || psql.output()).await.expect("a thread");
    let restored = restored.expect("psql runs");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    url
}

async fn dumped(url: &str) -> Vec<u8> {
    let mut dump = Command::new(postgres::bin("pg_dump"));
    dump.arg(url);
    let dumped = tokio::task::spawn_blocking(move || dump.output()).await.expect("a thread");
    let dumped = dumped.expect("pg_dump runs");
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    dumped.stdout
}

#[tokio::test]
async fn a_dump_restored_into_the_same_cluster_is_noticed() {
    let cluster = Postgres::start(&["fsync=off"]).await;
    let url = cluster.database("").await;
    let server = Fencepost::start(&url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let client = server.client();
    let older = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("lock", older, "older")).await.status, 201);
    let released =
        client.request(Method::DELETE, "/v1/locks/lock").header("X-Fencing-Token", older);
    assert_eq!(answer(released).await.status, 204);
    let dump = dumped(&url).await;
    let newer = acquire(&client, "lock").await;
    assert_eq!(answer(client.put("lock", newer, "newer")).await.status, 200);
    let mut issued = HashSet::from([older, newer]);
    drop(server);

    // The same dump, twice: what one of them has issued the other does not.
    for _ in 0..2 {
        let restored = restored(&cluster, &dump).await;
        let server = Fencepost::start_as_it_is(&restored, &["--authority", "store"]);
        server.wait_until_ready().await;
        for zombie in [older, newer] {
            let refused = insist(server.client().put("lock", zombie, "zombie")).await;
            assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
        }
        drop(server);
        let tokens = tokens_from(&restored).await;
        assert!(tokens.is_disjoint(&issued), "{tokens:?} after {issued:?}");
        issued.extend(tokens);
    }
}

/// The row that an older version has left names no database. That is no reason to fence anybody off.
#[tokio::test]
async fn the_record_of_an_older_version_raises_no_alarm() {
    let cluster = Postgres::start(&["fsync=off"]).await;
    let url = cluster.database("").await;
    let server = Fencepost::start(&url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let token = acquire(&server.client(), "lock").await;
    assert_eq!(answer(server.client().put("lock", token, "before")).await.status, 201);
    drop(server);
    execute(&url, "UPDATE fencepost.lineage SET database = NULL").await;
    execute(&url, "DELETE FROM fencepost.incarnation").await;

    let upgraded = Fencepost::start_as_it_is(&url, &["--authority", "store"]);
    upgraded.wait_until_ready().await;
    assert_eq!(insist(upgraded.client().put("lock", token, "after")).await.status, 200);
    assert_eq!(fetch::<i64>(&url, "SELECT token FROM fencepost.floor").await, 0);
    let entered =
        "SELECT database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   FROM fencepost.lineage";
    assert!(fetch::<bool>(&url, entered).await, "from now on it is known");
}
