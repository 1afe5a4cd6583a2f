//! Behind pgbouncer in transaction mode, which lends out a connection for one transaction at a time
//! and forgets what was set on it.

use futures_util::future::join_all;
use serde_json::json;

use crate::harness::{
    eventually,
    fencepost::{Fencepost, run},
    holder::Holders,
    http::{Answer, Client, answer},
    pgbouncer::Pgbouncer,
    postgres::{self, Postgres, connect, execute, fetch, name_of},
    witness::{self, PINNED},
};

/// Fewer than one fencepost has connections.
const POOL_SIZE: u32 = 3;
const PLAIN: &str = "";
/// As many guides recommend: start-up parameters are accepted, and dropped.
const LENIENT: &str = "ignore_startup_parameters = extra_float_digits,options";

struct Pooled {
    pgbouncer: Pgbouncer,
    direct: String,
}

impl Pooled {
    async fn new(settings: &str) -> Self {
        let postgres = postgres::shared().await;
        let direct = postgres.database("").await;
        assert!(run(&["migrate", "--store", &direct]).status.success());
        Self { pgbouncer: Pgbouncer::before(postgres, POOL_SIZE, settings).await, direct }
    }

    async fn serve(&self) -> Fencepost {
        let server = Fencepost::start_as_it_is(&self.pgbouncer.url(&self.direct), &[]);
        server.wait_until_ready().await;
        server
    }
}

fn expect(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
}

/// Everything that a holder does with a key of its own, in every way that the store has.
async fn work(client: Client, name: String) {
    for token in 1..=5 {
        let first = token == 1;
        let created = if first { 201 } else { 200 };
        let put = client.put(&name, token, "one").header("X-Fencing-Seq", 1);
        expect(&answer(put).await, created);
        let replay = answer(client.put(&name, token, "one").header("X-Fencing-Seq", 1)).await;
        expect(&replay, created);
        assert_eq!(replay.header("x-fencing-replay"), Some("true"));

        let scope = format!("{name}/scope");
        let scoped = client.put(&format!("{name}/scoped"), token, "s");
        expect(&answer(scoped.header("X-Fencing-Scope", &scope)).await, created);
        assert_eq!(client.mark(&scope).await, (token, 0));

        let batch = json!({"writes": [
            {"key": format!("{name}/b"), "token": token, "value": token},
            {"key": format!("{name}/a"), "token": token, "value": token},
            {"key": format!("{name}/d"), "token": token, "delete": true},
        ]});
        expect(&answer(client.batch(&batch)).await, 200);

        let fenced = answer(client.read(&name).header("X-Fencing-Token", token + 1)).await;
        expect(&fenced, 200);
        assert_eq!(fenced.text(), "one");
        let stale = answer(client.put(&name, token, "late")).await;
        expect(&stale, 409);
        let mismatch = client.put(&format!("{name}/a"), token, "x").header("If-None-Match", "*");
        expect(&answer(mismatch).await, 412);

        let list = answer(client.get(&format!("/v1/resources?prefix={name}/"))).await;
        let keys: Vec<_> = list.json()["resources"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|listed| listed["key"].as_str().expect("a key").to_owned())
            .collect();
        assert_eq!(keys, ["a", "b", "scoped"].map(|rest| format!("{name}/{rest}")));
    }
}

async fn two_fenceposts_share_a_small_pool(settings: &str) {
    let pooled = Pooled::new(settings).await;
    witness::make_hostile(&pooled.direct).await;
    let servers = [pooled.serve().await, pooled.serve().await];
    witness::install(&pooled.direct).await;
    join_all((0..16).map(|number| {
        let client = servers[number % servers.len()].client();
        tokio::spawn(work(client, format!("worker-{number}")))
    }))
    .await
    .into_iter()
    .collect::<Result<Vec<()>, _>>()
    .expect("every worker is content");
    for server in &servers {
        assert!(server.log().contains("a transaction pooler stands in front"), "{}", server.log());
        expect(&answer(server.admin_client().get("/readyz")).await, 200);
    }

    let seen = witness::testimony(&pooled.direct, "worker-").await;
    for (setting, value) in PINNED {
        assert_eq!(seen[setting], [value], "{setting}");
    }
    // The pooler passes the name on. A connection of the test's own may still be on its way out.
    let lent: i64 = fetch(
        &pooled.direct,
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'fencepost'",
    )
    .await;
    assert!((1..=i64::from(POOL_SIZE)).contains(&lent), "{lent} connections");
}

#[tokio::test]
async fn two_fenceposts_share_a_pool_that_refuses_our_settings() {
    two_fenceposts_share_a_small_pool(PLAIN).await;
}

#[tokio::test]
async fn two_fenceposts_share_a_pool_that_ignores_our_settings() {
    two_fenceposts_share_a_small_pool(LENIENT).await;
}

/// A pooler that drops our settings looks like none at all if the defaults are just the same.
#[tokio::test]
async fn a_pooler_is_noticed_even_if_the_defaults_are_ours() {
    let pooled = Pooled::new(LENIENT).await;
    let database = name_of(&pooled.direct);
    for (setting, value) in PINNED.into_iter().skip(1) {
        let set = format!("ALTER DATABASE {database} SET {setting} = '{value}'");
        execute(&pooled.direct, &set).await;
    }
    let server = pooled.serve().await;
    assert!(server.log().contains("a transaction pooler stands in front"), "{}", server.log());
}

#[tokio::test]
async fn migrating_through_a_pooler_is_refused() {
    let postgres = postgres::shared().await;
    let direct = postgres.database("").await;
    for settings in [PLAIN, LENIENT] {
        let pgbouncer = Pgbouncer::before(postgres, POOL_SIZE, settings).await;
        let url = pgbouncer.url(&direct);
        let output = run(&["migrate", "--store", &url]);
        let reason = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{reason}");
        assert!(reason.contains("direct connection") && reason.contains("--store"), "{reason}");
        let check = run(&["migrate", "--check", "--store", &url]);
        assert_eq!(check.status.code(), Some(1), "there is still something to do");
    }
}

/// What we set ourselves is done without. What the operator asks for is not, in silence.
#[tokio::test]
async fn options_that_a_pooler_does_not_take_are_refused() {
    let pooled = Pooled::new(PLAIN).await;
    let url = format!("{}&options=-c%20work_mem%3D8MB", pooled.pgbouncer.url(&pooled.direct));
    let reason = Fencepost::start_as_it_is(&url, &[]).refusal().await;
    assert!(reason.contains("leave `options` out of --store"), "{reason}");
}

/// The pooler says so with the very code that it has for what will never do.
#[tokio::test]
async fn a_database_that_is_not_up_yet_is_waited_for_behind_a_pooler_too() {
    let mut postgres = Postgres::start(&["fsync=off"]).await;
    let direct = postgres.database("").await;
    assert!(run(&["migrate", "--store", &direct]).status.success());
    postgres.stop("fast").await;
    let hasty = "client_login_timeout = 1\nserver_login_retry = 1";
    let pgbouncer = Pgbouncer::before(&postgres, POOL_SIZE, hasty).await;
    let server = Fencepost::start_as_it_is(&pgbouncer.url(&direct), &[]);
    let early = answer(server.client().put("k", 1, "x")).await;
    assert_eq!((early.status, early.problem().as_str()), (503, "store-unavailable"));
    eventually("it waits", || async { server.log().contains("waiting for the store") }).await;
    postgres.run().await;
    server.wait_until_ready().await;
    expect(&answer(server.client().put("k", 1, "x")).await, 201);
}

/// A read that fails must end its transaction, or the reads after it fail too.
#[tokio::test]
async fn a_read_that_had_to_wait_too_long_does_not_spoil_its_connection() {
    let pooled = Pooled::new(PLAIN).await;
    let server = pooled.serve().await;
    let client = server.client();
    expect(&answer(client.put("k", 1, "x")).await, 201);

    let mut blocker = connect(&pooled.direct).await;
    let lock = "BEGIN; LOCK TABLE fencepost.resources IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut blocker).await.unwrap();
    let list = client.get("/v1/resources");
    let (read, list) = tokio::join!(answer(client.read("k")), answer(list));
    for refused in [read, list] {
        assert_eq!((refused.status, refused.problem().as_str()), (503, "store-unavailable"));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut blocker).await.unwrap();
    // Every reader, those two among them, and at once: none may need a rest first.
    for read in join_all((0..8).map(|_| answer(client.read("k")))).await {
        expect(&read, 200);
    }
}

/// Nor must a write, however soon the next one comes.
#[tokio::test]
async fn a_write_that_failed_does_not_spoil_its_connection_either() {
    let pooled = Pooled::new(PLAIN).await;
    execute(&pooled.direct, "ALTER TABLE fencepost.resources ADD CHECK (value <> 'poison')").await;
    let server = pooled.serve().await;
    let client = server.client();
    expect(&answer(client.put("k", 1, "x")).await, 201);
    for token in 2..5 {
        expect(&answer(client.put("k", token, "poison")).await, 503);
        expect(&answer(client.put("k", token, "x")).await, 200);
    }
}

/// Its clients lose their connections, and Postgres the transactions that were under way.
#[tokio::test]
async fn a_killed_pooler_loses_nothing() {
    let mut pooled = Pooled::new(PLAIN).await;
    let server = pooled.serve().await;
    let holders = Holders::start(server.client(), 8);
    for _ in 0..3 {
        holders.until_applied(50).await;
        pooled.pgbouncer.restart().await;
    }
    holders.until_applied(50).await;
    let tally = holders.finish().await;
    assert!(tally.not_applied + tally.unknown > 0, "nobody noticed: {tally:?}");
}
