//! `fencepost migrate`: idempotent, safe to run twice at once, and a good neighbour.

use std::process::Output;

use crate::harness::{
    fencepost::{Fencepost, run},
    postgres::{self, execute, fetch},
};

fn migrate(url: &str) -> Output {
    run(&["migrate", "--store", url])
}

fn check(url: &str) -> Output {
    run(&["migrate", "--check", "--store", url])
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How many migrations a table of sqlx's says were applied.
async fn applied(url: &str, table: &str) -> i64 {
    fetch(url, &format!("SELECT count(*) FROM {table}")).await
}

#[tokio::test]
async fn check_tells_whether_there_is_anything_to_do_and_does_nothing() {
    let url = postgres::database().await;
    for _ in 0..2 {
        let before = check(&url);
        assert_eq!(before.status.code(), Some(1));
        assert!(stderr(&before).contains("run `fencepost migrate`"), "{}", stderr(&before));
    }
    assert_eq!(migrate(&url).status.code(), Some(0));
    let after = check(&url);
    assert_eq!(after.status.code(), Some(0), "{}", stderr(&after));
}

#[tokio::test]
async fn migrating_twice_changes_nothing() {
    let url = postgres::database().await;
    assert_eq!(migrate(&url).status.code(), Some(0));
    let once = applied(&url, "fencepost._sqlx_migrations").await;
    assert_eq!(migrate(&url).status.code(), Some(0));
    assert_eq!(applied(&url, "fencepost._sqlx_migrations").await, once);
}

#[tokio::test]
async fn several_at_once_take_turns() {
    let url = postgres::database().await;
    let together: Vec<_> = (0..4)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || migrate(&url))
        })
        .collect();
    for output in together {
        let output = output.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let once = postgres::database().await;
    migrate(&once);
    let table = "fencepost._sqlx_migrations";
    assert_eq!(applied(&url, table).await, applied(&once, table).await);
}

#[tokio::test]
async fn several_servers_that_migrate_at_once_all_serve() {
    let url = postgres::database().await;
    let servers: Vec<_> = (0..3).map(|_| Fencepost::start(&url, &[])).collect();
    for server in &servers {
        server.wait_until_ready().await;
    }
}

#[tokio::test]
async fn the_applications_own_migrations_are_left_alone() {
    let url = postgres::database().await;
    execute(
        &url,
        "CREATE TABLE public._sqlx_migrations (version bigint PRIMARY KEY, description text,
             installed_on timestamptz DEFAULT now(), success boolean, checksum bytea,
             execution_time bigint);
         INSERT INTO public._sqlx_migrations VALUES (77, 'theirs', now(), false, '\\x00', 0)",
    )
    .await;
    assert_eq!(migrate(&url).status.code(), Some(0));
    assert_eq!(applied(&url, "public._sqlx_migrations").await, 1);
    Fencepost::start_as_it_is(&url, &[]).wait_until_ready().await;
    assert_eq!(check(&url).status.code(), Some(0));
}

/// Even if its role has a search path of its own, or a table of the same name comes first in it.
#[tokio::test]
async fn the_search_path_does_not_matter() {
    let url = postgres::database().await;
    let database = postgres::name_of(&url);
    execute(
        &url,
        &format!(
            "CREATE SCHEMA app; CREATE TABLE app.resources (id int);
             ALTER DATABASE {database} SET search_path = app"
        ),
    )
    .await;
    assert_eq!(migrate(&url).status.code(), Some(0));
    let server = Fencepost::start_as_it_is(&url, &[]);
    server.wait_until_ready().await;
    let created = crate::harness::http::answer(server.client().put("k", 1, "x")).await;
    assert_eq!(created.status, 201);
}

#[tokio::test]
async fn a_database_out_of_reach_is_not_a_failed_migration() {
    let port = crate::harness::free_port();
    let output = migrate(&format!("postgres://postgres@127.0.0.1:{port}/nowhere"));
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
}
