//! A refusal that comes from memory says the same as one that comes from the store.

use crate::harness::{fencepost::Fencepost, http::answer, store::on_each_store};

on_each_store! {
    /// The mark has risen as a scope's, which says nothing about the value.
    async fn a_stale_write_to_a_scope_is_told_the_version_that_is_there(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("scope", 5, "x")).await.status, 201);
        let newer = client.put("key", 9, "x").header("X-Fencing-Scope", "scope");
        assert_eq!(answer(newer).await.status, 201);
        for _ in 0..2 {
            let stale = answer(client.put("scope", 8, "late")).await;
            assert_eq!(stale.status, 409);
            assert_eq!(stale.header("x-fencing-mark"), Some("9"));
            assert_eq!(stale.header("etag"), Some("\"1\""));
        }
    }
}

on_each_store! {
    /// One that knows the key only as a scope has to ask.
    async fn the_same_from_a_fencepost_that_never_saw_the_value(store: TestStore) {
        let first = Fencepost::on(&store).await;
        assert_eq!(answer(first.client().put("scope", 5, "x")).await.status, 201);
        drop(first);
        let second = Fencepost::on(&store).await;
        let client = second.client();
        let newer = client.put("key", 9, "x").header("X-Fencing-Scope", "scope");
        assert_eq!(answer(newer).await.status, 201);
        for _ in 0..2 {
            let stale = answer(client.put("scope", 8, "late")).await;
            assert_eq!((stale.status, stale.header("etag")), (409, Some("\"1\"")));
        }
    }
}

on_each_store! {
    /// What another fencepost has done is known here once somebody has looked.
    async fn a_read_teaches_what_others_have_written(store: TestStore) {
        let [here, there] = [Fencepost::on(&store).await, Fencepost::on(&store).await];
        assert_eq!(answer(here.client().put("key", 5, "x")).await.status, 201);
        assert_eq!(answer(there.client().delete("key", 9)).await.status, 204);
        assert_eq!(answer(here.client().read("key")).await.status, 404);
        let stale = answer(here.client().put("key", 4, "late")).await;
        assert_eq!((stale.status, stale.header("etag")), (409, None));
        assert_eq!(stale.header("x-fencing-mark"), Some("9"));
    }
}
