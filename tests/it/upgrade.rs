//! Rolling upgrades and downgrades: the previous release and this one serve on one schema, under load.

use serde_json::json;

use crate::harness::{
    fencepost::{Fencepost, run, run_previous},
    holder::Holders,
    http::{Client, answer},
    postgres::{self, apply_roles, execute},
    store::TestStore,
};

/// A database that the previous release has migrated: the address of its owner, and of the role that serves.
async fn migrated_by_the_previous_release() -> (String, String) {
    let superuser = postgres::database().await;
    apply_roles(&superuser).await;
    let [owner, serving] =
        ["fencepost_owner@", "fencepost_serve@"].map(|role| superuser.replace("postgres@", role));
    let migrated = run_previous(&["migrate", "--store", &owner]);
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    (owner, serving)
}

fn migrate(store: &str) {
    let migrated = run(&["migrate", "--store", store]);
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
}

async fn previous_on(store: &str, flags: &[&str]) -> Fencepost {
    let server = Fencepost::start_previous(store, flags);
    server.wait_until_ready().await;
    server
}

async fn this_one_on(store: &str, flags: &[&str]) -> Fencepost {
    let server = Fencepost::start_as_it_is(store, flags);
    server.wait_until_ready().await;
    server
}

async fn is_ready(server: &Fencepost) -> bool {
    answer(server.admin_client().get("/readyz")).await.status == 200
}

#[tokio::test]
async fn writes_go_on_through_an_upgrade_and_a_downgrade() {
    let (owner, serving) = migrated_by_the_previous_release().await;
    let busy = previous_on(&serving, &[]).await;
    let quiet = previous_on(&serving, &[]).await;
    let holders = Holders::start(busy.client(), 8);
    holders.until_applied(100).await;

    // The schema first. What serves already goes on, busy or quiet.
    migrate(&owner);
    holders.until_applied(200).await;
    assert!(is_ready(&busy).await && is_ready(&quiet).await);
    assert_eq!(answer(quiet.client().put("quiet", 5, "v")).await.status, 201);

    // Then the binaries, one after the other, both on the same data.
    let new = this_one_on(&serving, &[]).await;
    holders.turn_to(new.client());
    holders.until_applied(200).await;
    assert_eq!(answer(new.client().put("quiet", 4, "stale")).await.status, 409);
    assert_eq!(answer(new.client().put("quiet", 6, "v")).await.status, 200);
    assert_eq!(answer(quiet.client().put("quiet", 5, "stale")).await.status, 409);
    drop((busy, quiet));
    holders.until_applied(100).await;

    // And back again: the previous release starts on the newer schema. Its `migrate` is not run.
    let back = previous_on(&serving, &[]).await;
    holders.turn_to(back.client());
    drop(new);
    holders.until_applied(200).await;
    assert_eq!(answer(back.client().put("quiet", 5, "stale")).await.status, 409);
    let tally = holders.finish().await;
    assert_eq!((tally.not_applied, tally.unknown), (0, 0), "{tally:?}");
}

async fn acquire(client: &Client) -> i64 {
    let request = client.request("POST".parse().expect("a method"), "/v1/locks/rolling");
    let body = json!({ "ttl_ms": 600_000, "wait_ms": 600_000 });
    let granted =
        answer(request.header("content-type", "application/json").body(body.to_string())).await;
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].as_i64().expect("a token")
}

async fn release(client: &Client, token: i64) -> u16 {
    let request = client.request("DELETE".parse().expect("a method"), "/v1/locks/rolling");
    answer(request.header("X-Fencing-Token", token)).await.status
}

#[tokio::test]
async fn a_lock_granted_before_an_upgrade_is_renewed_and_released_after_it() {
    let flags = ["--authority", "store"];
    let (owner, serving) = migrated_by_the_previous_release().await;
    let old = previous_on(&serving, &flags).await;
    let first = acquire(&old.client()).await;
    migrate(&owner);
    let new = this_one_on(&serving, &flags).await;
    // Both know the holder, and exclude each other.
    let waiting = tokio::spawn({
        let client = new.client();
        async move { acquire(&client).await }
    });
    new.client().until_waiting("rolling", 1).await;
    assert_eq!(release(&old.client(), first).await, 204);
    let second = waiting.await.expect("no panic");
    assert!(second > first);
    let waiting = tokio::spawn({
        let client = old.client();
        async move { acquire(&client).await }
    });
    old.client().until_waiting("rolling", 1).await;
    assert_eq!(release(&new.client(), second).await, 204);
    assert!(waiting.await.expect("no panic") > second);
}

/// A file has one server at a time, so it is stopped for both.
#[tokio::test]
async fn a_file_goes_to_the_next_release_and_back() {
    let store = TestStore::sqlite();
    let old = Fencepost::start_previous(&store.url, &["--migrate"]);
    old.wait_until_ready().await;
    assert_eq!(answer(old.client().put("k", 5, "v")).await.status, 201);
    drop(old);
    let new = Fencepost::start(&store.url, &[]);
    new.wait_until_ready().await;
    assert_eq!(answer(new.client().put("k", 4, "stale")).await.status, 409);
    assert_eq!(answer(new.client().put("k", 6, "v")).await.status, 200);
    drop(new);
    let back = previous_on(&store.url, &[]).await;
    assert_eq!(answer(back.client().put("k", 5, "stale")).await.status, 409);
    assert_eq!(answer(back.client().put("k", 6, "v")).await.status, 200);
}

#[tokio::test]
async fn a_newer_schema_is_served_on_unless_it_needs_a_newer_version() {
    let superuser = postgres::database().await;
    let serving = postgres::to_serve(&superuser).await;
    let server = this_one_on(&serving, &[]).await;
    // As a later version's migration would leave it.
    execute(
        &superuser,
        "INSERT INTO fencepost.migrations (version, description, success, checksum, execution_time)
             VALUES (9000, 'later', true, '\\x00', 1);
         ALTER TABLE fencepost.resources ADD COLUMN later text;
         CREATE TABLE fencepost.later (id int);
         CREATE FUNCTION fencepost.later() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER later AFTER INSERT ON fencepost.locks FOR EACH ROW EXECUTE FUNCTION fencepost.later();
         GRANT UPDATE ON fencepost.rejections, fencepost.later TO fencepost_serve",
    )
    .await;
    assert_eq!(answer(server.client().put("k", 5, "v")).await.status, 201);
    assert!(is_ready(&server).await);
    let restarted = this_one_on(&serving, &[]).await;
    assert_eq!(answer(restarted.client().put("k", 4, "v")).await.status, 409);
    let owner = superuser.replace("postgres@", "fencepost_owner@");
    let migrated = run(&["migrate", "--store", &owner]);
    let said = String::from_utf8_lossy(&migrated.stdout).into_owned();
    assert!(migrated.status.success() && said.contains("newer"), "{said}");

    execute(&superuser, "UPDATE fencepost.compatibility SET oldest = 9000").await;
    let refusal = Fencepost::start_as_it_is(&serving, &[]).refusal().await;
    assert!(refusal.contains("may not serve"), "{refusal}");
    crate::harness::eventually("it is unready", || async { !is_ready(&server).await }).await;
}
