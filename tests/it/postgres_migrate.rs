//! `fencepost migrate`: idempotent, safe to run twice at once, and a good neighbour.

use std::process::{Command, Output};

use crate::harness::{
    fencepost::{BINARY, Fencepost, run},
    postgres::{self, execute, fetch},
};

fn migrate(url: &str) -> Output {
    run(&["migrate", "--one-role", "--store", url])
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

/// Another role of the database holds the lock by which those who migrate would take turns.
#[tokio::test]
async fn several_at_once_succeed_without_taking_turns() {
    use sqlx::{Connection, PgConnection};
    let url = postgres::database().await;
    let mut stranger = PgConnection::connect(&url).await.unwrap();
    let hold = "SELECT pg_advisory_lock(1718511987, 66)";
    sqlx::raw_sql(hold).execute(&mut stranger).await.unwrap();
    let together: Vec<_> = (0..3)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || migrate(&url))
        })
        .collect();
    for output in together {
        let output = output.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    assert_eq!(check(&url).status.code(), Some(0));
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

/// The role that serves could not use what somebody else makes.
#[tokio::test]
async fn a_schema_that_nobody_could_serve_is_not_made() {
    let url = postgres::database().await;
    postgres::apply_roles(&url).await;
    let refused = run(&["migrate", "--store", &url]);
    assert_eq!(refused.status.code(), Some(1));
    let reason = stderr(&refused);
    for advice in ["nothing was changed", "fencepost_serve", "fencepost_owner", "--one-role"] {
        assert!(reason.contains(advice), "{advice}: {reason}");
    }
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'fencepost'";
    assert_eq!(fetch::<i64>(&url, schemas).await, 0);
    // One role for everything, as asked for.
    let migrated = migrate(&url);
    let said = String::from_utf8_lossy(&migrated.stdout).into_owned();
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    assert!(said.contains("applied 0001_resources, 0002_locks"), "{said}");
    assert!(said.contains("no rights were given"), "{said}");
    Fencepost::start_as_it_is(&url, &[]).wait_until_ready().await;
    // An upgrade by the same role needs no flag.
    let again = run(&["migrate", "--store", &url]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to apply"));
}

/// What a superuser added to the owner's schema would be out of the owner's reach.
#[tokio::test]
async fn only_its_owner_migrates_a_schema() {
    let url = postgres::database().await;
    postgres::to_serve(&url).await;
    let behind = "DELETE FROM fencepost.migrations
        WHERE version = (SELECT max(version) FROM fencepost.migrations)";
    execute(&url, behind).await;
    let refused = run(&["migrate", "--store", &url]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("migrate as \"fencepost_owner\""), "{}", stderr(&refused));
}

/// The roles are the whole cluster's, and their rights are those of one database.
#[tokio::test]
async fn the_script_is_wanted_in_each_database() {
    postgres::apply_roles(&postgres::database().await).await;
    let url = postgres::database().await;
    let owner = url.replace("postgres@", "fencepost_owner@");
    let refused = run(&["migrate", "--store", &owner]);
    assert_eq!(refused.status.code(), Some(1));
    let cure = format!("`fencepost roles | psql -d {}`", postgres::name_of(&url));
    assert!(stderr(&refused).contains(&cure), "{}", stderr(&refused));
    postgres::apply_roles(&url).await;
    assert!(run(&["migrate", "--store", &owner]).status.success());
}

/// Every command of the page, with nothing but the binary and psql.
#[tokio::test]
async fn the_binary_alone_is_enough_to_install_it() {
    let cluster = postgres::Postgres::start(&[]).await;
    let superuser = cluster.database("").await;
    let owner = superuser.replace("postgres@", "fencepost_owner@");
    let serve = superuser.replace("postgres@", "fencepost_serve@");
    // The owner alone is not enough.
    let by_hand = format!(
        "CREATE ROLE fencepost_owner LOGIN; GRANT CREATE ON DATABASE {} TO fencepost_owner",
        postgres::name_of(&superuser)
    );
    execute(&superuser, &by_hand).await;
    let refused = run(&["migrate", "--store", &owner]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("there is no role \"fencepost_serve\""),
        "{}",
        stderr(&refused)
    );

    let script = format!(
        "{BINARY} roles | {} -X -q -v ON_ERROR_STOP=1 '{superuser}'",
        postgres::installed("psql").display()
    );
    let made = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().expect("bash");
    assert!(made.status.success(), "{}", stderr(&made));
    let migrated = run(&["migrate", "--store", &owner]);
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    let said = String::from_utf8_lossy(&migrated.stdout).into_owned();
    assert!(said.contains("applied 0001_resources"), "{said}");
    assert!(said.contains("fencepost_serve has the rights"), "{said}");
    let again = run(&["migrate", "--store", &owner]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to apply"));

    let server = Fencepost::start_as_it_is(&serve, &[]);
    server.wait_until_ready().await;
    let created = crate::harness::http::answer(server.client().put("k", 1, "x")).await;
    assert_eq!(created.status, 201);
    let shown = run(&["floor", "raise", "1", "--authority", "none", "--store", &owner]);
    assert!(shown.status.success(), "{}", stderr(&shown));
}
