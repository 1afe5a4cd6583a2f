//! A database that must not be trusted with marks is refused at the start, with a reason that says
//! what to do about it.

use fencepost::store::postgres::{objects::OBJECTS, rights::OWN};

use crate::harness::{
    fencepost::{Fencepost, run},
    http::answer,
    pgbouncer::Pgbouncer,
    postgres::{self, Postgres, execute, fetch, fetch_all, name_of},
};

/// What `serve` says before it gives up.
async fn refusal(url: &str) -> String {
    Fencepost::start_as_it_is(url, &[]).refusal().await
}

async fn migrated_database() -> String {
    let url = postgres::database().await;
    let output = run(&["migrate", "--store", &url]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    url
}

fn assert_says(reason: &str, parts: &[&str]) {
    for part in parts {
        assert!(reason.contains(part), "{part:?} is not in: {reason}");
    }
}

#[tokio::test]
async fn a_database_without_the_schema_is_refused() {
    let url = postgres::database().await;
    assert_says(&refusal(&url).await, &["schema", "`fencepost migrate`", "--migrate"]);
}

#[tokio::test]
async fn a_schema_from_the_future_is_refused_even_if_asked_to_migrate() {
    let url = migrated_database().await;
    execute(
        &url,
        "INSERT INTO fencepost._sqlx_migrations
             (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', true, '\\x00', 0)",
    )
    .await;
    assert_says(&refusal(&url).await, &["newer fencepost", "use that version"]);
    let migrating = Fencepost::start(&url, &[]).refusal().await;
    assert_says(&migrating, &["newer fencepost", "use that version"]);
}

#[tokio::test]
async fn unlogged_tables_are_refused() {
    for table in ["fencepost.resources", "fencepost.floor"] {
        let url = migrated_database().await;
        execute(&url, &format!("ALTER TABLE {table} SET UNLOGGED")).await;
        let cure = format!("ALTER TABLE {table} SET LOGGED");
        assert_says(&refusal(&url).await, &["not logged", &cure]);
        execute(&url, &cure).await;
        Fencepost::start_as_it_is(&url, &[]).wait_until_ready().await;
    }
}

/// `serve` and `check` refuse it, both for the same reason.
async fn assert_refused(url: &str, parts: &[&str]) {
    assert_says(&refusal(url).await, parts);
    let checked = run(&["check", "--authority", "none", "--store", url]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert_says(&said.split_whitespace().collect::<Vec<_>>().join(" "), parts);
}

/// If a migration changes them, `objects.txt` is what this test prints.
#[tokio::test]
async fn the_list_of_objects_is_that_of_the_migrations() {
    let url = migrated_database().await;
    let mut listed: Vec<String> =
        fetch_all(&url, &format!("SELECT fingerprint || ' ' || name FROM ({OBJECTS}) AS o")).await;
    listed.sort_by_key(|line| line.split_once(' ').map(|(_, name)| name.to_owned()));
    let list = format!("{}\n", listed.join("\n"));
    assert_eq!(list, include_str!("../../src/store/postgres/objects.txt"), "objects.txt:\n{list}");
}

#[tokio::test]
async fn every_table_and_sequence_of_the_migrations_is_looked_at() {
    let url = migrated_database().await;
    let made = "SELECT relname::text FROM pg_class WHERE relnamespace = 'fencepost'::regnamespace
                AND relkind NOT IN ('i', 't', 'c') ORDER BY 1";
    let made: Vec<String> = fetch_all(&url, made).await;
    assert_eq!(fetch_all::<String>(&url, OWN).await, made);
}

#[tokio::test]
async fn a_trigger_that_is_missing_or_switched_off_is_refused() {
    let url = migrated_database().await;
    let triggers = "SELECT tgname || ' ' || tgrelid::regclass FROM pg_trigger
                    WHERE tgrelid::regclass::text LIKE 'fencepost.%' AND NOT tgisinternal";
    let triggers: Vec<String> = fetch_all(&url, triggers).await;
    assert!(triggers.len() >= 9, "{triggers:?}");
    for trigger in triggers {
        let (name, table) = trigger.split_once(' ').expect("a trigger and its table");
        let url = migrated_database().await;
        execute(&url, &format!("DROP TRIGGER {name} ON {table}")).await;
        assert_refused(&url, &[name, "is missing"]).await;
    }
    for change in [
        "DISABLE TRIGGER ALL",
        "ENABLE REPLICA TRIGGER marks_never_fall",
        "ENABLE TRIGGER marks_never_fall",
    ] {
        let url = migrated_database().await;
        execute(&url, &format!("ALTER TABLE fencepost.resources {change}")).await;
        assert_refused(&url, &["is not enabled always"]).await;
    }
}

#[tokio::test]
async fn an_object_that_was_replaced_is_refused() {
    for (change, parts) in [
        (
            "CREATE OR REPLACE TRIGGER marks_never_fall AFTER UPDATE ON fencepost.resources
                 FOR EACH ROW WHEN (NEW.token < OLD.token - 1) EXECUTE FUNCTION fencepost.refuse();
             ALTER TABLE fencepost.resources ENABLE ALWAYS TRIGGER marks_never_fall",
            ["marks_never_fall", "is not the one"],
        ),
        (
            "CREATE OR REPLACE FUNCTION fencepost.refuse() RETURNS trigger LANGUAGE plpgsql
                 AS $$ BEGIN RETURN NEW; END $$",
            ["fencepost.refuse", "is not the one"],
        ),
        (
            "ALTER FUNCTION fencepost.sweep_locks() RESET search_path",
            ["fencepost.sweep_locks", "is not the one"],
        ),
        (
            "ALTER FUNCTION fencepost.sweep_locks() SECURITY INVOKER",
            ["fencepost.sweep_locks", "is not the one"],
        ),
        ("DROP FUNCTION fencepost.sweep_locks()", ["fencepost.sweep_locks", "is missing"]),
        ("GRANT DELETE ON fencepost.resources TO fencepost_serve", ["DELETE", "fencepost_serve"]),
        ("GRANT TRUNCATE ON fencepost.locks TO fencepost_serve", ["TRUNCATE", "fencepost_serve"]),
        ("GRANT SELECT ON fencepost.resources TO PUBLIC", ["SELECT", "PUBLIC"]),
        ("GRANT USAGE ON SCHEMA fencepost TO PUBLIC", ["USAGE", "PUBLIC"]),
        ("GRANT EXECUTE ON FUNCTION fencepost.sweep_locks TO PUBLIC", ["sweep_locks", "PUBLIC"]),
    ] {
        let url = migrated_database().await;
        postgres::apply_roles(&url).await;
        execute(&url, change).await;
        assert_refused(&url, &parts).await;
    }
}

const COLUMN_ONLY: &str = "DROP TRIGGER marks_never_fall ON fencepost.resources;
     CREATE TRIGGER marks_never_fall AFTER UPDATE OF value ON fencepost.resources
         FOR EACH ROW WHEN (NEW.token < OLD.token OR (NEW.token = OLD.token AND NEW.seq < OLD.seq)
                            OR NEW.version < OLD.version OR NEW.key <> OLD.key)
         EXECUTE FUNCTION fencepost.refuse();
     ALTER TABLE fencepost.resources ENABLE ALWAYS TRIGGER marks_never_fall";

/// Each change, what undoes it, and what the refusal says.
const ALTERED: [(&str, &str, [&str; 2]); 14] = [
    // Raw SQL could lower a mark without naming `value`.
    (COLUMN_ONLY, "", ["marks_never_fall", "is not the one"]),
    (
        "ALTER FUNCTION fencepost.ms_between(timestamptz, timestamptz) STRICT",
        "ALTER FUNCTION fencepost.ms_between(timestamptz, timestamptz) CALLED ON NULL INPUT",
        ["fencepost.ms_between", "is not the one"],
    ),
    (
        "CREATE FUNCTION public.skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER mine BEFORE UPDATE ON fencepost.floor FOR EACH ROW EXECUTE FUNCTION public.skip()",
        "DROP TRIGGER mine ON fencepost.floor",
        ["trigger mine on fencepost.floor", "not part of the schema"],
    ),
    (
        "CREATE FUNCTION fencepost.release_lock(text, integer) RETURNS void LANGUAGE sql AS ''",
        "DROP FUNCTION fencepost.release_lock(text, integer)",
        ["fencepost.release_lock(text, integer)", "not part of the schema"],
    ),
    (
        "CREATE RULE mine AS ON UPDATE TO fencepost.resources DO INSTEAD NOTHING",
        "DROP RULE mine ON fencepost.resources",
        ["rule mine on fencepost.resources", "DROP RULE"],
    ),
    (
        "ALTER TABLE fencepost.floor ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE fencepost.floor DISABLE ROW LEVEL SECURITY",
        ["row security", "fencepost.floor"],
    ),
    (
        "ALTER TABLE fencepost.resources FORCE ROW LEVEL SECURITY",
        "ALTER TABLE fencepost.resources NO FORCE ROW LEVEL SECURITY",
        ["row security", "fencepost.resources"],
    ),
    (
        "ALTER SEQUENCE fencepost.tokens INCREMENT -1",
        "ALTER SEQUENCE fencepost.tokens INCREMENT 1",
        ["fencepost.tokens", "ALTER SEQUENCE"],
    ),
    (
        "ALTER SEQUENCE fencepost.tokens CACHE 10",
        "ALTER SEQUENCE fencepost.tokens CACHE 1",
        ["fencepost.tokens", "ALTER SEQUENCE"],
    ),
    (
        "ALTER SEQUENCE fencepost.tokens CYCLE",
        "ALTER SEQUENCE fencepost.tokens NO CYCLE",
        ["fencepost.tokens", "ALTER SEQUENCE"],
    ),
    (
        "ALTER SEQUENCE fencepost.tokens MAXVALUE 1000",
        "ALTER SEQUENCE fencepost.tokens NO MAXVALUE",
        ["fencepost.tokens", "ALTER SEQUENCE"],
    ),
    (
        "ALTER TABLE fencepost.floor OWNER TO fencepost_serve",
        "ALTER TABLE fencepost.floor OWNER TO fencepost_owner",
        ["fencepost.floor belongs to the role fencepost_serve", "OWNER TO fencepost_owner"],
    ),
    (
        "ALTER SEQUENCE fencepost.tokens OWNER TO fencepost_serve",
        "ALTER SEQUENCE fencepost.tokens OWNER TO fencepost_owner",
        ["fencepost.tokens belongs to the role fencepost_serve", "OWNER TO fencepost_owner"],
    ),
    (
        "ALTER FUNCTION fencepost.release_lock(text, bigint) OWNER TO fencepost_serve",
        "ALTER FUNCTION fencepost.release_lock(text, bigint) OWNER TO fencepost_owner",
        ["fencepost.release_lock", "is not the one"],
    ),
];

#[tokio::test]
async fn what_is_added_or_altered_is_refused() {
    for (change, undo, parts) in ALTERED {
        // That one is undone by hand only.
        if undo.is_empty() {
            let url = postgres::database().await;
            let serving = postgres::to_serve(&url).await;
            execute(&url, change).await;
            assert_refused(&serving, &parts).await;
        }
    }
    let url = postgres::database().await;
    let serving = postgres::to_serve(&url).await;
    for (change, undo, parts) in ALTERED.into_iter().filter(|(_, undo, _)| !undo.is_empty()) {
        execute(&url, change).await;
        assert_refused(&serving, &parts).await;
        execute(&url, undo).await;
    }
    let version: i32 = fetch(&url, "SELECT current_setting('server_version_num')::int").await;
    // Before, no sequence could be unlogged.
    if version >= 150_000 {
        execute(&url, "ALTER SEQUENCE fencepost.tokens SET UNLOGGED").await;
        assert_refused(&serving, &["the sequence fencepost.tokens is not logged"]).await;
        execute(&url, "ALTER SEQUENCE fencepost.tokens SET LOGGED").await;
    }
    // With its owner an object has lost what was granted to the new one.
    postgres::apply_roles(&url).await;
    Fencepost::start_as_it_is(&serving, &[]).wait_until_ready().await;
}

#[tokio::test]
async fn more_rights_than_the_script_gives_are_refused() {
    let url = postgres::database().await;
    let serving = postgres::to_serve(&url).await;
    let stranger = format!("stranger_to_{}", name_of(&url));
    execute(&url, &format!("CREATE ROLE {stranger} LOGIN")).await;
    let mut grants = vec![
        ("UPDATE", "SEQUENCE fencepost.tokens".to_owned()),
        ("USAGE", "SEQUENCE fencepost.tokens".to_owned()),
        ("UPDATE", "fencepost.rejections".to_owned()),
        ("REFERENCES", "fencepost.resources".to_owned()),
        ("TRIGGER", "fencepost.resources".to_owned()),
        ("UPDATE (token)", "fencepost.floor".to_owned()),
        ("INSERT (token)", "fencepost.locks".to_owned()),
        ("EXECUTE", "FUNCTION fencepost.expect_authority".to_owned()),
        ("CREATE", "SCHEMA fencepost".to_owned()),
    ];
    for table in [
        "floor",
        "locks",
        "lineage",
        "incarnation",
        "lock_buckets",
        "owning_authority",
        "compatibility",
        "migrations",
        "_sqlx_migrations",
    ] {
        grants.push(("UPDATE", format!("fencepost.{table}")));
    }
    for (number, (privilege, object)) in grants.iter().enumerate() {
        let role = if number % 2 == 0 { "fencepost_serve" } else { &stranger };
        execute(&url, &format!("GRANT {privilege} ON {object} TO {role}")).await;
        let privilege_alone = privilege.split(' ').next().expect("a word");
        let object_alone = object.split(' ').next_back().expect("a word");
        let named = if privilege.contains('(') { "of fencepost." } else { object_alone };
        assert_refused(&serving, &[privilege_alone, named, role, "REVOKE"]).await;
        execute(&url, &format!("REVOKE {privilege} ON {object} FROM {role}")).await;
    }
    let lends = "GRANT UPDATE ON fencepost.resources TO fencepost_serve WITH GRANT OPTION";
    execute(&url, lends).await;
    assert_refused(&serving, &["UPDATE on fencepost.resources", "grant option"]).await;
}

/// A role that only reads, for monitoring, and a role that serves under another name.
#[tokio::test]
async fn roles_that_read_and_roles_of_other_names_are_allowed() {
    let url = postgres::database().await;
    let serving = postgres::to_serve(&url).await;
    let [reader, other_serving] =
        ["reads", "serves"].map(|role| format!("{role}_{}", name_of(&url)));
    let read_only = format!(
        "CREATE ROLE {reader} LOGIN; GRANT USAGE ON SCHEMA fencepost TO {reader};
         GRANT SELECT ON ALL TABLES IN SCHEMA fencepost TO {reader};
         GRANT SELECT ON ALL SEQUENCES IN SCHEMA fencepost TO {reader};
         GRANT SELECT (key, token) ON fencepost.resources TO {reader}"
    );
    execute(&url, &read_only).await;
    let script = std::fs::read_to_string("migrations/roles.sql").expect("the script");
    execute(&url, &script.replace("fencepost_serve", &other_serving)).await;
    let other = serving.replace("fencepost_serve@", &format!("{other_serving}@"));
    let roles = "SELECT has_table_privilege('fencepost_serve', 'fencepost.resources', 'UPDATE')";
    assert!(fetch::<bool>(&url, roles).await, "both may serve");
    for url in [&serving, &other] {
        let server = Fencepost::start_as_it_is(url, &["--authority", "store"]);
        server.wait_until_ready().await;
        let token = server.client().lock("k", std::time::Duration::from_mins(1)).await;
        assert!(answer(server.client().put("k", token, "v")).await.status < 300);
        assert_eq!(answer(server.client().release("k", token)).await.status, 204);
    }
}

#[tokio::test]
async fn a_role_that_lacks_a_right_for_serving_is_refused() {
    let url = postgres::database().await;
    let serving = postgres::to_serve(&url).await;
    for (right, named) in [
        (
            "EXECUTE ON FUNCTION fencepost.release_lock",
            "EXECUTE on fencepost.release_lock(text, bigint)",
        ),
        ("UPDATE ON fencepost.resources", "UPDATE on fencepost.resources"),
        ("SELECT ON SEQUENCE fencepost.tokens", "SELECT on fencepost.tokens"),
        ("INSERT ON fencepost.rejections", "INSERT on fencepost.rejections"),
    ] {
        execute(&url, &format!("REVOKE {right} FROM fencepost_serve")).await;
        assert_refused(&serving, &["lacks", named, "run `fencepost migrate`"]).await;
        execute(&url, &format!("GRANT {right} TO fencepost_serve")).await;
    }
    // What serving does without.
    let unneeded = "
        REVOKE EXECUTE ON FUNCTION fencepost.move_authority, fencepost.server_here, fencepost.lineage_here,
            fencepost.read_lineage, fencepost.expect_lineage FROM fencepost_serve;
        REVOKE ALL ON fencepost.rejections FROM fencepost_serve";
    execute(&url, unneeded).await;
    let flags = ["--authority", "store", "--rejections-keep", "0"];
    let server = Fencepost::start_as_it_is(&serving, &flags);
    server.wait_until_ready().await;
    let token = server.client().lock("k", std::time::Duration::from_mins(1)).await;
    assert_eq!(answer(server.client().put("k", token, "v")).await.status, 201);
}

/// Every question is asked with the settings that are pinned, behind a pooler too.
#[tokio::test]
async fn behind_a_pooler_the_search_path_of_the_database_changes_nothing() {
    let url = migrated_database().await;
    let database = name_of(&url);
    let trap = format!(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.oidvectortypes(oidvector) RETURNS text LANGUAGE sql AS $$ SELECT 'evil' $$;
         ALTER DATABASE {database} SET search_path = evil, pg_catalog"
    );
    execute(&url, &trap).await;
    let pgbouncer = Pgbouncer::before(postgres::shared().await, 4, "").await;
    let pooled = pgbouncer.url(&url);
    Fencepost::start_as_it_is(&pooled, &[]).wait_until_ready().await;
    execute(&url, "DROP TRIGGER marks_never_fall ON fencepost.resources").await;
    assert_refused(&pooled, &["marks_never_fall", "is missing"]).await;
}

#[tokio::test]
async fn another_encoding_is_refused() {
    let url = postgres::shared().await.database("ENCODING LATIN1 TEMPLATE template0").await;
    for reason in [refusal(&url).await, Fencepost::start(&url, &[]).refusal().await] {
        assert_says(&reason, &["LATIN1", "ENCODING 'UTF8'"]);
    }
}

#[tokio::test]
async fn a_database_that_only_reads_is_refused() {
    let url = migrated_database().await;
    let database = name_of(&url);
    execute(&url, &format!("ALTER DATABASE {database} SET default_transaction_read_only = on"))
        .await;
    for reason in [refusal(&url).await, Fencepost::start(&url, &[]).refusal().await] {
        assert_says(&reason, &["only reads", "default_transaction_read_only"]);
    }
}

#[tokio::test]
async fn a_standby_is_refused() {
    let mut postgres = Postgres::start(&["fsync=off"]).await;
    let url = postgres.database("").await;
    assert!(run(&["migrate", "--store", &url]).status.success());
    postgres.stop("fast").await;
    // With nobody to follow it is a standby all the same: in recovery, and read-only.
    std::fs::write(postgres.data().join("standby.signal"), "").unwrap();
    postgres::give(&postgres.data().join("standby.signal"));
    postgres.run().await;
    for reason in [refusal(&url).await, Fencepost::start(&url, &[]).refusal().await] {
        assert_says(&reason, &["standby", "connect to a primary"]);
    }
}

#[tokio::test]
async fn a_missing_database_or_role_is_refused() {
    let url = postgres::database().await;
    let elsewhere = url.replace(name_of(&url), "no_such_database");
    assert_says(&refusal(&elsewhere).await, &["no_such_database", "--store"]);
    let nobody = url.replace("postgres@", "nobody_of_this_name@");
    assert_says(&refusal(&nobody).await, &["nobody_of_this_name", "--store"]);
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_repeated() {
    let mut postgres = Postgres::start(&["fsync=off"]).await;
    let url = postgres.url("postgres");
    execute(&url, "CREATE ROLE app LOGIN PASSWORD 'right'").await;
    let rules = "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\n\
                 host all all 127.0.0.1/32 trust\n";
    std::fs::write(postgres.data().join("pg_hba.conf"), rules).unwrap();
    postgres.stop("fast").await;
    postgres.run().await;
    let reason = refusal(&url.replace("postgres@", "app:s3cret@")).await;
    assert_says(&reason, &["password authentication failed", "--store"]);
    assert!(!reason.contains("s3cret"), "{reason}");
    // With the right one from a file it gets further.
    let file = postgres.directory().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let flags = ["--store-password-file", file.to_str().unwrap()];
    let app = url.replace("postgres@", "app@");
    let reason = Fencepost::start_as_it_is(&app, &flags).refusal().await;
    assert_says(&reason, &["schema", "`fencepost migrate`"]);
}

/// Otherwise it would wait for ever for something that only an administrator can mend.
#[tokio::test]
async fn a_role_that_may_not_use_the_schema_is_refused() {
    let url = migrated_database().await;
    let role = format!("stranger_to_{}", name_of(&url));
    execute(&url, &format!("CREATE ROLE {role} LOGIN")).await;
    let reason = refusal(&url.replace("postgres@", &format!("{role}@"))).await;
    assert_says(&reason, &["permission denied", "fencepost"]);
    // That would be a line of Postgres's own source.
    assert!(!reason.contains("at line"), "{reason}");
}

/// A database that is late makes it unready, not dead.
#[tokio::test]
async fn a_database_that_is_not_up_yet_is_waited_for() {
    let mut postgres = Postgres::start(&["fsync=off"]).await;
    let url = postgres.database("").await;
    postgres.stop("fast").await;
    let server = Fencepost::start(&url, &[]);
    let early = crate::harness::http::answer(server.client().put("k", 1, "x")).await;
    assert_eq!((early.status, early.problem().as_str()), (503, "store-unavailable"));
    assert_eq!(early.header("retry-after"), Some("1"));
    let probe = crate::harness::http::answer(server.admin_client().get("/startupz")).await;
    assert_eq!(probe.status, 503);
    postgres.run().await;
    server.wait_until_ready().await;
}

/// Rows are locked in key order, so two fenceposts must agree on what that is.
#[tokio::test]
async fn keys_sort_by_bytes_whatever_the_locale() {
    let url = migrated_database().await;
    let collation: String = fetch(
        &url,
        "SELECT c.collname::text FROM pg_attribute AS a JOIN pg_collation AS c
             ON c.oid = a.attcollation
         WHERE a.attrelid = 'fencepost.resources'::regclass AND a.attname = 'key'",
    )
    .await;
    assert_eq!(collation, "C");
}
