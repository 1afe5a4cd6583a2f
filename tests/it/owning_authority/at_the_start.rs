//! Who may serve on a store, and who is refused: `serve`, `check` and `fencepost authority`.

use std::sync::Arc;

use fencepost::store::{OwningAuthority, Store};
use futures_util::future::join_all;
use serde_json::Value;

use super::{is_mismatch, lock, move_to, recorded, serve, try_lock};
use crate::harness::{
    etcd::{self, Etcd},
    eventually,
    fencepost::{Fencepost, run, run_discreetly},
    store::{TestStore, on_each_store},
};

async fn refusal(store: &TestStore, authority: &str, flags: &[&str]) -> String {
    let flags = [&["--authority", authority], flags].concat();
    let refused = Fencepost::start_as_it_is(&store.to_serve().await, &flags).refusal().await;
    assert!(refused.contains("fencepost authority move"), "{refused}");
    refused
}

/// The finding of `check` about the record: its status and what it says.
fn finding(store: &str, authority: &str, flags: &[&str]) -> (String, String) {
    let given = ["check", "--store", store, "--authority", authority, "-o", "json"];
    let checked = run_discreetly(&[&given, flags].concat());
    let report: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let groups = report["groups"].as_array().expect("groups").iter();
    let checks = groups.flat_map(|group| group["checks"].as_array().expect("checks"));
    let owner = checks.into_iter().find(|check| check["name"] == "owner").expect("a finding");
    let said = |name: &str| owner[name].as_str().expect("text").to_owned();
    (said("status"), said("detail"))
}

on_each_store! {
    async fn another_authority_than_the_first_is_refused(store: TestStore) {
        let [first, other] = [Etcd::start(&[]).await, Etcd::start(&[]).await];
        let serving = store.to_serve().await;
        let running = serve(&store, &first.url(), &["--etcd-prefix", "ours"]).await;
        let token = lock(&running.client(), "k").await;
        let ours = recorded(&store).await;
        assert_eq!((ours.kind.as_str(), ours.namespace.as_deref()), ("etcd", Some("ours/")));

        for (authority, flags) in [
            ("store", &[][..]),
            ("none", &[]),
            (&first.url(), &[]),
            (&first.url(), &["--etcd-prefix", "theirs"]),
            (&other.url(), &["--etcd-prefix", "ours"]),
        ] {
            let refused = refusal(&store, authority, flags).await;
            assert!(refused.contains("the store belongs to etcd"), "{refused}");
            let (status, said) = finding(&serving, authority, flags);
            assert_eq!(status, "failed", "{said}");
        }
        assert_eq!(recorded(&store).await, ours);
        let (status, said) = finding(&serving, &first.url(), &["--etcd-prefix", "ours/"]);
        assert_eq!((status.as_str(), said.contains("belongs to etcd")), ("ok", true), "{said}");
        // Another with the same authority is welcome, and both exclude each other.
        drop(running);
        let next = serve(&store, &first.url(), &["--etcd-prefix", "ours/"]).await;
        let held = try_lock(&next.client(), "k").await;
        assert_eq!((held.status, held.json()["holder"]["token"].as_i64()), (423, Some(token)));
    }
}

on_each_store! {
    async fn a_store_without_etcd_refuses_one(store: TestStore) {
        let etcd = etcd::shared().await;
        for kind in ["none", "store"] {
            if kind == "store" {
                move_to(&store, kind, &[]).await;
            }
            drop(serve(&store, kind, &[]).await);
            assert_eq!(recorded(&store).await.kind, kind);
            let other = if kind == "none" { "store" } else { "none" };
            for authority in [&etcd.url(), other] {
                let refused = refusal(&store, authority, &[]).await;
                assert!(refused.contains(&format!("belongs to {kind}, not to ")), "{refused}");
            }
            drop(serve(&store, kind, &[]).await);
        }
    }
}

on_each_store! {
    async fn of_those_that_claim_at_once_one_wins(store: TestStore) {
        let opened: Arc<dyn Store> = store.open().await;
        let etcd = |cluster: &str| OwningAuthority {
            kind: "etcd".into(),
            identity: Some(cluster.into()),
            namespace: Some(String::new()),
            instance: None,
        };
        let rivals =
            [OwningAuthority::store(), OwningAuthority::none(), etcd("a"), etcd("b"), etcd("c")];
        let claims = rivals.iter().cycle().take(20).map(|rival| {
            let (opened, rival) = (opened.clone(), rival.clone());
            tokio::spawn(async move { opened.claim_authority(&rival).await.expect("an answer") })
        });
        let stand = join_all(claims).await;
        let winner = recorded(&store).await;
        assert!(rivals.contains(&winner));
        assert!(stand.into_iter().all(|stands| stands.expect("no panic") == winner));
        assert_eq!(rivals.iter().filter(|rival| winner.check(rival).is_ok()).count(), 1);
    }
}

#[tokio::test]
async fn of_two_servers_that_start_at_once_one_serves() {
    let (etcd, store) = (etcd::shared().await, TestStore::postgres().await);
    let serving = store.to_serve().await;
    let mut servers = [etcd.url(), "store".into()]
        .map(|authority| Fencepost::start_as_it_is(&serving, &["--authority", &authority]));
    let mut running = || servers.iter_mut().filter_map(|s| s.is_running().then_some(())).count();
    while running() == 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let kind = recorded(&store).await.kind;
    let [with_etcd, with_table] = servers;
    let (winner, loser) =
        if kind == "etcd" { (with_etcd, with_table) } else { (with_table, with_etcd) };
    let refused = loser.refusal().await;
    assert!(refused.contains(&format!("belongs to {kind}")), "{refused}");
    winner.wait_until_ready().await;
    lock(&winner.client(), &etcd::unique("k")).await;
}

/// The store is claimed for etcd at once, and for its cluster as soon as that is known.
#[tokio::test]
async fn an_etcd_that_is_away_claims_the_store_all_the_same() {
    let (mut etcd, store) = (Etcd::start(&[]).await, TestStore::sqlite());
    etcd.kill();
    let server = serve(&store, &etcd.url(), &[]).await;
    let claimed = recorded(&store).await;
    assert_eq!((claimed.kind.as_str(), &claimed.identity), ("etcd", &None));
    assert!(
        refusal(&store, "store", &[]).await.contains("belongs to etcd (cluster not known yet)")
    );
    etcd.run().await;
    eventually("the cluster is recorded", || async { recorded(&store).await.identity.is_some() })
        .await;
    lock(&server.client(), "k").await;
}

on_each_store! {
    async fn the_command_shows_the_record_and_moves_it_only_when_told_to(store: TestStore) {
        let serving = store.to_serve().await;
        store.open().await;
        let command = |arguments: &[&str]| {
            let output = run(&[&["authority", "--store", &serving, "-o", "json"], arguments].concat());
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        let (code, _, said) = command(&[]);
        assert_eq!((code, said.contains("no authority yet")), (Some(1), true), "{said}");
        drop(serve(&store, "store", &[]).await);
        let (code, shown, _) = command(&[]);
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!((code, &shown["kind"]), (Some(0), &Value::from("store")));

        for (arguments, expected, says) in [
            (&["move", "--to", "none"][..], 1, "--yes"),
            (&["move"], 64, "--to"),
            (&["--to", "none"], 64, "authority move"),
            (&["move", "--to", "etcd://u:s3cret@127.0.0.1:1", "--yes"], 64, "password"),
            (&["move", "--to", "etcd://127.0.0.1:1", "--yes"], 69, "etcd does not answer"),
            (&["move", "--to", "store", "--yes"], 0, "already"),
        ] {
            let (code, _, said) = command(arguments);
            assert_eq!((code, said.contains(says)), (Some(expected), true), "{arguments:?}: {said}");
            assert!(!said.contains("s3cret"), "{said}");
            assert_eq!(recorded(&store).await, OwningAuthority::store());
        }
        let (code, _, said) = command(&["move", "--to", "none", "--yes"]);
        assert_eq!((code, said.contains("must acquire it again")), (Some(0), true), "{said}");
        assert_eq!(recorded(&store).await, OwningAuthority::none());
    }
}

/// What an etcd with default settings says of itself: every one has the same cluster id.
const DEFAULTS: [&str; 2] = [
    "--initial-cluster=alone=http://localhost:2380",
    "--initial-advertise-peer-urls=http://localhost:2380",
];

/// The one that was used last grants locks, and the other one nothing, from the first request on.
#[tokio::test]
async fn of_two_etcds_with_one_cluster_id_one_grants() {
    let [one, other] = [Etcd::start(&DEFAULTS).await, Etcd::start(&DEFAULTS).await];
    let store = TestStore::postgres().await;
    let serving = store.to_serve().await;
    let first = serve(&store, &one.url(), &[]).await;
    let held = lock(&first.client(), "a").await;
    assert_eq!(finding(&serving, &one.url(), &[]).0, "ok");
    // It has no number, so it is taken for the store's own that was emptied.
    let second = serve(&store, &other.url(), &[]).await;
    let newer = lock(&second.client(), "b").await;
    assert_eq!((held >> 48, newer >> 48), (0, 1));
    for name in ["b", "c"] {
        is_mismatch(&try_lock(&first.client(), name).await);
    }
    let refused = refusal(&store, &one.url(), &[]).await;
    assert!(refused.contains("made apart from it"), "{refused}");
    let (status, said) = finding(&serving, &one.url(), &[]);
    assert_eq!(status, "failed", "{said}");
    assert_eq!(finding(&serving, &other.url(), &[]).0, "ok");
    let flag = one.url();
    let compact = ["compact", "--older-than", "0s", "--authority", &flag, "--store", &store.url];
    assert_eq!(run(&compact).status.code(), Some(1));
    assert_eq!(lock(&second.client(), "c").await >> 48, 1, "no epoch moves back and forth");

    // An operator decides.
    move_to(&store, &one.url(), &[]).await;
    eventually("locks are granted again", || async {
        try_lock(&first.client(), "d").await.status == 201
    })
    .await;
    is_mismatch(&try_lock(&second.client(), "e").await);
}

#[tokio::test]
async fn an_etcd_with_default_settings_is_warned_about() {
    let (etcd, store) = (Etcd::start(&DEFAULTS).await, TestStore::sqlite());
    let server = serve(&store, &etcd.url(), &[]).await;
    lock(&server.client(), "k").await;
    assert_eq!(recorded(&store).await.identity.as_deref(), Some("cdf818194e3a8c32"));
    eventually("it is logged", || async {
        server
            .log()
            .lines()
            .any(|line| line.contains("WARN") && line.contains("--initial-cluster-token"))
    })
    .await;
    let serving = store.to_serve().await;
    let authority = etcd.url();
    let given = ["check", "--store", &serving, "--authority", &authority, "-o", "json"];
    let report = String::from_utf8_lossy(&run_discreetly(&given).stdout).into_owned();
    assert!(report.contains("cdf818194e3a8c32 is the cluster id of every etcd"), "{report}");
    assert_eq!(finding(&serving, &authority, &[]).0, "ok", "the record itself is right");
}
