//! A Postgres that keeps to itself what a failover is noticed by, as managed services do.

use serde_json::Value;

use crate::harness::{
    fencepost::{Fencepost, run_discreetly},
    http::answer,
    pgbouncer::Pgbouncer,
    postgres::{self, execute, fetch, try_execute},
};

const SYSTEM: &str = "pg_control_system()";
const LSN: &str = "pg_current_wal_lsn()";
const FILE: &str = "pg_walfile_name(pg_lsn)";

fn deny(function: &str) -> String {
    format!("REVOKE EXECUTE ON FUNCTION pg_catalog.{function} FROM PUBLIC")
}

/// Puts a function in the place of one of Postgres's own, in this database: it raises an error, as Aurora's does.
fn raise(function: &str, returns: &str, code: &str) -> String {
    let name = function.split('(').next().expect("a name");
    format!(
        "SET allow_system_table_mods = on;
         ALTER FUNCTION pg_catalog.{function} RENAME TO {name}_hidden;
         CREATE FUNCTION pg_catalog.{function} RETURNS {returns} LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'not on this service' USING ERRCODE = '{code}'; END $$"
    )
}

fn give_back(function: &str) -> String {
    let (name, arguments) = function.split_once('(').expect("a name and its arguments");
    format!(
        "SET allow_system_table_mods = on; DROP FUNCTION pg_catalog.{function};
         ALTER FUNCTION pg_catalog.{name}_hidden({arguments} RENAME TO {name}"
    )
}

async fn serve(url: &str) -> Fencepost {
    let server = Fencepost::start_as_it_is(url, &["--authority", "store"]);
    server.wait_until_ready().await;
    server
}

/// What `check` says of failovers, and how.
fn failover(url: &str) -> (String, String) {
    let checked = run_discreetly(&["check", "--authority", "store", "--store", url]);
    let document: Value = serde_json::from_slice(&checked.stdout).expect("one document");
    let groups = document["groups"].as_array().expect("groups");
    let checks = groups.iter().flat_map(|group| group["checks"].as_array().expect("checks"));
    let found = checks.into_iter().find(|check| check["name"] == "failover").expect("failover");
    let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
    (text("status"), text("detail"))
}

async fn floor(url: &str) -> i64 {
    fetch(url, "SELECT token FROM fencepost.floor").await
}

#[tokio::test]
async fn whatever_is_denied_locks_and_writes_work_and_check_tells() {
    let untold = "tells neither";
    let no_timeline = "does not tell its timeline";
    let no_cluster = "does not tell its cluster";
    for (denials, told) in [
        (vec![deny(SYSTEM)], no_cluster),
        (vec![deny(LSN)], no_timeline),
        (vec![deny(FILE)], no_timeline),
        (vec![deny(SYSTEM), deny(LSN)], untold),
        // As reported of Aurora: a state, a feature, an internal error.
        (vec![raise(LSN, "pg_lsn", "55000")], no_timeline),
        (vec![raise(LSN, "pg_lsn", "0A000")], no_timeline),
        (vec![raise(LSN, "pg_lsn", "XX000")], no_timeline),
        (vec![raise(LSN, "pg_lsn", "P0001"), deny("pg_is_in_recovery()")], no_timeline),
    ] {
        let superuser = postgres::database().await;
        for denial in &denials {
            execute(&superuser, denial).await;
        }
        let serving = postgres::to_serve(&superuser).await;
        let server = serve(&serving).await;
        let token = server.client().lock("key", std::time::Duration::from_secs(30)).await;
        assert_eq!(answer(server.client().put("key", token, "value")).await.status, 201);
        let (status, detail) = failover(&serving);
        assert_eq!(status, "warning", "{denials:?}");
        assert!(detail.contains(told), "{denials:?}: {detail}");
        // A second one does not take it for another server, nor is anybody fenced off.
        let second = serve(&serving).await;
        assert_eq!(answer(second.client().put("key", token, "again")).await.status, 200);
        assert_eq!(floor(&superuser).await, 0, "{denials:?}");
    }
    let superuser = postgres::database().await;
    let (status, detail) = failover(&postgres::to_serve(&superuser).await);
    assert_eq!(status, "ok", "{detail}");
}

/// An error that is no denial: nothing is known about failovers then, and `check` says that.
#[tokio::test]
async fn a_server_that_cannot_tell_at_the_moment_is_reported() {
    for code in ["57014", "58000"] {
        let superuser = postgres::database().await;
        let serving = postgres::to_serve(&superuser).await;
        execute(&superuser, &raise(LSN, "pg_lsn", code)).await;
        let (status, detail) = failover(&serving);
        assert_eq!(status, "failed", "{code}: {detail}");
        assert!(detail.contains("could not be examined"), "{detail}");
        assert!(detail.contains("not on this service") && !detail.contains("at line"), "{detail}");
    }
}

#[tokio::test]
async fn what_is_denied_is_no_hindrance_behind_a_pooler() {
    let superuser = postgres::database().await;
    execute(&superuser, &raise(LSN, "pg_lsn", "55000")).await;
    let serving = postgres::to_serve(&superuser).await;
    let pgbouncer = Pgbouncer::before(postgres::shared().await, 4, "").await;
    let server = serve(&pgbouncer.url(&serving)).await;
    assert_eq!(answer(server.client().put("key", 1, "value")).await.status, 422);
    let token = server.client().lock("key", std::time::Duration::from_secs(30)).await;
    assert_eq!(answer(server.client().put("key", token, "value")).await.status, 201);
}

/// Aurora tells its timeline once `wal_level` is `logical`, and keeps it to itself again when it is not.
#[tokio::test]
async fn a_server_that_begins_to_tell_more_is_not_another_one() {
    let superuser = postgres::database().await;
    execute(&superuser, &raise(LSN, "pg_lsn", "55000")).await;
    let serving = postgres::to_serve(&superuser).await;
    let server = serve(&serving).await;
    let token = server.client().lock("key", std::time::Duration::from_mins(5)).await;
    assert_eq!(answer(server.client().put("key", token, "value")).await.status, 201);

    execute(&superuser, &give_back(LSN)).await;
    let second = serve(&serving).await;
    for server in [&server, &second] {
        assert_eq!(answer(server.client().put("key", token, "told")).await.status, 200);
    }
    let recorded = "SELECT timeline FROM fencepost.lineage";
    assert_eq!(fetch::<Option<String>>(&superuser, recorded).await.as_deref(), Some("00000001"));

    execute(&superuser, &raise(LSN, "pg_lsn", "55000").replace("_hidden", "_gone")).await;
    let third = serve(&serving).await;
    for server in [&server, &second, &third] {
        assert_eq!(answer(server.client().put("key", token, "untold")).await.status, 200);
    }
    assert_eq!(floor(&superuser).await, 0);
}

/// What is told is compared, also where the rest is not.
#[tokio::test]
async fn another_timeline_or_cluster_is_noticed_by_what_is_told() {
    for (denied, changed) in [(SYSTEM, "timeline = '00000009'"), (LSN, "system = '7'")] {
        let superuser = postgres::database().await;
        execute(&superuser, &deny(denied)).await;
        let serving = postgres::to_serve(&superuser).await;
        let server = serve(&serving).await;
        let token = server.client().lock("key", std::time::Duration::from_secs(30)).await;
        drop(server);
        let elsewhere = format!("UPDATE fencepost.lineage SET {changed}");
        execute(&superuser, &elsewhere).await;
        let server = serve(&serving).await;
        let refused = answer(server.client().put("key", token, "zombie")).await;
        assert_eq!((refused.status, refused.problem().as_str()), (409, "stale-token"));
        assert!(floor(&superuser).await > token, "{denied}");
    }
}

/// A shortage is not an answer: to take it for one would make this server look like another.
#[tokio::test]
async fn a_shortage_is_no_answer() {
    let superuser = postgres::database().await;
    postgres::to_serve(&superuser).await;
    let before: String = fetch(&superuser, "SELECT incarnation FROM fencepost.identify()").await;
    for code in ["53200", "58030", "57P03"] {
        execute(&superuser, &raise(LSN, "pg_lsn", code)).await;
        let asked = try_execute(&superuser, "SELECT fencepost.identify()").await;
        let code_of =
            |error: &sqlx::Error| error.as_database_error()?.code().map(|it| it.to_string());
        assert_eq!(code_of(&asked.expect_err("an error")).as_deref(), Some(code));
        execute(&superuser, &give_back(LSN)).await;
    }
    let after: String = fetch(&superuser, "SELECT incarnation FROM fencepost.identify()").await;
    assert_eq!(before, after);
}

/// The previous release compares it as a whole.
#[tokio::test]
async fn the_name_of_a_server_that_tells_everything_is_as_before() {
    let superuser = postgres::database().await;
    postgres::to_serve(&superuser).await;
    let as_before = "SELECT fencepost.lineage_here() = (SELECT system_identifier FROM pg_control_system()) || '/'
                         || left(pg_walfile_name(pg_current_wal_lsn()), 8)";
    assert!(fetch::<bool>(&superuser, as_before).await);
    execute(&superuser, &deny(LSN)).await;
    let owner = superuser.replace("postgres@", "fencepost_owner@");
    assert_eq!(fetch::<String>(&owner, "SELECT fencepost.lineage_here()").await, "unknown");
}
