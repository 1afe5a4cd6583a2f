//! Every setting that safety relies on is in force on fencepost's own connections, whatever the
//! defaults of the role and the database are.

use futures_util::future::join_all;

use crate::harness::{
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    postgres::{self, Postgres, execute, fetch, name_of},
    witness::{self, PINNED, PINNED_DIRECTLY},
};

/// A write of every kind, each of which takes its own way through the store.
async fn write_in_every_way(client: &Client) {
    for request in [
        client.put("ways/put", 1, "x"),
        client.claim("ways/claim", 1),
        client.delete("ways/delete", 1),
        client.read("ways/fenced-read").header("X-Fencing-Token", 1),
        client.put("ways/scoped", 1, "x").header("X-Fencing-Scope", "ways/scope"),
        client.batch(&serde_json::json!({"writes": [
            {"key": "ways/batch/1", "token": 1, "value": 1},
            {"key": "ways/batch/2", "token": 1, "value": 2},
        ]})),
    ] {
        let status = answer(request).await.status;
        assert!([200, 201, 204, 404].contains(&status), "{status}");
    }
}

#[tokio::test]
async fn hostile_defaults_are_overridden() {
    let url = postgres::database().await;
    witness::make_hostile(&url).await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    witness::install(&url).await;
    write_in_every_way(&server.client()).await;

    let seen = witness::testimony(&url, "ways/").await;
    for (setting, value) in PINNED.into_iter().chain(PINNED_DIRECTLY) {
        assert_eq!(seen[setting], [value], "{setting}");
    }
    assert_eq!(seen["application_name"], ["fencepost"]);
}

#[tokio::test]
async fn settings_in_the_url_do_not_override_them_either() {
    let url = postgres::database().await;
    let options = "&options=-c%20lock_timeout%3D0%20-c%20synchronous_commit%3Doff";
    let server = Fencepost::start(&format!("{url}{options}"), &[]);
    server.wait_until_ready().await;
    witness::install(&url).await;
    write_in_every_way(&server.client()).await;

    let seen = witness::testimony(&url, "ways/").await;
    assert_eq!(seen["lock_timeout"], ["100ms"]);
    assert_eq!(seen["synchronous_commit"], ["on"]);
}

/// `on` is the least that will do; what waits for a standby as well is the operator's choice.
#[tokio::test]
async fn a_stronger_commit_is_left_as_the_operator_chose_it() {
    let url = postgres::database().await;
    let database = name_of(&url);
    execute(&url, &format!("ALTER DATABASE {database} SET synchronous_commit = remote_apply"))
        .await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    witness::install(&url).await;
    write_in_every_way(&server.client()).await;

    assert_eq!(witness::testimony(&url, "ways/").await["synchronous_commit"], ["remote_apply"]);
}

#[tokio::test]
async fn a_reload_does_not_make_commits_asynchronous() {
    let postgres = Postgres::start(&["fsync=off"]).await;
    let url = postgres.database("").await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    write_in_every_way(&server.client()).await;
    execute(&url, "ALTER SYSTEM SET synchronous_commit = off").await;
    execute(&url, "SELECT pg_reload_conf()").await;
    eventually("new connections commit asynchronously", || async {
        fetch::<String>(&url, "SELECT current_setting('synchronous_commit')").await == "off"
    })
    .await;
    witness::install(&url).await;
    write_in_every_way(&server.client()).await;

    assert_eq!(witness::testimony(&url, "ways/").await["synchronous_commit"], ["on"]);
}

#[tokio::test]
async fn connections_are_named_and_bounded() {
    const WRITERS: usize = 3;
    const READERS: usize = 2;
    const FOR_THE_AUDIT: usize = 1;
    let url = postgres::database().await;
    // One connection does for as many writes as one queue holds. It takes more at once to need all.
    let threads = READERS.to_string();
    let flags =
        ["--store-connections", &WRITERS.to_string(), "--queue", "4", "--threads", &threads];
    let server = Fencepost::start(&url, &flags);
    server.wait_until_ready().await;
    let client = server.client();
    let open = async || {
        let count = "SELECT count(*) FROM pg_stat_activity
                     WHERE application_name = 'fencepost' AND datname = current_database()";
        fetch::<i64>(&url, count).await
    };
    let all = i64::try_from(WRITERS + READERS + FOR_THE_AUDIT).unwrap();
    eventually("all connections are in use", || async {
        let keys: Vec<String> = (0..50).map(|number| format!("bounded/{number}")).collect();
        join_all(keys.iter().map(|key| answer(client.put(key, 1, "x")))).await;
        join_all(keys.iter().map(|key| answer(client.read(key)))).await;
        open().await == all
    })
    .await;
}
