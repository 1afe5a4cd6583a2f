//! `granted`: only a claim raises a mark, so a write carries the very token that was granted for
//! its key or its scope.

use serde_json::json;

use super::{FORGED, LONG, check_unissued};
use crate::harness::{
    authority::on_each_authority,
    fencepost::{Fencepost, run},
    http::answer,
};

const GRANTED: [&str; 2] = ["--trust", "granted"];

on_each_authority! {
    async fn a_write_carries_the_token_that_was_granted_for_its_key(authority: TestAuthority) {
        let server = authority.fencepost_with(&GRANTED).await;
        let client = server.client();
        let other = client.lock("other", LONG).await;
        let token = client.lock("k", LONG).await;
        for wrong in FORGED.into_iter().chain([token + 1]) {
            check_unissued(&answer(client.put("k", wrong, "x")).await, "k", wrong, token);
            check_unissued(&answer(client.claim("k", wrong)).await, "k", wrong, token);
        }
        // An older one is behind the claim; a newer one that was granted for something else is not
        // this key's.
        assert_eq!(answer(client.put("k", other, "x")).await.problem(), "stale-token");
        let newer = client.lock("newer", LONG).await;
        check_unissued(&answer(client.put("k", newer, "x")).await, "k", newer, token);
        check_unissued(&answer(client.delete("k", newer)).await, "k", newer, token);
        let fenced_read = client.read("k").header("X-Fencing-Token", newer);
        check_unissued(&answer(fenced_read).await, "k", newer, token);
        assert_eq!(client.mark("k").await, (token, 0));

        assert_eq!(answer(client.put("k", token, "x")).await.status, 201);
        let fenced_read = client.read("k").header("X-Fencing-Token", token);
        assert_eq!(answer(fenced_read).await.text(), "x");
        assert_eq!(answer(client.claim("k", token)).await.status, 200);
        assert_eq!(answer(client.delete("k", token)).await.status, 204);
    }
}

on_each_authority! {
    async fn other_keys_are_written_under_the_lock_as_their_scope(authority: TestAuthority) {
        let servers = [authority.fencepost_with(&GRANTED).await, authority.fencepost_with(&GRANTED).await];
        let [client, other] = servers.each_ref().map(Fencepost::client);
        let token = client.lock("job", LONG).await;
        // Through one that has heard of the grant, and one that has not.
        for (client, key) in [(&client, "a"), (&other, "b")] {
            check_unissued(&answer(client.put(key, token, "x")).await, key, token, 0);
            let read = client.read(key).header("X-Fencing-Token", token);
            check_unissued(&answer(read).await, key, token, 0);
            assert_eq!(client.mark(key).await, (0, 0));
            let put = client.put(key, token, "x").header("X-Fencing-Scope", "job");
            assert_eq!(answer(put).await.status, 201);
            let read = client.read(key).header("X-Fencing-Token", token);
            assert_eq!(answer(read.header("X-Fencing-Scope", "job")).await.text(), "x");
            assert_eq!(client.mark(key).await, (token, 0));
            let forged = client.put(key, token + 1, "x").header("X-Fencing-Scope", "job");
            check_unissued(&answer(forged).await, key, token + 1, token);
            let foreign = client.put(key, token + 1, "x").header("X-Fencing-Scope", "unclaimed");
            check_unissued(&answer(foreign).await, key, token + 1, token);
        }
        assert_eq!(client.mark("unclaimed").await, (0, 0));
    }
}

on_each_authority! {
    async fn a_batch_says_which_write_has_no_grant(authority: TestAuthority) {
        let server = authority.fencepost_with(&GRANTED).await;
        let client = server.client();
        let token = client.lock("job", LONG).await;
        let batch = |scope: Option<&str>| json!({"writes": [
            {"key": "a", "token": token, "scope": "job", "value": 1},
            {"key": "b", "token": token, "scope": scope, "value": 2},
        ]});
        let refused = answer(client.batch(&batch(None))).await;
        assert_eq!((refused.status, refused.problem().as_str()), (422, "unissued-token"));
        assert_eq!((&refused.json()["index"], &refused.json()["key"]), (&json!(1), &json!("b")));
        assert_eq!(client.mark("a").await, (0, 0));
        assert_eq!(answer(client.batch(&batch(Some("job")))).await.status, 200);
    }
}

on_each_authority! {
    /// A holder that got its lock from the authority itself claims it; nobody else can.
    async fn a_claim_is_checked_with_the_authority(authority: TestAuthority) {
        let server = authority.fencepost_with(&GRANTED).await;
        let client = server.client();
        let earlier = client.lock("earlier", LONG).await;
        let (token, _held) = authority.lock_without_claim("k").await;
        let later = client.lock("later", LONG).await;
        assert!(earlier < token && token < later);
        check_unissued(&answer(client.put("k", token, "x")).await, "k", token, 0);
        for forged in FORGED.into_iter().chain([earlier, later, token + 1]) {
            check_unissued(&answer(client.claim("k", forged)).await, "k", forged, 0);
        }
        // Under another key as its scope a claim needs that key's grant.
        let scoped = client.claim("k", token).header("X-Fencing-Scope", "unclaimed");
        check_unissued(&answer(scoped).await, "k", token, 0);
        assert_eq!((client.mark("k").await, client.mark("unclaimed").await), ((0, 0), (0, 0)));
        assert_eq!(answer(client.claim("k", token)).await.status, 200);
        assert_eq!(answer(client.put("k", token, "x")).await.status, 201);
    }
}

on_each_authority! {
    async fn a_fenced_read_is_a_claim_too(authority: TestAuthority) {
        let server = authority.fencepost_with(&GRANTED).await;
        let client = server.client();
        let (token, _held) = authority.lock_without_claim("k").await;
        let read = |token| client.read("k").header("X-Fencing-Token", token);
        check_unissued(&answer(read(token + 1)).await, "k", token + 1, 0);
        assert_eq!(answer(read(token)).await.status, 404);
        assert_eq!(client.mark("k").await, (token, 0));
    }
}

on_each_authority! {
    async fn a_holder_from_before_goes_on_at_its_mark(authority: TestAuthority) {
        let earlier = 1 << 62;
        let open = authority.fencepost_with(&["--trust", "open"]).await;
        assert_eq!(answer(open.client().put("k", earlier, "1")).await.status, 201);
        drop(open);
        let server = authority.fencepost_with(&GRANTED).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", earlier, "2")).await.status, 200);
        check_unissued(&answer(client.put("k", earlier + 1, "3")).await, "k", earlier + 1, earlier);
    }
}

on_each_authority! {
    /// The floor is where marks were forgotten; no holder has been seen with that token.
    async fn the_floor_is_not_a_grant(authority: TestAuthority) {
        let floor = 1_i64 << 40;
        let open = authority.fencepost_with(&["--trust", "open"]).await;
        assert_eq!(answer(open.client().delete("below", floor - 1)).await.status, 204);
        assert_eq!(answer(open.client().delete("kept", floor)).await.status, 204);
        drop(open);
        let (to, flag) = (floor.to_string(), authority.flag());
        let raise = ["floor", "raise", &to, "--force", "--authority", &flag];
        let raised = run(&[&raise[..], &["--store", &authority.store.url]].concat());
        assert!(raised.status.success(), "{}", String::from_utf8_lossy(&raised.stderr));
        let server = authority.fencepost_with(&GRANTED).await;
        let client = server.client();
        for key in ["below", "never-seen"] {
            assert_eq!(client.mark(key).await.0, floor, "the floor shows");
            check_unissued(&answer(client.put(key, floor, "x")).await, key, floor, floor);
            let stale = answer(client.put(key, floor - 1, "x")).await;
            assert_eq!((stale.status, stale.problem().as_str()), (409, "stale-token"));
        }
        assert_eq!(answer(client.put("kept", floor, "x")).await.status, 201, "it was seen there");
    }
}
