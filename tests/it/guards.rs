//! The last line of defence: not even hand-written SQL may lower a mark.

use crate::harness::{
    fencepost::{Fencepost, run},
    http::answer,
    store::{TestStore, on_each_store},
};

on_each_store! {
    async fn raw_sql_cannot_lower_a_mark(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let put = client.put("key", 5, "value").header("X-Fencing-Seq", 3);
        assert_eq!(answer(put).await.status, 201);
        assert_eq!(answer(client.delete("deleted", 5)).await.status, 204);
        store.execute("UPDATE floor SET token = 3").await.expect("a floor may rise");

        let everywhere = [
            "UPDATE resources SET token = 4 WHERE key = 'key'",
            "UPDATE resources SET token = token - 1",
            "UPDATE resources SET seq = 2 WHERE key = 'key'",
            "UPDATE resources SET key = 'another' WHERE key = 'key'",
            "UPDATE resources SET version = version - 1 WHERE key = 'key'",
            "UPDATE resources SET token = 9, version = 0 WHERE key = 'key'",
            "DELETE FROM resources WHERE key = 'key'",
            "DELETE FROM resources WHERE key = 'deleted'",
            "DELETE FROM resources",
            "INSERT INTO resources (key, token, touched_at) SELECT key, 1, touched_at FROM resources
             WHERE key = 'key' ON CONFLICT (key) DO UPDATE SET token = excluded.token",
            "UPDATE floor SET token = 2",
            "DELETE FROM floor",
        ];
        let here: &[&str] = if store.is_postgres() {
            &["TRUNCATE resources", "TRUNCATE floor", "TRUNCATE resources, floor CASCADE"]
        } else {
            &[
                "REPLACE INTO resources (key, token, touched_at) VALUES ('key', 4, 0)",
                "INSERT OR REPLACE INTO resources (key, token, seq, touched_at)
                 VALUES ('key', 5, 2, 0)",
                "REPLACE INTO resources (key, token, seq, version, touched_at)
                 VALUES ('key', 9, 0, 0, 0)",
                "UPDATE OR REPLACE resources SET key = 'key' WHERE key = 'deleted'",
                "REPLACE INTO floor (only_row, token) VALUES (1, 2)",
            ]
        };
        for sql in everywhere.iter().chain(here) {
            let refused = store.execute(sql).await.expect_err(sql);
            assert!(refused.to_string().contains("fencepost: "), "{sql}: {refused}");
        }
        assert_eq!(client.mark("key").await, (5, 3));
        assert_eq!(client.mark("deleted").await, (5, 0));
        assert_eq!(client.mark("unseen").await, (3, 0));
        assert_eq!(answer(client.read("key")).await.text(), "value");
    }
}

on_each_store! {
    /// Or else `fencepost compact` could not collect anything.
    async fn a_tombstone_below_the_floor_may_go_and_nothing_else(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("present", 5, "value")).await.status, 201);
        assert_eq!(answer(client.delete("deleted", 5)).await.status, 204);
        store.execute("UPDATE floor SET token = 6").await.expect("a floor may rise");
        store.execute("DELETE FROM resources WHERE key = 'deleted'").await.expect("it may go");
        store.execute("DELETE FROM resources").await.expect_err("a value is there");
        assert_eq!(client.mark("deleted").await, (6, 0));
        assert_eq!(answer(client.read("present")).await.text(), "value");
    }
}

#[tokio::test]
async fn sqlite_forgets_nothing_by_replacing_it() {
    let store = TestStore::sqlite();
    store.open().await;
    store.execute("UPDATE tokens SET issued = 7").await.expect("tokens may rise");
    let moved = "UPDATE owning_authority SET kind = 'etcd', identity = ''";
    store.execute(moved).await.expect("the store may be moved");
    let seen =
        "INSERT INTO authority (only_row, epoch, revision, cluster, term) VALUES (1, 2, 7, '', 1)";
    store.execute(seen).await.expect("an etcd was seen");
    for sql in [
        "REPLACE INTO tokens (only_row, issued) VALUES (1, 6)",
        "UPDATE tokens SET issued = 6",
        "DELETE FROM tokens",
        "REPLACE INTO authority (only_row, epoch, revision, cluster, term) VALUES (1, 1, 9, '', 1)",
        "REPLACE INTO authority (only_row, epoch, revision, cluster, term) VALUES (1, 2, 6, '', 1)",
        "DELETE FROM authority",
        "DELETE FROM owning_authority",
    ] {
        let refused = store.execute(sql).await.expect_err(sql);
        assert!(refused.to_string().contains("fencepost: "), "{sql}: {refused}");
    }
}

/// On Postgres `postgres_fitness` has more of these.
#[tokio::test]
async fn a_file_whose_triggers_are_not_those_of_its_schema_is_refused() {
    for (change, reason) in [
        ("DROP TRIGGER marks_never_fall", "the trigger marks_never_fall is missing"),
        ("DROP TRIGGER the_authority_is_not_forgotten", "is missing"),
        (
            "DROP TRIGGER floor_never_falls;
             CREATE TRIGGER floor_never_falls BEFORE UPDATE ON floor WHEN false
                 BEGIN SELECT 1; END",
            "the trigger floor_never_falls is not the one",
        ),
        (
            "CREATE TRIGGER mine BEFORE UPDATE ON floor BEGIN SELECT RAISE(IGNORE); END",
            "the trigger mine is not part of the schema",
        ),
    ] {
        let store = TestStore::sqlite();
        store.open().await;
        store.execute(change).await.expect("the file's owner may do that");
        let refusal = Fencepost::start_as_it_is(&store.url, &[]).refusal().await;
        assert!(refusal.contains(reason), "{refusal}");
        let checked = run(&["check", "--authority", "none", "--store", &store.url]);
        assert_eq!(checked.status.code(), Some(1), "{change}");
    }
}

/// Another release of sqlx may make its own tables otherwise.
#[tokio::test]
async fn the_tables_of_sqlx_in_a_file_are_not_compared() {
    let store = TestStore::sqlite();
    store.open().await;
    for table in ["_sqlx_migrations", "migrations"] {
        let alter = format!("ALTER TABLE {table} ADD COLUMN later TEXT");
        store.execute(&alter).await.expect("it may be altered");
    }
    Fencepost::start_as_it_is(&store.url, &[]).wait_until_ready().await;
}
