//! What Postgres says when it refuses a statement decides what its client is told, and whether the
//! connection is worth keeping.

use crate::harness::{
    fencepost::Fencepost,
    http::{Client, answer, insist},
    postgres::{self, execute, fetch},
    store::TestStore,
};

/// A write of `refused/CODE` is refused with that code. Of any other it is noted who wrote it.
const REFUSE_BY_KEY: &str = "
CREATE TABLE public.writers (key text, pid integer);
CREATE FUNCTION public.refuse_by_key() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF starts_with(NEW.key, 'refused/') THEN
        RAISE EXCEPTION 'as the test has it' USING ERRCODE = split_part(NEW.key, '/', 2);
    END IF;
    INSERT INTO public.writers VALUES (NEW.key, pg_backend_pid());
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_by_key BEFORE INSERT OR UPDATE ON fencepost.resources
    FOR EACH ROW EXECUTE FUNCTION public.refuse_by_key()";

/// A write of `gives-way/COUNT` is refused so many times, as the victim of a deadlock is.
const GIVE_WAY: &str = "
CREATE SEQUENCE public.attempts;
CREATE FUNCTION public.give_way() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF nextval('public.attempts') <= split_part(NEW.key, '/', 2)::int THEN
        RAISE EXCEPTION 'as the test has it' USING ERRCODE = 'deadlock_detected';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER give_way BEFORE INSERT OR UPDATE ON fencepost.resources
    FOR EACH ROW WHEN (starts_with(NEW.key, 'gives-way/')) EXECUTE FUNCTION public.give_way()";

async fn serve(more: &str) -> (TestStore, Fencepost) {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--store-connections", "1"]).await;
    execute(&store.url, more).await;
    (store, server)
}

/// The backend that wrote a key.
async fn writer(store: &TestStore, client: &Client, key: &str) -> i32 {
    assert_eq!(insist(client.put(key, 1, "x")).await.status, 201);
    fetch(&store.url, &format!("SELECT pid FROM public.writers WHERE key = '{key}'")).await
}

#[tokio::test]
async fn a_refusal_costs_the_connection_only_where_it_has_to() {
    let (store, server) = serve(REFUSE_BY_KEY).await;
    let client = server.client();
    let (kept, left) = (true, false);
    for (code, status, problem, connection) in [
        // This one write will not do.
        ("P0001", 503, "store-unavailable", kept),
        ("23514", 503, "store-unavailable", kept),
        ("40001", 503, "store-unavailable", kept),
        // This server will not do any more, or what was prepared on it will not.
        ("53100", 503, "store-full", left),
        ("25006", 503, "store-unavailable", left),
        ("0A000", 503, "store-unavailable", left),
        ("26000", 503, "store-unavailable", left),
        // What is said of a connection proves nothing about the statement.
        ("08006", 504, "outcome-unknown", left),
    ] {
        let before = writer(&store, &client, &format!("before/{code}")).await;
        let refused = answer(client.put(&format!("refused/{code}"), 1, "x")).await;
        assert_eq!((refused.status, &*refused.problem()), (status, problem), "{code}");
        let after = writer(&store, &client, &format!("after/{code}")).await;
        assert_eq!(before == after, connection, "{code}");
    }
}

#[tokio::test]
async fn what_gave_way_is_tried_again_but_not_for_ever() {
    let (store, server) = serve(GIVE_WAY).await;
    let client = server.client();
    let put = answer(client.put("gives-way/4", 1, "x")).await;
    assert_eq!(put.status, 201, "{}", put.text());
    execute(&store.url, "ALTER SEQUENCE public.attempts RESTART").await;
    let put = answer(client.put("gives-way/5", 1, "x")).await;
    assert_eq!((put.status, &*put.problem()), (503, "store-unavailable"));
    let attempts: i64 = fetch(&store.url, "SELECT last_value FROM public.attempts").await;
    assert_eq!(attempts, 5);
    assert_eq!(answer(client.read("gives-way/5")).await.status, 404);
    assert_eq!(answer(client.put("gives-way/5", 1, "x")).await.status, 201);
}

/// As an upgrade may do to a statement that was prepared before it.
#[tokio::test]
async fn a_statement_that_no_longer_fits_the_schema_is_prepared_anew() {
    let (store, server) = serve("").await;
    let client = server.client();
    assert_eq!(answer(client.put("k", 1, "x")).await.status, 201);
    assert_eq!(answer(client.read("k")).await.status, 200);
    let changed = "ALTER TABLE fencepost.resources ALTER content_type TYPE varchar(300)";
    execute(&store.url, changed).await;
    let refused = answer(client.read("k")).await;
    assert_eq!((refused.status, &*refused.problem()), (503, "store-unavailable"));
    let read = insist(client.read("k")).await;
    assert_eq!((read.status, read.text().as_str()), (200, "x"));
}

/// A version that is too old does not know all that we set.
#[tokio::test]
async fn a_setting_that_postgres_does_not_know_is_refused_at_the_start() {
    let url = postgres::database().await;
    let unknown = format!("{url}&options=-c%20no_such_setting%3D1");
    let reason = Fencepost::start(&unknown, &[]).refusal().await;
    assert!(reason.contains("too old") && reason.contains("no_such_setting"), "{reason}");
}
