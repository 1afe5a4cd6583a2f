//! `fencepost check`: it finds what is wrong, says what to do, and changes nothing.

use std::{collections::BTreeMap, fs, process::Output};

use fencepost::finding::Subject;
use serde_json::Value;

use crate::harness::{
    etcd::Etcd,
    eventually,
    fencepost::{BINARY, Fencepost, run, run_discreetly, run_with},
    free_port,
    http::{answer, send},
    pgbouncer::Pgbouncer,
    postgres::{self, Postgres},
    store::{TestStore, on_each_store},
};

/// What was found, by group and name.
struct Found {
    code: Option<i32>,
    checks: BTreeMap<String, Value>,
}

impl Found {
    fn of(output: Output) -> Self {
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr, "", "{stdout}");
        let document: Value = serde_json::from_str(&stdout).expect("one document");
        let mut checks = BTreeMap::new();
        for group in document["groups"].as_array().unwrap() {
            for check in group["checks"].as_array().unwrap() {
                let place = [&group["name"], &check["name"]].map(|name| name.as_str().unwrap());
                let worried = check["status"] != "ok";
                assert_eq!(check["hint"].is_string(), worried, "a hint where it helps: {check}");
                assert!(check["docs"].is_string() && check["detail"].is_string(), "{check}");
                checks.insert(place.join(": "), check.clone());
            }
        }
        let found = Self { code: output.status.code(), checks };
        assert_eq!(document["ok"], found.code == Some(0));
        found
    }

    fn status(&self, check: &str) -> &str {
        self.check(check)["status"].as_str().unwrap()
    }

    fn detail(&self, check: &str) -> &str {
        self.check(check)["detail"].as_str().unwrap()
    }

    fn check(&self, check: &str) -> &Value {
        self.checks.get(check).unwrap_or_else(|| panic!("no {check} in {:#?}", self.checks))
    }

    fn advises(&self, check: &str, says: &str, hint: &str) {
        let found = self.check(check);
        let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
        assert!(text("detail").contains(says), "{found}");
        assert!(text("hint").contains(hint), "{found}");
    }

    fn never_advises_to_migrate(&self) {
        for check in self.checks.values() {
            assert!(!check["hint"].as_str().unwrap_or_default().contains("migrate"), "{check}");
        }
    }

    /// Those that are not as they should be.
    fn worries(&self) -> Vec<(&str, &str)> {
        let status = |check: &str| self.status(check) != "ok";
        let worries = self.checks.keys().filter(|check| status(check));
        worries.map(|check| (check.as_str(), self.status(check))).collect()
    }
}

fn look_at(store: &str, flags: &[&str]) -> Found {
    Found::of(run_discreetly(&[&["check", "--store", store], flags].concat()))
}

const LOCK_TABLE: [&str; 2] = ["--authority", "store"];

/// A Postgres that keeps what it is told, with the roles of migrations/roles.sql: the addresses for a
/// superuser and for the one that serves.
async fn production() -> (Postgres, String, String) {
    let postgres = Postgres::start(&["synchronous_commit=on"]).await;
    let url = postgres.database("").await;
    let serving = postgres::to_serve(&url).await;
    (postgres, url, serving)
}

#[tokio::test]
async fn rights_on_the_record_of_rejections_are_needed_where_it_is_kept() {
    let (_postgres, superuser, serving) = production().await;
    let revoke = "REVOKE ALL ON fencepost.rejections FROM fencepost_serve";
    postgres::execute(&superuser, revoke).await;
    let found = look_at(&serving, &LOCK_TABLE);
    assert_eq!((found.worries(), found.code), (vec![("permissions: enough", "failed")], Some(1)));
    let lacks = found.detail("permissions: enough");
    assert!(lacks.contains("INSERT on fencepost.rejections"), "{lacks}");
    let found = look_at(&serving, &[&LOCK_TABLE[..], &["--rejections-keep", "0"]].concat());
    assert_eq!((found.worries(), found.code), (vec![], Some(0)));
}

#[tokio::test]
async fn a_postgres_as_it_should_be() {
    let (_postgres, superuser, serving) = production().await;
    let found = look_at(&serving, &LOCK_TABLE);
    assert_eq!((found.worries(), found.code), (vec![], Some(0)));
    let groups: Vec<&str> =
        found.checks.keys().map(|check| check.split(": ").next().unwrap()).collect();
    for group in
        ["settings", "store", "schema", "durability", "permissions", "pooler", "authority", "clock"]
    {
        assert!(groups.contains(&group), "{group}");
    }
    // A default that loses answered writes is overridden for ours, and an operator is told.
    let off = "ALTER ROLE fencepost_serve SET synchronous_commit = off";
    postgres::execute(&superuser, off).await;
    let found = look_at(&serving, &LOCK_TABLE);
    assert_eq!(found.worries(), [("durability: commit", "warning")]);
    let commit = found.detail("durability: commit");
    assert!(commit.contains("is on for us") && commit.contains("default is off"), "{commit}");

    let found = look_at(&superuser, &LOCK_TABLE);
    assert_eq!(found.worries(), [("permissions: no more", "warning")]);
    assert_eq!(found.code, Some(0), "a warning is not a failure");
}

#[tokio::test]
async fn it_only_reads() {
    let (_postgres, superuser, serving) = production().await;
    // Whoever tries to write fails, and would say so.
    postgres::execute(
        &superuser,
        "ALTER ROLE fencepost_serve SET default_transaction_read_only = on",
    )
    .await;
    let found = look_at(&serving, &LOCK_TABLE);
    assert_eq!(found.worries(), [("store: primary", "failed")]);
    assert_eq!(found.code, Some(1));
}

#[tokio::test]
async fn rights_that_are_missing_are_named() {
    let (_postgres, superuser, serving) = production().await;
    for (revoke, check_name, named) in [
        (
            "REVOKE UPDATE ON fencepost.resources FROM fencepost_serve",
            "permissions: enough",
            "UPDATE on fencepost.resources",
        ),
        (
            "REVOKE SELECT ON SEQUENCE fencepost.tokens FROM fencepost_serve",
            "permissions: enough",
            "SELECT on fencepost.tokens",
        ),
        (
            "REVOKE EXECUTE ON FUNCTION fencepost.sweep_locks FROM fencepost_serve",
            "permissions: enough",
            "EXECUTE on fencepost.sweep_locks()",
        ),
        (
            "REVOKE USAGE ON SCHEMA fencepost FROM fencepost_serve",
            "schema: version",
            "permission denied for schema fencepost",
        ),
        ("ALTER ROLE fencepost_serve NOLOGIN", "store: reachable", "not permitted to log in"),
    ] {
        postgres::execute(&superuser, revoke).await;
        let found = look_at(&serving, &LOCK_TABLE);
        assert_eq!((found.status(check_name), found.code), ("failed", Some(1)), "{revoke}");
        assert!(found.detail(check_name).contains(named), "{}", found.detail(check_name));
    }
}

#[tokio::test]
async fn guards_that_are_off_are_named() {
    let store = TestStore::postgres().await;
    store.open().await;
    assert_eq!(look_at(&store.url, &[]).status("schema: guards"), "ok");
    for (undo, named) in [
        ("ALTER TABLE resources DISABLE TRIGGER marks_never_fall", "trigger"),
        (
            "ALTER TABLE resources ENABLE ALWAYS TRIGGER marks_never_fall;
             ALTER TABLE resources SET UNLOGGED",
            "not logged",
        ),
    ] {
        store.execute(undo).await.unwrap();
        let found = look_at(&store.url, &[]);
        assert_eq!((found.status("schema: guards"), found.code), ("failed", Some(1)));
        assert!(
            found.detail("schema: guards").contains(named),
            "{}",
            found.detail("schema: guards")
        );
    }
}

#[tokio::test]
async fn a_postgres_that_does_not_sync_is_not_safe() {
    // The shared one: tests would be slow otherwise.
    let store = TestStore::postgres().await;
    store.open().await;
    let found = look_at(&store.url, &LOCK_TABLE);
    assert_eq!((found.status("durability: sync to disk"), found.code), ("failed", Some(1)));
}

#[tokio::test]
async fn a_schema_that_is_not_this_versions() {
    let store = TestStore::postgres().await;
    let found = look_at(&store.url, &LOCK_TABLE);
    assert_eq!((found.status("schema: version"), found.code), ("failed", Some(1)));
    assert_eq!(found.status("authority: reachable"), "warning", "there is nothing to look at");
    let found = look_at(&store.url, &["--migrate"]);
    assert_eq!(found.status("schema: version"), "warning");
    // And it has not been migrated by that.
    assert_eq!(look_at(&store.url, &[]).status("schema: version"), "failed");

    store.open().await;
    assert_eq!(look_at(&store.url, &[]).status("schema: version"), "ok");
    store.execute("UPDATE _sqlx_migrations SET checksum = '' WHERE version = 2").await.unwrap();
    let found = look_at(&store.url, &[]);
    assert_eq!(found.status("schema: version"), "failed", "it is no migration of ours");
    assert!(!found.detail("schema: version").contains("newer"));
    store
        .execute("UPDATE _sqlx_migrations SET version = 20990101000000 WHERE version = 1")
        .await
        .unwrap();
    let found = look_at(&store.url, &[]);
    assert_eq!(found.status("schema: version"), "failed");
    assert!(found.detail("schema: version").contains("newer"));
}

#[tokio::test]
async fn a_pooler_is_noticed() {
    let postgres = postgres::shared().await;
    let store = TestStore::postgres().await;
    store.open().await;
    let pgbouncer = Pgbouncer::before(postgres, 2, "").await;
    let pooled = pgbouncer.url(&store.url);
    let found = look_at(&pooled, &LOCK_TABLE);
    assert_eq!(found.status("pooler: direct"), "warning");
    assert_eq!(found.status("durability: commit"), "ok");
    assert_eq!(found.status("schema: version"), "ok");
    assert_eq!(found.status("authority: tokens"), "ok");
    assert_eq!(look_at(&pooled, &["--migrate"]).status("pooler: direct"), "failed");
    assert_eq!(look_at(&store.url, &LOCK_TABLE).status("pooler: direct"), "ok");
}

#[tokio::test]
async fn more_connections_than_postgres_has_are_noticed() {
    let store = TestStore::postgres().await;
    let found = look_at(&store.url, &["--store-connections", "1000"]);
    assert_eq!(found.status("store: connections"), "failed");
}

#[tokio::test]
async fn a_store_that_is_away_is_told_apart_from_one_that_is_wrong() {
    let away = format!("postgres://app:s3cret@127.0.0.1:{}/app", free_port());
    let found = look_at(&away, &LOCK_TABLE);
    assert_eq!((found.status("store: reachable"), found.code), ("unreachable", Some(69)));
    found.advises("store: reachable", "refused", "start Postgres");
    found.never_advises_to_migrate();
    let shown = format!("{:?}", found.checks);
    assert!(!shown.contains("s3cret"), "{shown}");
    assert_eq!(found.status("settings: password"), "ok");

    let no_such_database = postgres::shared().await.url("no_such_database");
    let found = look_at(&no_such_database, &LOCK_TABLE);
    assert_eq!((found.status("store: reachable"), found.code), ("failed", Some(1)));
    found.advises("store: reachable", "does not exist", "create it");
    found.never_advises_to_migrate();
}

#[tokio::test]
async fn each_cause_of_an_outage_has_its_own_advice() {
    let unknown = "postgres://app@no-such-host.invalid/app";
    let found = look_at(unknown, &LOCK_TABLE);
    assert_eq!(found.code, Some(69));
    found.advises("store: reachable", "cannot be resolved", "DNS");
    found.never_advises_to_migrate();

    let postgres = Postgres::start(&[]).await;
    let superuser = postgres.database("").await;
    let rules = "local all all trust\nhost all app all scram-sha-256\nhost all all all trust\n";
    fs::write(postgres.data().join("pg_hba.conf"), rules).unwrap();
    postgres::execute(&superuser, "CREATE ROLE app LOGIN PASSWORD 'right'").await;
    postgres::execute(&superuser, "SELECT pg_reload_conf()").await;
    let app = superuser.replace("postgres@", "app:wrong@");
    eventually("the rules are in force", async || {
        look_at(&app, &LOCK_TABLE).detail("store: reachable").contains("password")
    })
    .await;
    let found = look_at(&app, &LOCK_TABLE);
    assert_eq!(found.code, Some(1));
    found.advises("store: reachable", "does not accept the password", "--store-password-file");
    found.never_advises_to_migrate();
    assert!(!format!("{:?}", found.checks).contains("wrong"));

    let no_such_role = superuser.replace("postgres@", "stranger@");
    let found = look_at(&no_such_role, &LOCK_TABLE);
    found.advises("store: reachable", "does not let this role in", "pg_hba.conf");
    found.never_advises_to_migrate();

    let app = superuser.replace("postgres@", "app:right@");
    let found = look_at(&app, &LOCK_TABLE);
    assert_eq!(found.code, Some(1));
    found.advises("schema: version", "has not been migrated", "fencepost migrate");

    postgres::to_serve(&superuser).await;
    let found = look_at(&app, &LOCK_TABLE);
    found.advises("schema: version", "lacks rights", "fencepost roles");
    found.never_advises_to_migrate();

    let one = postgres::name_of(&superuser);
    let revoke = format!("REVOKE CONNECT ON DATABASE {one} FROM PUBLIC");
    postgres::execute(&superuser, &revoke).await;
    let found = look_at(&app, &LOCK_TABLE);
    found.advises("store: reachable", "may not connect", "GRANT CONNECT");
    found.never_advises_to_migrate();

    let no_tls = superuser.replace("sslmode=disable", "sslmode=require");
    look_at(&no_tls, &LOCK_TABLE).advises("store: reachable", "no TLS", "ssl = on");
}

#[tokio::test]
async fn without_a_store_nothing_is_found_good() {
    let directory = tempfile::tempdir().unwrap();
    let here = |command: &mut std::process::Command| {
        command.current_dir(directory.path());
    };
    let found = Found::of(run_with(&["check"], here));
    assert_eq!((found.status("store: reachable"), found.code), ("failed", Some(1)));
    found.advises("store: reachable", "no store was named", "--url");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "it has made no file");
}

#[tokio::test]
async fn a_running_server_examines_itself() {
    let (_postgres, superuser, serving) = production().await;
    let server = Fencepost::start_as_it_is(&serving, &LOCK_TABLE);
    server.wait_until_ready().await;
    let url = format!("http://{}", server.admin);
    let ask = || run(&["check", "--url", &url]);
    let output = ask();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["settings"]["of"].as_str().unwrap().contains(&url), "{document}");
    let shown = document["settings"]["store"].as_str().unwrap();
    assert!(shown.starts_with("postgres://fencepost_serve"), "{shown}");
    assert_eq!(document["settings"]["authority"], "store");
    let found = Found::of(output);
    assert_eq!((found.worries(), found.code), (vec![], Some(0)));

    // What it finds is what is true now.
    let off = "ALTER ROLE fencepost_serve SET synchronous_commit = off";
    postgres::execute(&superuser, off).await;
    assert_eq!(Found::of(ask()).worries(), [("durability: commit", "warning")]);
    let table = run(&["check", "--url", &url, "-o", "table"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("settings of the running server at http://"), "{table}");

    // The public address does not say, and another kind of server is none.
    let public = run(&["check", "--url", &format!("http://{}", server.address)]);
    assert_eq!(public.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&public.stderr).contains("--admin-listen"));
    let nothing = run(&["check", "--url", &format!("http://127.0.0.1:{}", free_port())]);
    assert_eq!(nothing.status.code(), Some(69));
    // Pages of other sites cannot have it.
    let strange = send(&server.admin, "GET", "/v1/check", &[], "").await;
    assert_eq!(strange.status, 400);
}

#[tokio::test]
async fn a_server_is_examined_once_at_a_time_also_while_its_store_is_down() {
    let mut postgres = Postgres::start(&[]).await;
    let url = postgres.database("").await;
    let server = Fencepost::start(&url, &["--authority", "store", "--migrate"]);
    server.wait_until_ready().await;
    postgres.stop("immediate").await;
    let ask = || {
        let url = format!("http://{}", server.admin);
        tokio::task::spawn_blocking(move || run(&["check", "--url", &url]))
    };
    let asked: Vec<_> = (0..8).map(|_| ask()).collect();
    for output in asked {
        let output = output.await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{stderr}");
        if stderr.is_empty() {
            let found = Found::of(output);
            found.advises("store: reachable", "refused", "start Postgres");
            found.never_advises_to_migrate();
        }
    }
}

#[tokio::test]
async fn a_file_is_looked_at_and_left_as_it_is() {
    let store = TestStore::sqlite();
    let found = look_at(&store.url, &LOCK_TABLE);
    assert_eq!((found.status("store: reachable"), found.code), ("warning", Some(0)));
    let path = store.url.strip_prefix("sqlite:").unwrap();
    assert!(!fs::exists(path).unwrap(), "it has not been made by that");

    // By a process that has ended: nobody else writes to the file any more.
    assert!(run(&["migrate", "--store", &store.url]).status.success());
    let before = fs::read(path).unwrap();
    let found = look_at(&store.url, &LOCK_TABLE);
    assert_eq!((found.worries(), found.code), (vec![], Some(0)));
    assert!(found.detail("store: version").starts_with("SQLite 3."));
    assert_eq!(found.status("clock: agreement"), "ok");
    assert_eq!(fs::read(path).unwrap(), before);
    store.execute("PRAGMA journal_mode = DELETE").await.unwrap();
    let found = look_at(&store.url, &LOCK_TABLE);
    assert_eq!(found.worries(), [("durability: sync to disk", "warning")]);

    let other = format!("{}-other", store.url);
    let text = "this is not a database, however long it may be";
    fs::write(other.strip_prefix("sqlite:").unwrap(), text).unwrap();
    let found = look_at(&other, &LOCK_TABLE);
    assert_eq!(found.code, Some(1), "{:?}", found.worries());
}

on_each_store! {
    async fn it_may_look_at_what_is_being_served(store: TestStore) {
        let server = Fencepost::on(&store).await;
        assert_eq!(answer(server.client().put("k", 5, "v")).await.status, 201);
        let found = look_at(&store.url, &LOCK_TABLE);
        assert_eq!(found.status("store: reachable"), "ok");
        assert_eq!(found.status("authority: tokens"), "ok");
        assert_eq!(answer(server.client().put("k", 6, "v")).await.status, 200);
    }
}

#[tokio::test]
async fn an_etcd_that_is_away_is_told_apart_from_the_rest() {
    let store = TestStore::sqlite();
    store.open().await;
    let away = format!("etcd://127.0.0.1:{}", free_port());
    let found = look_at(&store.url, &["--authority", &away]);
    assert_eq!(found.worries(), [("authority: reachable", "unreachable")]);
    assert_eq!(found.code, Some(69));
}

#[tokio::test]
async fn an_etcd_is_held_against_what_is_remembered_of_it() {
    let store = TestStore::sqlite();
    store.open().await;
    let etcd = Etcd::start(&[]).await;
    let dead = free_port();
    let authority = format!("{},127.0.0.1:{dead}", etcd.url());
    let flags = ["--authority", &authority];

    let found = look_at(&store.url, &flags);
    assert_eq!((found.status("authority: reachable"), found.code), ("ok", Some(0)));
    assert_eq!(found.status("authority: members"), "warning");
    assert!(found.detail("authority: members").contains(&dead.to_string()));
    assert!(found.detail("authority: version").contains(&etcd.version()));
    assert_eq!(found.status("authority: memory"), "ok");
    assert!(!found.checks.contains_key("authority: epoch"), "there is none yet");
    let detail = found.detail("authority: memory").to_owned();
    let cluster = detail.split(' ').nth(1).unwrap();

    // As it was seen, then less than it was seen, then another one.
    let revision = etcd.revision();
    let insert = |cluster: &str, revision: i64| {
        format!("INSERT INTO authority VALUES (1, 0, {revision}, '{cluster}', 1, NULL)")
    };
    store.execute(&insert(cluster, revision)).await.unwrap();
    let found = look_at(&store.url, &flags);
    assert_eq!(found.status("authority: memory"), "ok", "{}", found.detail("authority: memory"));
    assert_eq!(found.status("authority: epoch"), "ok");

    store.execute(&format!("UPDATE authority SET revision = {}", revision + 20)).await.unwrap();
    let found = look_at(&store.url, &flags);
    assert_eq!((found.status("authority: memory"), found.code), ("warning", Some(0)));
    assert!(found.detail("authority: memory").contains(&(revision + 20).to_string()));

    let owner = |found: &Found| found.status("authority: owner").to_owned();
    assert_eq!(owner(&found), "ok");
    let moved = "UPDATE owning_authority SET identity = 'other';
                 UPDATE authority SET epoch = 3, revision = 1, cluster = 'other',
                 moved_at = unixepoch()";
    store.execute(moved).await.unwrap();
    let found = look_at(&store.url, &flags);
    assert!(found.detail("authority: memory").contains("other"));
    assert_eq!((owner(&found).as_str(), found.code), ("failed", Some(1)));
    assert!(found.detail("authority: owner").contains("belongs to etcd cluster other"));
    assert_eq!(found.status("authority: epoch"), "warning");
    assert!(found.detail("authority: epoch").starts_with("3, since 2"));
    store.execute("UPDATE authority SET moved_at = unixepoch() - 30 * 86400").await.unwrap();
    assert_eq!(look_at(&store.url, &flags).status("authority: epoch"), "ok");
}

#[test]
fn every_page_that_it_names_is_there() {
    for subject in Subject::ALL {
        let link = subject.place().docs;
        let (page, anchor) = link.split_once('#').unwrap_or((link, ""));
        let text = fs::read_to_string(page).unwrap_or_else(|_| panic!("{page} of {subject:?}"));
        let headings = text.lines().filter_map(|line| {
            let heading = line.trim_start_matches('#');
            (heading.len() < line.len()).then(|| heading.trim().to_lowercase().replace(' ', "-"))
        });
        assert!(anchor.is_empty() || headings.into_iter().any(|is| is == anchor), "{link}");
    }
}

#[test]
fn it_takes_its_settings_where_serve_does() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fencepost.toml");
    let store = directory.path().join("by-file.db");
    fs::write(&file, format!("store = \"sqlite:{}\"\nmax-body = \"2MiB\"\n", store.display()))
        .unwrap();
    let found = Found::of(run(&["check", "--config", file.to_str().unwrap()]));
    assert!(found.detail("settings: readable").contains("by-file.db"));
    // What `serve` would refuse is refused here, in the same way.
    let refused = run(&["check", "--authority", "none", "--trust", "bounded"]);
    assert_eq!(refused.status.code(), Some(64));
}

#[test]
fn people_get_signs_and_colours_and_a_pipe_gets_neither() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}/x.db", directory.path().display());
    let plain = run(&["check", "--store", &store, "--authority", "none", "-o", "table"]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("  ✓ readable") && plain.contains("  ! trust"), "{plain}");
    assert!(plain.contains("docs/check.md#trust") && !plain.contains('\x1b'), "{plain}");

    let on_a_terminal = std::process::Command::new("script")
        .args(["-qec", &format!("{BINARY} check --store {store} --authority none"), "/dev/null"])
        .env_remove("NO_COLOR")
        .output()
        .expect("script runs");
    let coloured = String::from_utf8_lossy(&on_a_terminal.stdout).into_owned();
    assert!(coloured.contains("\x1b[32m✓\x1b[0m"), "{coloured}");
    assert!(coloured.contains("\x1b[33m!\x1b[0m"), "{coloured}");
}
