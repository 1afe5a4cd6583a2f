//! How Postgres carries out what a fencepost asks of it: the plans, as `auto_explain` writes them to its log.
//!
//! Rows are found by their keys, each by itself and in the order of the batch, however many there are and whatever
//! Postgres has counted of them. That order is what keeps two batches from waiting for each other, and a plan that went
//! through the whole table would take seconds one day, without any change of ours.

use std::fmt::Write as _;

use fencepost::{
    store::{INLINE_BYTES, Page, Session, Store, Unit, postgres::PostgresStore},
    token::{Key, Seq},
    write::Write,
};
use serde_json::Value as Json;

use crate::harness::{
    postgres::{self, Postgres},
    writes::{claim, put},
};

const TOGETHER: usize = 20;

fn name(number: usize) -> String {
    format!("key/{number:06}")
}

fn together(write: impl Fn(&str) -> Write) -> Vec<Unit> {
    (0..TOGETHER).map(|number| Unit::single(write(&name(number)))).collect()
}

/// A server that writes every plan to its log, a store on it, and what has been seen there.
struct Watched {
    postgres: Postgres,
    store: PostgresStore,
    /// How much of the log has been read.
    read: usize,
    seen: Vec<(&'static str, Vec<Json>)>,
}

impl Watched {
    /// With so many keys.
    async fn with(keys: usize) -> Self {
        let postgres = Postgres::start(&[
            "fsync=off",
            "shared_preload_libraries=auto_explain",
            "auto_explain.log_min_duration=0",
            "auto_explain.log_format=json",
        ])
        .await;
        let database = postgres.database("").await;
        let store = PostgresStore::new(&postgres::to_serve(&database).await, 1).unwrap();
        let fill = format!(
            "INSERT INTO fencepost.resources (key, token, version, value, content_type)
             SELECT 'key/' || lpad(number::text, 6, '0'), 1, 1, 'x', 'text/plain'
             FROM generate_series(0, {keys} - 1) AS number"
        );
        postgres::execute(&database, &fill).await;
        if keys > TOGETHER {
            postgres::execute(&database, "VACUUM ANALYZE fencepost.resources").await;
        }
        Self { postgres, store, read: 0, seen: Vec::new() }
    }

    /// As a lane for writes has it.
    async fn writer(&self) -> Box<dyn Session> {
        self.store.connect_impatiently().await.expect("it can be reached")
    }

    /// Has these settled, and looks how.
    async fn settle(&mut self, what: &'static str, session: &mut dyn Session, units: &[Unit]) {
        self.plans();
        for settled in session.settle(units).await {
            settled.expect("an answer");
        }
        self.look(what, session).await;
    }

    /// What the session has just been asked.
    async fn look(&mut self, what: &'static str, session: &mut dyn Session) {
        // An answer may come before its plan is written; the next answer does not.
        session.ping().await.expect("it answers");
        let plans = self.plans();
        self.seen.push((what, plans));
    }

    /// What was asked of resources since it was last looked at.
    fn plans(&mut self) -> Vec<Json> {
        let log = std::fs::read_to_string(self.postgres.directory().join("log")).expect("a log");
        let news = log[self.read..].to_owned();
        self.read = log.len();
        let plan = |text: &str| {
            // It goes on for as long as lines are indented.
            let json: Vec<&str> = text.lines().take_while(|line| line.starts_with('\t')).collect();
            serde_json::from_str::<Json>(&json.join("\n")).expect("a plan in JSON")
        };
        let plans = news.split(" plan:\n").skip(1).map(plan);
        plans.filter(|plan| plan["Query Text"].as_str().unwrap().contains("resources")).collect()
    }
}

/// Everything that is asked of resources while serving, and how it was carried out.
async fn everything(keys: usize) -> Vec<(&'static str, Vec<Json>)> {
    let mut watched = Watched::with(keys).await;
    let one = |write: Write| [Unit::single(write)];

    let mut session = watched.writer().await;
    let session = session.as_mut();
    let puts = together(|key| put(key, 1));
    watched.settle("puts that come together", session, &puts).await;
    let ordered = together(|key| Write { seq: Seq::new(1), ..put(key, 2) });
    watched.settle("with a seq", session, &ordered).await;
    watched.settle("a lone put", session, &one(put(&name(19), 3))).await;
    // The scope has the token by now.
    let scoped = |number| Write { scope: Key::new(&name(19)).ok(), ..put(&name(number), 3) };
    let scoped: Vec<Unit> = (0..5).map(|number| Unit::single(scoped(number))).collect();
    watched.settle("under a scope", session, &scoped).await;
    watched.settle("refused", session, &puts).await;
    let fenced_read = [Unit::fenced_read(claim(&name(0), 5))];
    watched.settle("a lone fenced read", session, &fenced_read).await;
    let batch = (0..TOGETHER).map(|number| put(&name(number), 6)).collect();
    watched.settle("a client's batch", session, &[Unit::atomic(batch)]).await;
    watched.settle("a lone put of a new key", session, &one(put("new/alone", 4))).await;

    let mut session = watched.writer().await;
    let new = together(|key| put(&format!("new/{key}"), 1));
    watched.settle("new keys", session.as_mut(), &new).await;

    let mut session = watched.store.connect_to_read_keys().await.unwrap();
    let keys: Vec<Key> = (0..TOGETHER).map(|number| Key::new(&name(number)).unwrap()).collect();
    session.read(&keys[0], INLINE_BYTES).await.unwrap();
    watched.look("a lone read", session.as_mut()).await;
    session.read_together(&keys, INLINE_BYTES).await.unwrap();
    watched.look("reads that come together", session.as_mut()).await;

    let mut session = watched.store.connect().await.unwrap();
    let page = Page { prefix: "key/".into(), after: String::new(), limit: 100 };
    session.list(&page).await.unwrap();
    watched.look("a listing", session.as_mut()).await;
    watched.seen
}

/// Nodes of a plan, from the root down.
fn shape(node: &Json, depth: usize, text: &mut String) {
    let of = |member: &str| node[member].as_str().unwrap_or_default();
    let whom = [of("Relation Name"), of("Index Name"), of("CTE Name")];
    let whom =
        whom.iter().filter(|it| !it.is_empty()).fold(String::new(), |all, it| all + " " + it);
    let what = if of("Node Type") == "ModifyTable" { of("Operation") } else { of("Node Type") };
    let _ = writeln!(text, "{}{what}{whom}", "  ".repeat(depth + 1));
    for child in node["Plans"].as_array().into_iter().flatten() {
        shape(child, depth + 1, text);
    }
}

fn shapes(seen: &[(&str, Vec<Json>)]) -> String {
    let mut text = String::new();
    for (what, plans) in seen {
        let _ = writeln!(text, "{what}");
        for plan in plans {
            shape(&plan["Plan"], 0, &mut text);
        }
    }
    text
}

fn nodes<'a>(node: &'a Json, all: &mut Vec<&'a Json>) {
    all.push(node);
    for child in node["Plans"].as_array().into_iter().flatten() {
        nodes(child, all);
    }
}

#[tokio::test]
async fn every_row_is_found_by_its_key_however_many_there_are() {
    let few = everything(TOGETHER).await;
    let many = everything(50_000).await;
    for (what, plans) in few.iter().chain(&many) {
        assert!(!plans.is_empty(), "{what}: no plan was seen");
        let mut all = Vec::new();
        for plan in plans {
            nodes(&plan["Plan"], &mut all);
        }
        for node in all {
            let kind = node["Node Type"].as_str().unwrap();
            assert!(!["Hash Join", "Merge Join", "Materialize"].contains(&kind), "{what}: {node}");
            if node["Relation Name"] == "resources" && kind != "ModifyTable" {
                assert!(["Index Scan", "Index Only Scan"].contains(&kind), "{what}: {node}");
                assert!(node["Index Cond"].as_str().unwrap().contains("key"), "{what}: {node}");
            }
        }
    }
    assert_eq!(shapes(&few), shapes(&many));
    insta::assert_snapshot!("shapes", shapes(&many));
}
