//! `bounded`, the default with an authority: a token that nobody can have been given is refused,
//! and moves no mark.

use serde_json::json;

use super::{FORGED, LONG, check_unissued};
use crate::harness::{authority::on_each_authority, fencepost::Fencepost, http::answer};

on_each_authority! {
    async fn a_forged_token_is_refused_and_moves_no_mark(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        for token in FORGED {
            for refused in [
                answer(client.put("k", token, "x")).await,
                answer(client.delete("k", token)).await,
                answer(client.claim("k", token)).await,
                answer(client.read("k").header("X-Fencing-Token", token)).await,
                answer(client.put("k", token, "x").header("X-Fencing-Scope", "lock")).await,
                answer(client.put("k", token, "x").header("If-None-Match", "*")).await,
                answer(client.put("k", token, "x").header("X-Fencing-Seq", 1)).await,
            ] {
                check_unissued(&refused, "k", token, 0);
            }
        }
        assert_eq!((client.mark("k").await, client.mark("lock").await), ((0, 0), (0, 0)));

        // Whoever got the lock is not locked out.
        let token = client.lock("k", LONG).await;
        assert_eq!(answer(client.put("k", token, "x")).await.status, 201);
        let refused = answer(client.put("k", token + (1 << 50), "y")).await;
        check_unissued(&refused, "k", token + (1 << 50), token);
        assert_eq!(refused.header("etag"), Some("\"1\""));
        assert_eq!(client.mark("k").await, (token, 0));
    }
}

on_each_authority! {
    async fn a_batch_says_which_token_was_forged(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let token = client.lock("lock", LONG).await;
        let batch = json!({"writes": [
            {"key": "a", "token": token, "value": 1},
            {"key": "b", "token": i64::MAX, "value": 2},
        ]});
        let refused = answer(client.batch(&batch)).await;
        assert_eq!((refused.status, refused.problem().as_str()), (422, "unissued-token"));
        assert_eq!((&refused.json()["index"], &refused.json()["key"]), (&json!(1), &json!("b")));
        assert_eq!((client.mark("a").await.0, client.mark("b").await.0), (0, 0));
        assert_eq!(answer(client.read("a")).await.status, 404);
    }
}

on_each_authority! {
    async fn a_token_from_another_fencepost_is_believed(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let [here, there] = servers.each_ref().map(Fencepost::client);
        for round in 0..3 {
            let key = format!("k{round}");
            let token = there.lock(&key, LONG).await;
            assert_eq!(answer(here.put(&key, token, "x")).await.status, 201);
            // One lock can guard other keys: their marks have not seen the token.
            assert_eq!(answer(here.put(&format!("other{round}"), token, "x")).await.status, 201);
        }
    }
}

on_each_authority! {
    /// A holder from the days when any token was believed goes on, and no further.
    async fn a_token_that_a_mark_has_reached_passes(authority: TestAuthority) {
        let earlier = 1 << 62;
        let open = authority.fencepost_with(&["--trust", "open"]).await;
        assert_eq!(answer(open.client().put("k", earlier, "1")).await.status, 201);
        let put = open.client().put("scoped", earlier, "1").header("X-Fencing-Scope", "s");
        assert_eq!(answer(put).await.status, 201);
        drop(open);
        let server = authority.fencepost().await;
        let client = server.client();
        // What is behind a mark is stale, whoever issued it; also to one that has yet to hear of the mark.
        let stale = answer(client.put("k", earlier - 1, "2")).await;
        assert_eq!((stale.status, stale.problem().as_str()), (409, "stale-token"));
        let behind = client.put("fresh", earlier - 1, "2").header("X-Fencing-Scope", "s");
        let stale = answer(behind).await;
        assert_eq!((stale.status, stale.problem().as_str()), (409, "stale-token"));
        assert_eq!(answer(client.put("k", earlier, "2")).await.status, 200);
        assert_eq!(answer(client.put("k", earlier, "3")).await.status, 200);
        let scoped = |scope: &str| client.put("scoped", earlier, "2").header("X-Fencing-Scope", scope);
        assert_eq!(answer(scoped("s")).await.status, 200);
        check_unissued(&answer(scoped("another")).await, "scoped", earlier, earlier);
        assert_eq!(client.mark("another").await, (0, 0));
        check_unissued(&answer(client.put("k", earlier + 1, "4")).await, "k", earlier + 1, earlier);
        let stale = answer(client.put("k", earlier - 1, "4")).await;
        assert_eq!((stale.status, stale.problem().as_str()), (409, "stale-token"));
    }
}
