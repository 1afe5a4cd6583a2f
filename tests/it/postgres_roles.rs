//! What somebody can do to a database with psql, as each of the roles of `migrations/roles.sql`.

use reqwest::Method;

use crate::harness::{
    fencepost::{Fencepost, run},
    http::answer,
    postgres::{self, execute, fetch, try_execute},
    store::TestStore,
};

struct Roles {
    server: Fencepost,
    superuser: String,
    owner: String,
    serving: String,
}

impl Roles {
    /// A fencepost that has written something, and all who can get at its database.
    async fn with_some_marks() -> Self {
        let store = TestStore::postgres().await;
        let server = Fencepost::with(&store, &["--authority", "store", "--trust", "open"]).await;
        let client = server.client();
        assert_eq!(answer(client.put("key", 7, "v")).await.status, 201);
        assert_eq!(answer(client.delete("deleted", 7)).await.status, 204);
        let serving = store.to_serve().await;
        let owner = serving.replace("fencepost_serve@", "fencepost_owner@");
        Self { server, superuser: store.url, owner, serving }
    }
}

#[track_caller]
fn code(refused: &sqlx::Error) -> String {
    let code = refused.as_database_error().and_then(|error| error.code().map(Into::into));
    code.unwrap_or_else(|| panic!("{refused}"))
}

const NOT_PERMITTED: &str = "42501";
const MARKS_NEVER_FALL: &str = "23000";

#[tokio::test]
async fn whoever_serves_can_delete_nothing_and_change_no_table() {
    let roles = Roles::with_some_marks().await;
    for table in [
        "resources",
        "floor",
        "locks",
        "authority",
        "rejections",
        "lineage",
        "incarnation",
        "_sqlx_migrations",
        "migrations",
        "compatibility",
    ] {
        for sql in [
            format!("DELETE FROM fencepost.{table}"),
            format!("TRUNCATE fencepost.{table}"),
            format!("DROP TABLE fencepost.{table}"),
            format!("ALTER TABLE fencepost.{table} DISABLE TRIGGER ALL"),
            format!(
                "CREATE TRIGGER mine BEFORE DELETE ON fencepost.{table} FOR EACH ROW
                     EXECUTE FUNCTION fencepost.refuse()"
            ),
        ] {
            let refused = try_execute(&roles.serving, &sql).await.expect_err(&sql);
            assert_eq!(code(&refused), NOT_PERMITTED, "{sql}: {refused}");
        }
    }
    for sql in [
        "UPDATE fencepost.floor SET token = 9",
        "INSERT INTO fencepost.locks SELECT 1, 'a', 'a', 'a', 1, now()",
        "UPDATE fencepost.locks SET expires_at = now()",
        "UPDATE fencepost.rejections SET reason = 'none'",
        "INSERT INTO fencepost._sqlx_migrations SELECT * FROM fencepost._sqlx_migrations",
        "SELECT setval('fencepost.tokens', 1)",
        "SELECT nextval('fencepost.tokens')",
        "DROP TRIGGER marks_never_fall ON fencepost.resources",
        "DROP SCHEMA fencepost CASCADE",
        "CREATE TABLE fencepost.mine ()",
        "CREATE OR REPLACE FUNCTION fencepost.refuse() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN RETURN NEW; END'",
        "ALTER FUNCTION fencepost.refuse() OWNER TO fencepost_serve",
        "SET session_replication_role = replica",
        "SET ROLE fencepost_owner",
        "ALTER ROLE fencepost_serve SUPERUSER",
    ] {
        let refused = try_execute(&roles.serving, sql).await.expect_err(sql);
        assert_eq!(code(&refused), NOT_PERMITTED, "{sql}: {refused}");
    }
}

/// Not whoever serves, not the owner, and not even a superuser who says that this is a replica.
#[tokio::test]
async fn nobody_can_lower_a_mark_in_passing() {
    let roles = Roles::with_some_marks().await;
    let replica = "SET session_replication_role = replica; ";
    for (role, first) in [
        (&roles.serving, ""),
        (&roles.owner, ""),
        (&roles.superuser, ""),
        (&roles.superuser, replica),
    ] {
        for sql in [
            "UPDATE fencepost.resources SET token = 6 WHERE key = 'key'",
            "UPDATE fencepost.resources SET version = 0 WHERE key = 'key'",
            "UPDATE fencepost.resources SET key = 'elsewhere' WHERE key = 'key'",
            "INSERT INTO fencepost.resources (key, token) VALUES ('key', 1)
             ON CONFLICT (key) DO UPDATE SET token = excluded.token",
        ] {
            let refused = try_execute(role, &format!("{first}{sql}")).await.expect_err(sql);
            assert_eq!(code(&refused), MARKS_NEVER_FALL, "{sql}: {refused}");
        }
        if role == &roles.serving {
            continue;
        }
        for sql in [
            "DELETE FROM fencepost.resources",
            "DELETE FROM fencepost.resources WHERE key = 'deleted'",
            "TRUNCATE fencepost.resources",
            "TRUNCATE fencepost.floor",
            "DELETE FROM fencepost.floor",
        ] {
            let refused = try_execute(role, &format!("{first}{sql}")).await.expect_err(sql);
            assert_eq!(code(&refused), MARKS_NEVER_FALL, "{sql}: {refused}");
        }
    }
    assert_eq!(roles.server.client().mark("key").await, (7, 0));
    assert_eq!(roles.server.client().mark("deleted").await, (7, 0));
}

/// What runs with the owner's rights must mean what it says, whatever its caller has prepared.
#[tokio::test]
async fn the_functions_of_the_owner_cannot_be_led_astray() {
    let roles = Roles::with_some_marks().await;
    let lock = roles.server.client().request(Method::POST, "/v1/locks/a");
    assert_eq!(answer(lock).await.status, 201);
    // Everything equals everything.
    execute(
        &roles.superuser,
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.yes(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.yes);
         CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
         GRANT USAGE ON SCHEMA evil TO fencepost_serve;",
    )
    .await;
    let release = "SET search_path = evil, pg_catalog; SELECT fencepost.release_lock('b', 1)";
    execute(&roles.serving, release).await;
    let left: i64 = fetch(&roles.superuser, "SELECT count(*) FROM fencepost.locks").await;
    assert_eq!(left, 1, "somebody else's lock");
    let open = "SELECT coalesce(string_agg(p.oid::regprocedure::text, ', '), '') FROM pg_proc AS p
                WHERE p.pronamespace = 'fencepost'::regnamespace AND p.prosecdef
                AND (p.proconfig IS NULL OR has_function_privilege('public', p.oid, 'EXECUTE'))";
    assert_eq!(
        fetch::<String>(&roles.superuser, open).await,
        "",
        "anybody's to call, or to mislead"
    );
}

#[tokio::test]
async fn only_the_owner_can_compact() {
    let roles = Roles::with_some_marks().await;
    let compact = |store: &str| run(&["compact", "--older-than", "0s", "--store", store]);
    let refused = compact(&roles.serving);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("permission denied"));
    let compacted = compact(&roles.owner);
    assert!(compacted.status.success(), "{}", String::from_utf8_lossy(&compacted.stderr));
}

#[tokio::test]
async fn the_script_takes_away_what_it_does_not_give() {
    let roles = Roles::with_some_marks().await;
    execute(&roles.owner, "GRANT ALL ON ALL TABLES IN SCHEMA fencepost TO fencepost_serve, PUBLIC")
        .await;
    execute(&roles.serving, "DELETE FROM fencepost.locks").await;
    // The owner can run it too, once the roles are there.
    postgres::apply_roles(&roles.owner).await;
    let refused = try_execute(&roles.serving, "DELETE FROM fencepost.locks").await.expect_err("it");
    assert_eq!(code(&refused), NOT_PERMITTED);
    assert_eq!(answer(roles.server.client().put("key", 8, "v")).await.status, 200);
}

/// What runs as its owner must take nothing for its own that its caller has put in its way.
#[tokio::test]
async fn what_runs_as_the_owner_looks_where_nobody_else_can_write() {
    let roles = Roles::with_some_marks().await;
    let careless = "SELECT coalesce(string_agg(proname, ', '), '') FROM pg_proc
                    WHERE pronamespace = 'fencepost'::regnamespace AND prosecdef
                      AND proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']";
    assert_eq!(fetch::<String>(&roles.superuser, careless).await, "");
    let trap = "
        CREATE FUNCTION pg_temp.evil(value pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            IF current_user = 'fencepost_owner' THEN
                EXECUTE 'ALTER TABLE fencepost.resources DISABLE TRIGGER USER';
                EXECUTE 'UPDATE fencepost.resources SET token = 1';
            END IF;
            RETURN true;
        END $$;
        GRANT EXECUTE ON FUNCTION pg_temp.evil(pg_catalog.text) TO PUBLIC;
        CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.evil(VALUE));
        SELECT fencepost.take_over(0, 0)";
    execute(&roles.serving, trap).await;
    let mark = "SELECT token FROM fencepost.resources WHERE key = 'key'";
    assert_eq!(fetch::<i64>(&roles.superuser, mark).await, 7);
}

/// In `public` others may have put functions that fit better than the real ones.
#[tokio::test]
async fn a_stranger_s_function_is_not_run_by_whoever_migrates() {
    let roles = Roles::with_some_marks().await;
    let trap = "
        CREATE FUNCTION public.has_database_privilege(name, name, text) RETURNS boolean
        LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''caught, as %'', current_user; END';
        CREATE FUNCTION public.has_database_privilege(text, name, text) RETURNS boolean
        LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''caught, as %'', current_user; END'";
    execute(&roles.superuser, trap).await;
    let script = std::fs::read_to_string("migrations/roles.sql").expect("the script");
    execute(&roles.superuser, &script).await;
    execute(&roles.owner, &script).await;
}
