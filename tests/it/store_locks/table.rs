//! The table itself, one step at a time: what a row is told, and whom a change concerns.

use std::time::Duration;

use fencepost::{
    authority::LockEvent,
    store::lock_table::{Entered, Entry, LockTable, Place},
    token::Token,
};

use super::{TTL, key};
use crate::harness::{
    eventually,
    store::{TestStore, on_each_store},
};

/// What somebody who waits with [`TTL`] has without looking again.
const WAITING: Duration = Duration::from_secs(15);

async fn table(store: &TestStore) -> Box<dyn LockTable> {
    store.open().await.connect_lock_table().await.unwrap()
}

/// Enters the queue of lock `a`, to stay.
async fn enter(table: &mut dyn LockTable, lease: &str) -> (Token, Place) {
    let entry = Entry {
        name: key("a"),
        lease: lease.into(),
        owner: format!("the owner of {lease}"),
        identity: None,
        ttl: TTL,
        stays: true,
    };
    match table.enter(&entry).await.unwrap().outcome {
        Entered::In { token, place } => (token, place),
        Entered::TurnedAway { holder } => panic!("turned away by {holder:?}"),
    }
}

async fn remaining(table: &mut dyn LockTable) -> Duration {
    table.inspect(&key("a")).await.unwrap().holder.expect("a holder").remaining
}

on_each_store! {
    async fn whoever_looks_is_told_where_it_stands(store: TestStore) {
        let mut table = table(&store).await;
        let table = table.as_mut();
        let (first, place) = enter(table, "first").await;
        assert_eq!(place, Place::Holds);
        let (second, place) = enter(table, "second").await;
        assert!(matches!(place, Place::Waits { lease: WAITING, .. }), "{place:?}");
        let place = table.look(&key("a"), second).await.unwrap().outcome.expect("it is there");
        let Place::Waits { lease, ahead } = place else { panic!("{place:?}") };
        assert_eq!(lease, WAITING);
        assert!(ahead > WAITING && ahead <= TTL, "{ahead:?}");

        assert!(table.release(&key("a"), first).await.unwrap().outcome);
        assert_eq!(table.look(&key("a"), first).await.unwrap().outcome, None);
        assert_eq!(table.look(&key("a"), second).await.unwrap().outcome, Some(Place::Holds));
        // It has a holder's lease from then on, and that runs.
        let left = remaining(table).await;
        assert!(left > WAITING && left <= TTL, "{left:?}");
        eventually("it runs", || async {
            let mut table = self::table(&store).await;
            remaining(table.as_mut()).await < TTL
        })
        .await;
    }
}

on_each_store! {
    /// Whoever gives up may just have become the first without knowing: then it is the next one's turn.
    async fn whoever_leaves_as_the_first_makes_way(store: TestStore) {
        let mut table = table(&store).await;
        let table = table.as_mut();
        let (first, _) = enter(table, "first").await;
        let (second, _) = enter(table, "second").await;
        enter(table, "third").await;

        // Behind others, nobody has to be told.
        let left = table.leave(&key("a"), "third").await.unwrap();
        assert_eq!(left.outcome.map(|holder| holder.token), Some(first));
        assert_eq!((left.next, left.events), (None, vec![]));

        let left = table.leave(&key("a"), "first").await.unwrap();
        assert_eq!(left.outcome.map(|holder| holder.token), Some(second));
        assert_eq!(left.next.as_deref(), Some("second"));
        // Postgres tells those who watch by itself.
        let told = if store.is_postgres() { vec![] } else { vec![LockEvent::Released(Some(first))] };
        assert_eq!(left.events, told);
        assert_eq!(table.look(&key("a"), second).await.unwrap().outcome, Some(Place::Holds));

        // What is not there has left already.
        let left = table.leave(&key("a"), "first").await.unwrap();
        assert_eq!((left.next, left.events), (None, vec![]));
    }
}
