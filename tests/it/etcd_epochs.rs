//! An etcd that has lost its memory is noticed before it grants anything, and tokens go on rising.

use std::{fs, sync::Arc, time::Duration};

use fencepost::{
    authority::{
        Ask, Authority, AuthorityError, LockEvent, Turn, etcd::identify, store::StoreAuthority,
    },
    store::{MoveReason, OwningAuthority, Recalled, Remembered, Sighting, Store},
    token::{Key, Token},
    write::Write,
};
use futures_util::StreamExt;

use crate::{
    etcd_locks::{acquire, ask, granted},
    harness::{
        PATIENCE,
        etcd::{self, Etcd, unique_key},
        eventually,
        postgres::Postgres,
        store::{TestStore, on_each_store},
    },
};

const EPOCH: i64 = 1 << 48;

async fn remembered(store: &Arc<dyn Store>) -> Remembered {
    let mut memory = store.connect_memory().await.expect("a connection");
    memory.recall().await.expect("an answer").expect("a row").row
}

on_each_store! {
    /// The usual story: a backup, more grants, a disaster, the backup.
    async fn an_etcd_restored_from_a_snapshot_moves_the_epoch_on(held: TestStore) {
        let (mut etcd, store) = (Etcd::start(&[]).await, held.open().await);
        let authority = Arc::new(etcd::authority(&etcd, &store));
        let name = unique_key("restored");
        let kept = acquire(&authority, &unique_key("kept"), Duration::ZERO).await;
        let snapshot = etcd.save_snapshot();
        let mut last = kept.token;
        for _ in 0..5 {
            let grant = acquire(&authority, &name, Duration::ZERO).await;
            assert!(authority.release(&name, grant.token).await.expect("an answer"));
            last = grant.token;
        }
        let before = remembered(&store).await;
        assert!(before.seen.revision >= last.get());

        etcd.kill();
        etcd.restore(&snapshot);
        etcd.run().await;

        let grant = acquire_soon(authority.as_ref(), &name).await;
        assert!(grant > last, "{grant} after {last}");
        let entry = etcd.entries(name.as_str())[0].1;
        assert!(entry <= last.get(), "etcd itself has gone backwards");
        assert_eq!(grant.get(), EPOCH + entry);
        let after = remembered(&store).await;
        assert_eq!((after.epoch, &after.seen.cluster), (1, &before.seen.cluster));
        assert_eq!(authority.status().epoch, 1);
        assert!(authority.newest_known() >= grant.get());
        // A grant of the earlier epoch is lost, even though its key is there again.
        assert_eq!(etcd.entries(kept.name.as_str()).len(), 1);
        assert_eq!(authority.renew(&kept.name, kept.token).await.expect("an answer"), None);
        assert!(!authority.release(&kept.name, kept.token).await.expect("an answer"));
    }
}

/// Its key is there again, and so is its lease. But others may have held the lock since.
#[tokio::test]
async fn a_grant_that_a_snapshot_brings_back_is_lost() {
    let (mut etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    let kept = acquire(&authority, &unique_key("kept"), Duration::ZERO).await;
    let snapshot = etcd.save_snapshot();
    acquire(&authority, &unique_key("later"), Duration::ZERO).await;
    etcd.kill();
    etcd.restore(&snapshot);
    etcd.run().await;
    let renewed = loop {
        match authority.renew(&kept.name, kept.token).await {
            Ok(renewed) => break renewed,
            // It has not noticed yet that etcd answers again.
            Err(AuthorityError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(etcd.entries(kept.name.as_str()).len(), 1);
    assert_eq!(renewed, None);
}

on_each_store! {
    async fn an_etcd_that_was_wiped_moves_the_epoch_on(held: TestStore) {
        let (mut etcd, store) = (Etcd::start(&[]).await, held.open().await);
        let authority = Arc::new(etcd::authority(&etcd, &store));
        let name = unique_key("wiped");
        let first = acquire(&authority, &name, Duration::ZERO).await;
        etcd.kill();
        fs::remove_dir_all(etcd.data()).expect("it is wiped");
        etcd.run().await;
        // Also for a fencepost that has never seen it before.
        let newcomer = etcd::authority(&etcd, &store);
        let second = acquire_soon(&newcomer, &name).await;
        assert!(second.get() > EPOCH && second > first.token);
        // Whoever has not noticed yet finds out when it hears of a later epoch.
        let renewed = authority.renew(&name, second).await.expect("an answer");
        assert!(renewed.is_some(), "a lock that is held");
        assert_eq!(authority.newest().await.expect("an answer") >> 48, 1);
    }
}

/// Each looks as if it had gone backwards beside the other. That must not use up the epochs.
#[tokio::test]
async fn an_epoch_does_not_move_back_and_forth_between_two_etcds() {
    for held in [TestStore::sqlite(), TestStore::postgres().await] {
        let store = held.open().await;
        let [ours, other] = [Etcd::start(&[]).await, Etcd::start(&[]).await];
        let first =
            acquire(&etcd::authority(&ours, &store), &unique_key("k"), Duration::ZERO).await;
        // It has come further, and would be taken for ours by its revision.
        while other.revision() <= first.token.get() + 10 {
            other.ctl(&["put", "noise", "more"]);
        }
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let etcd = if number % 2 == 0 { &ours } else { &other };
                let authority = etcd::authority(etcd, &store);
                tokio::spawn(async move {
                    for _ in 0..20 {
                        let turn =
                            authority.acquire(&ask(&unique_key("own"), "us", Duration::ZERO)).await;
                        match turn {
                            Ok(Turn::Granted(grant)) if number % 2 == 0 => {
                                assert_eq!(grant.token.get() >> 48, 0);
                            }
                            Err(AuthorityError::Foreign(_)) if number % 2 == 1 => {}
                            unexpected => panic!("{number}: {unexpected:?}"),
                        }
                    }
                    let newest = authority.newest().await;
                    assert_eq!(newest.is_ok(), number % 2 == 0, "{newest:?}");
                })
            })
            .collect();
        for client in clients {
            client.await.expect("no panic");
        }
        assert_eq!(remembered(&store).await.epoch, 0);
    }
}

/// As behind an address that leads to two restored copies in turn. They have the same cluster id.
#[tokio::test]
async fn an_epoch_moves_once_in_a_while_however_often_etcd_goes_backwards() {
    let (mut etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let store = held.open().await;
    let authority = etcd::authority(&etcd, &store);
    let name = unique_key("restless");
    // Both copies have the number that was left in etcd when it was met.
    acquire(&authority, &unique_key("met"), Duration::ZERO).await;
    let snapshot = etcd.save_snapshot();
    let first = acquire(&authority, &name, Duration::ZERO).await;
    etcd.kill();
    etcd.restore(&snapshot);
    etcd.run().await;
    eventually("the epoch moves", || async { authority.status().epoch == 1 }).await;
    // It goes on from there until it is restored again.
    while etcd.revision() < 50 {
        etcd.ctl(&["put", "noise", "more"]);
    }
    eventually("it is seen", || async { remembered(&store).await.seen.revision >= 50 }).await;
    etcd.kill();
    etcd.restore(&snapshot);
    // However slow this machine is, the move was a moment ago.
    let just_moved = async || {
        held.execute("UPDATE authority SET moved_at = unixepoch()").await.expect("a row");
    };
    just_moved().await;
    etcd.run().await;
    let refused = loop {
        just_moved().await;
        match authority.acquire(&ask(&name, "us", Duration::ZERO)).await {
            Err(AuthorityError::Unavailable(reason)) if reason.contains("epoch") => break reason,
            Err(AuthorityError::Unavailable(_)) => {}
            unexpected => panic!("{unexpected:?}"),
        }
    };
    assert!(refused.contains("more than one etcd"), "{refused}");
    assert_eq!(remembered(&store).await.epoch, 1);
    // Nothing but time is missing.
    held.execute("UPDATE authority SET moved_at = unixepoch() - 3600").await.expect("a row");
    let second = acquire_soon(&authority, &name).await;
    assert!(second > first.token && second.get() >> 48 == 2, "{second}");
}

on_each_store! {
    async fn all_who_notice_at_once_agree_on_one_step(held: TestStore) {
        let (mut etcd, store) = (Etcd::start(&[]).await, held.open().await);
        let authorities: Vec<_> =
            (0..4).map(|_| Arc::new(etcd::authority(&etcd, &store))).collect();
        let name = unique_key("agreed");
        for authority in &authorities {
            let grant = acquire(authority, &name, Duration::ZERO).await;
            assert!(authority.release(&name, grant.token).await.expect("an answer"));
        }
        etcd.kill();
        fs::remove_dir_all(etcd.data()).expect("it is wiped");
        etcd.run().await;
        let tasks: Vec<_> = authorities
            .iter()
            .map(|authority| {
                let (authority, name) = (authority.clone(), unique_key("own"));
                tokio::spawn(async move { acquire_soon(authority.as_ref(), &name).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.expect("no panic").get() >> 48, 1);
        }

        assert_eq!(remembered(&store).await.epoch, 1, "one step, however many have noticed");
    }
}

#[tokio::test]
async fn a_waiter_over_a_move_is_granted_a_token_of_the_new_epoch() {
    let (mut etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let store = held.open().await;
    let authority = Arc::new(etcd::authority(&etcd, &store));
    let name = unique_key("over");
    let short = Ask { ttl: Duration::from_secs(10), ..ask(&name, "short", Duration::ZERO) };
    let first = granted(authority.acquire(&short).await.expect("an answer"));
    let mut events = authority.watch(&name).await.expect("a watch");
    assert!(matches!(events.next().await, Some(LockEvent::Granted(_))));
    let long = ask(&name, "long", PATIENCE * 2);
    let waiting = tokio::spawn({
        let authority = authority.clone();
        async move { granted(authority.acquire(&long).await.expect("an answer")) }
    });
    eventually("it waits", || async { etcd.entries(name.as_str()).len() == 2 }).await;
    // Both entries are in the snapshot; what comes after it is lost.
    let snapshot = etcd.save_snapshot();
    let other = acquire(&authority, &unique_key("other"), Duration::ZERO).await;
    etcd.kill();
    etcd.restore(&snapshot);
    etcd.run().await;
    // The first holder has lost its lock; nobody renews it, so it ends.
    let second = waiting.await.expect("no panic");
    assert_eq!(second.token.get() >> 48, 1, "{}", second.token);
    assert!(second.token > other.token && second.token > first.token);
    assert_eq!(etcd.entries(name.as_str())[0].1, second.token.get() - EPOCH);
    let told = async {
        loop {
            match events.next().await {
                Some(LockEvent::Granted(holder)) if holder.token == second.token => return true,
                Some(_) => {}
                None => return false,
            }
        }
    };
    assert!(tokio::time::timeout(PATIENCE, told).await.expect("in time"));
}

#[tokio::test]
async fn an_idle_fencepost_notices_too() {
    let (mut etcd, held) = (Etcd::start(&[]).await, TestStore::sqlite());
    let authority = etcd::authority(&etcd, &held.open().await);
    let _ = acquire(&authority, &unique_key("idle"), Duration::ZERO).await;
    assert!(authority.status().up);
    etcd.kill();
    eventually("it is known to be down", || async { !authority.status().up }).await;
    fs::remove_dir_all(etcd.data()).expect("it is wiped");
    etcd.run().await;
    eventually("the epoch moves", || async { authority.status().epoch == 1 }).await;
    assert!(authority.status().up);
}

on_each_store! {
    async fn a_first_meeting_begins_above_everything_that_was_seen(held: TestStore) {
        let (etcd, store) = (etcd::shared().await, held.open().await);
        let mut session = store.connect().await.expect("a session");
        let seen = [5 * EPOCH + 1_000_000_000, 1 << 62, i64::MAX];
        for (number, token) in seen.into_iter().enumerate() {
            let key = Key::new(&format!("seen-{number}")).expect("a name");
            let claim = Write::claim(key, Token::new(token).expect("a token"));
            for settled in session.settle(&[fencepost::store::Unit::single(claim)]).await {
                settled.expect("it is accepted");
            }
        }
        let authority = etcd::authority(etcd, &store);
        let grant = acquire(&authority, &unique_key("first"), Duration::ZERO).await;
        // Nobody issues tokens of 2^62 and more, so a forged one does not use up the epochs.
        assert_eq!(grant.token.get() >> 48, 6, "{}", grant.token);
    }
}

on_each_store! {
    async fn tokens_rise_when_the_lock_table_was_the_authority_in_between(held: TestStore) {
        let (etcd, store) = (Etcd::start(&[]).await, held.open().await);
        let name = unique_key("switched");
        let mut last = 0;
        for round in 0..3 {
            let etcds: Vec<_> = (0..3).map(|_| etcd::authority(&etcd, &store)).collect();
            // Before anything is granted, too.
            let newest = etcds[0].newest().await.expect("an answer");
            assert!(newest >= last, "{newest} after {last}");
            for authority in &etcds {
                let grant = acquire(authority, &name, Duration::ZERO).await;
                assert!(grant.token.get() > last, "{} after {last}", grant.token);
                assert_eq!(grant.token.get() >> 48, round, "one step for each switch");
                assert!(authority.release(&name, grant.token).await.expect("an answer"));
                last = grant.token.get();
            }
            drop(etcds);
            store.move_authority(&OwningAuthority::store(), None).await.expect("it is moved");
            let table = StoreAuthority::new(&store);
            // More than etcd will have come on by itself.
            for _ in 0..20 {
                let grant = granted(
                    table.acquire(&ask(&name, "us", Duration::ZERO)).await.expect("an answer"),
                );
                assert!(grant.token.get() > last, "{} after {last}", grant.token);
                assert!(table.release(&name, grant.token).await.expect("an answer"));
                last = grant.token.get();
            }
            let (named, seen) = identify(etcd::options(&[&etcd])).await.expect("an answer");
            store.move_authority(&named, Some(&seen)).await.expect("it is moved back");
        }
    }
}

on_each_store! {
    async fn tokens_are_above_a_floor_that_has_risen_meanwhile(held: TestStore) {
        let (etcd, store) = (etcd::shared().await, held.open().await);
        let epoch_of_next = async || {
            let restarted = etcd::authority(etcd, &store);
            let grant = acquire(&restarted, &unique_key("floor"), Duration::ZERO).await;
            grant.token.get() >> 48
        };
        assert_eq!(epoch_of_next().await, 0);
        let floor = 3 * EPOCH + 1_000_000_000;
        held.execute(&format!("UPDATE floor SET token = {floor}")).await.expect("a floor");
        assert_eq!(epoch_of_next().await, 4);
        // Nobody issues tokens of 2^62 and more, so a forged one does not use up the epochs.
        held.execute(&format!("UPDATE floor SET token = {}", 1_i64 << 62)).await.expect("a floor");
        assert_eq!(epoch_of_next().await, 4);
    }
}

#[tokio::test]
async fn nothing_is_granted_or_believed_while_the_store_is_away() {
    let mut postgres = Postgres::start(&["fsync=off"]).await;
    let url = postgres.database("").await;
    let held = fencepost::store::postgres::PostgresStore::new(&url, 4).expect("a URL");
    held.migrate().await.expect("a schema");
    let store: Arc<dyn Store> = Arc::new(held);
    let etcd = etcd::shared().await;
    let authority = etcd::authority(etcd, &store);
    let name = unique_key("away");
    let first = acquire(&authority, &name, Duration::ZERO).await;
    let known = authority.newest_known();
    assert!(known >= first.token.get());
    postgres.stop("immediate").await;
    let other = unique_key("away-too");
    for _ in 0..2 {
        let refused = authority.acquire(&ask(&other, "us", Duration::ZERO)).await;
        assert!(matches!(refused, Err(AuthorityError::Store(_))), "{refused:?}");
        let refused = authority.newest().await;
        assert!(matches!(refused, Err(AuthorityError::Store(_))), "{refused:?}");
    }
    assert_eq!(authority.newest_known(), known);
    eventually("no entry is left", || async { etcd.entries(other.as_str()).is_empty() }).await;
    // What is held stays held meanwhile.
    assert_eq!(authority.renew(&name, first.token).await.expect("an answer"), Some(first.ttl));
    postgres.run().await;
    assert!(acquire_soon(&authority, &other).await > first.token);
}

#[tokio::test]
async fn a_note_never_lowers_what_is_remembered() {
    for held in [TestStore::sqlite(), TestStore::postgres().await] {
        let store = held.open().await;
        let mut memory = store.connect_memory().await.expect("a connection");
        let at = |revision, term| Sighting { revision, cluster: "c".into(), term };
        assert_eq!(memory.recall().await.expect("an answer"), None);
        let first = Remembered { epoch: 3, seen: at(10, 2) };
        assert_eq!(memory.adopt(&first).await.expect("an answer"), first);
        let rival = Remembered { epoch: 0, seen: at(99, 9) };
        assert_eq!(memory.adopt(&rival).await.expect("an answer"), first);
        assert_eq!(memory.note(3, &at(7, 3)).await.expect("an answer").seen, at(10, 3));
        assert_eq!(memory.note(3, &at(12, 1)).await.expect("an answer").seen, at(12, 3));
        // Of another epoch, nothing is noted.
        assert_eq!(memory.note(2, &at(99, 9)).await.expect("an answer").seen, at(12, 3));
        let next = Remembered { epoch: 4, seen: at(1, 1) };
        let backwards = MoveReason::WentBackwards;
        assert_eq!(memory.move_on(2, &next, backwards).await.expect("an answer").epoch, 3);
        assert_eq!(memory.move_on(3, &next, backwards).await.expect("an answer"), next);
        // It has just moved for that reason. There are others.
        let later = Remembered { epoch: 5, ..next.clone() };
        assert_eq!(memory.move_on(4, &later, backwards).await.expect("an answer"), next);
        let overtaken = MoveReason::Overtaken;
        assert_eq!(memory.move_on(4, &later, overtaken).await.expect("an answer"), later);
        // A clock that was set back is no reason to wait, nor is a move of long ago.
        let (ahead, ago) = if held.is_postgres() {
            ("now() + interval '1 h'", "now() - interval '10 s'")
        } else {
            ("unixepoch() + 3600", "unixepoch() - 10")
        };
        for (epoch, moved_at) in [(6, ahead), (7, ago)] {
            held.execute(&format!("UPDATE authority SET moved_at = {moved_at}"))
                .await
                .expect("a row");
            let later = Remembered { epoch, ..next.clone() };
            let moved = memory.move_on(epoch - 1, &later, backwards).await.expect("an answer");
            assert_eq!(moved, later);
        }
        let owner = Some(OwningAuthority {
            kind: "etcd".into(),
            identity: Some("c".into()),
            namespace: None,
            instance: None,
        });
        let next = Recalled { row: Remembered { epoch: 7, ..next }, issued: 0, owner };
        assert_eq!(memory.recall().await.expect("an answer"), Some(next));
        assert_eq!(memory.highest_token().await.expect("an answer"), 0);
    }
}

/// The token of a grant, as soon as etcd and the store answer again.
async fn acquire_soon(authority: &dyn Authority, name: &Key) -> Token {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match authority.acquire(&ask(name, "again", Duration::ZERO)).await {
            Ok(Turn::Granted(grant)) => return grant.token,
            Err(AuthorityError::Unavailable(_) | AuthorityError::Store(_))
                if tokio::time::Instant::now() < deadline => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
