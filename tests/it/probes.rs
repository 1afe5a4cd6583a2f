//! The admin listener: is the process alive, has it started, can it serve?

use fencepost::store::StoreError;

use crate::harness::{
    eventually,
    fencepost::{Fencepost, run},
    http::{Answer, answer},
    postgres::{self, Postgres},
    store::{TestStore, on_each_store},
};

async fn probe(server: &Fencepost, path: &str) -> Answer {
    answer(server.admin_client().get(path)).await
}

on_each_store! {
    async fn a_server_that_can_serve_says_so(store: TestStore) {
        let server = Fencepost::on(&store).await;
        for path in ["/livez", "/readyz", "/startupz"] {
            let probe = probe(&server, path).await;
            assert_eq!((probe.status, probe.text().as_str()), (200, "ok\n"), "{path}");
        }
        let verbose = probe(&server, "/readyz?verbose").await;
        assert_eq!(verbose.status, 200);
        assert_eq!(verbose.text(), "[+] started\n[+] serving\n[+] store\nok\n");
    }
}

#[tokio::test]
async fn probes_are_not_on_the_public_address_nor_resources_on_the_other() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    for path in ["/livez", "/readyz", "/startupz"] {
        assert_eq!(answer(server.client().get(path)).await.problem(), "not-found");
    }
    assert_eq!(probe(&server, "/v1/resources/k").await.problem(), "not-found");
}

#[tokio::test]
async fn a_database_that_is_late_makes_it_unready_and_not_dead() {
    let mut postgres = Postgres::start(&[]).await;
    let url = postgres.database("").await;
    postgres.stop("fast").await;

    let mut server = Fencepost::start(&url, &[]);
    let client = server.client();
    assert_eq!(probe(&server, "/livez").await.status, 200);
    for path in ["/readyz", "/startupz"] {
        assert_eq!(probe(&server, path).await.status, 503, "{path}");
    }
    let verbose = probe(&server, "/readyz?verbose").await;
    assert_eq!(verbose.status, 503);
    for line in ["[-] started: ", "[+] serving\n", "[-] store: "] {
        assert!(verbose.text().contains(line), "{}", verbose.text());
    }
    for request in [
        client.put("k", 5, "v"),
        client.delete("k", 5),
        client.claim("k", 5),
        client.read("k"),
        client.get("/v1/resources"),
        client.get("/v1/marks/k"),
        client.batch(&serde_json::json!({"writes": [{"key": "k", "token": 5, "value": 1}]})),
    ] {
        let refused = answer(request).await;
        assert_eq!((refused.status, refused.problem().as_str()), (503, "store-unavailable"));
        assert_eq!(refused.json()["retryable"], true);
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    // What is wrong with the request does not depend on the database.
    let tokenless = client.request(reqwest::Method::PUT, "/v1/resources/k");
    assert_eq!(answer(tokenless).await.problem(), "token-required");
    assert!(server.is_running());

    postgres.run().await;
    server.wait_until_ready().await;
    assert_eq!(probe(&server, "/startupz").await.status, 200);
    assert_eq!(answer(client.put("k", 5, "v")).await.status, 201);
}

#[tokio::test]
async fn a_database_that_goes_away_makes_it_unready_until_it_is_back() {
    let mut postgres = Postgres::start(&[]).await;
    let url = postgres.database("").await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    let client = server.client();
    answer(client.put("k", 5, "v")).await;

    postgres.stop("immediate").await;
    eventually("it is unready", || async { probe(&server, "/readyz").await.status == 503 }).await;
    assert_eq!(probe(&server, "/livez").await.status, 200);
    // It did start; that the database is away now is not about starting.
    assert_eq!(probe(&server, "/startupz").await.status, 200);
    eventually("writes are turned away", || async {
        let refused = answer(client.put("k", 6, "w")).await;
        refused.status == 503 && refused.problem() == "store-unavailable"
    })
    .await;

    postgres.run().await;
    server.wait_until_ready().await;
    eventually("writes are accepted", || async {
        answer(client.put("k", 7, "w")).await.status == 200
    })
    .await;
    assert_eq!(answer(client.put("k", 5, "zombie")).await.problem(), "stale-token");
}

/// Serves with the given settings, which must not work: its exit code and its last words.
fn refuses_to_serve(store: &str) -> (Option<i32>, String) {
    let listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let output = run(&[&["serve", "--store", store][..], &listen].concat());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn a_wrong_schema_ends_it_with_a_reason() {
    let empty = postgres::database().await;
    let (code, reason) = refuses_to_serve(&empty);
    assert_eq!(code, Some(1), "{reason}");
    assert!(reason.contains("fencepost migrate"), "{reason}");

    let store = TestStore::postgres().await;
    drop(Fencepost::on(&store).await);
    let future = "UPDATE fencepost._sqlx_migrations SET version = 20990101000000 WHERE version = 1";
    postgres::execute(&store.url, future).await;
    let (code, reason) = refuses_to_serve(&store.url);
    assert_eq!(code, Some(1), "{reason}");
    assert!(reason.contains("newer fencepost"), "{reason}");
}

#[tokio::test]
async fn a_schema_that_changes_under_it_makes_it_unready() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let future = "UPDATE fencepost._sqlx_migrations SET version = 20990101000000 WHERE version = 1";
    postgres::execute(&store.url, future).await;
    eventually("it is unready", || async { probe(&server, "/readyz").await.status == 503 }).await;
    assert_eq!(probe(&server, "/livez").await.status, 200);
}

on_each_store! {
    async fn a_session_whose_schema_has_changed_is_used_no_more(store: TestStore) {
        let opened = store.open().await;
        let mut session = opened.connect().await.unwrap();
        session.ping().await.unwrap();
        let newer = "UPDATE _sqlx_migrations SET version = version + 1000
                     WHERE version = (SELECT max(version) FROM _sqlx_migrations)";
        store.execute(newer).await.unwrap();
        assert!(matches!(session.ping().await, Err(StoreError::Unfit(_))));
    }
}
