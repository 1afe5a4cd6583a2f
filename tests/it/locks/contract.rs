//! Acquire, renew, release, inspect, list: what each of them answers.

use serde_json::json;

use super::{LONG, SHORT, STEADY};
use crate::harness::{
    authority::on_each_authority,
    fencepost::Fencepost,
    http::{answer, send},
    locks::millis,
};

on_each_authority! {
    async fn a_lock_is_acquired_and_says_so(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let terms = json!({"ttl_ms": 600_000, "owner": "billing-7"});
        let granted = answer(client.acquire("orders/42", &terms)).await;
        assert_eq!(granted.status, 201, "{}", granted.text());
        let grant = granted.json();
        let token = grant["token"].as_i64().expect("a token");
        assert_eq!(granted.header("x-fencing-token"), Some(token.to_string().as_str()));
        assert!(!grant["lease"].as_str().expect("a lease").is_empty());
        let expected = json!({"name": "orders/42", "token": token, "owner": "billing-7",
            "ttl_ms": 600_000, "lease": grant["lease"]});
        assert_eq!(grant, expected);

        let mut lock = client.inspect("orders/42").await;
        let left = lock["ttl_ms"].take().as_u64().expect("milliseconds");
        assert!((1..=600_000).contains(&left), "{left}");
        let expected = json!({"name": "orders/42", "held": true, "token": token,
            "owner": "billing-7", "ttl_ms": null, "waiters": 0});
        assert_eq!(lock, expected);
        assert_eq!(client.mark("orders/42").await, (token, 0), "the claim");
    }
}

on_each_authority! {
    async fn a_lock_that_is_held_says_by_whom_and_for_how_long(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let token = client.lock("k", LONG).await;
        let held = answer(client.acquire("k", &json!({}))).await;
        assert_eq!((held.status, held.problem().as_str()), (423, "lock-held"));
        let seconds: u64 = held.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=600).contains(&seconds), "{seconds}");
        let problem = held.json();
        assert_eq!((&problem["key"], &problem["holder"]["token"]), (&json!("k"), &json!(token)));
        assert_eq!(problem["holder"]["owner"], "");
        assert!(problem["holder"]["ttl_ms"].as_u64().is_some_and(|left| left <= 600_000));
        assert_eq!(problem["retryable"], true);
    }
}

on_each_authority! {
    async fn a_renewal_makes_the_lease_whole_again(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        // Longer than a busy machine keeps a test from its next renewal.
        let lease = STEADY * 4 / 3;
        let token = client.lock("k", lease).await;
        let begun = std::time::Instant::now();
        while begun.elapsed() < lease + SHORT {
            let renewed = answer(client.renew("k", token)).await;
            assert_eq!((renewed.status, renewed.json()), (200, json!({"ttl_ms": millis(lease)})));
            tokio::time::sleep(SHORT / 5).await;
        }
        assert_eq!(client.holder("k").await, token);
    }
}

on_each_authority! {
    async fn a_lease_that_is_not_renewed_ends(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let first = client.lock("k", SHORT).await;
        let second = client.lock("k", LONG).await;
        assert!(second > first);
        for lost in [
            answer(client.renew("k", first)).await,
            answer(client.release("k", first)).await,
        ] {
            assert_eq!((lost.status, lost.problem().as_str()), (409, "lock-lost"));
            let expected = json!({"type": "urn:fencepost:lock-lost", "status": 409, "key": "k",
                "token": first, "retryable": false});
            assert_eq!(lost.members(), expected);
        }
        assert_eq!(client.holder("k").await, second, "the successor was not touched");
    }
}

on_each_authority! {
    async fn a_released_lock_is_free_and_stays_released(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let token = client.lock("k", LONG).await;
        let released = answer(client.release("k", token)).await;
        assert_eq!((released.status, released.body.len()), (204, 0));
        let free = json!({"name": "k", "held": false, "token": 0, "owner": "", "ttl_ms": 0,
            "waiters": 0});
        assert_eq!(client.inspect("k").await, free);
        assert_eq!(answer(client.renew("k", token)).await.problem(), "lock-lost");
        assert_eq!(answer(client.release("k", token)).await.problem(), "lock-lost");
        assert_eq!(client.inspect("k").await, free, "a renewal never resurrects");
        assert_eq!(client.mark("k").await, (token, 0), "the mark stays");
        assert!(client.lock("k", LONG).await > token);
    }
}

on_each_authority! {
    async fn only_the_token_that_holds_can_renew_or_release(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let other = client.lock("other", LONG).await;
        let token = client.lock("k", LONG).await;
        for wrong in [other, token + 1, 1 << 40, i64::MAX] {
            // In this order: whoever fails to renew is forgotten.
            assert_eq!(answer(client.release("k", wrong)).await.problem(), "lock-lost", "{wrong}");
            assert_eq!(answer(client.renew("k", wrong)).await.problem(), "lock-lost", "{wrong}");
        }
        assert_eq!(client.holder("k").await, token);
        assert_eq!(client.holder("other").await, other);
        // What was ended behind our back is not released by us.
        authority.remove_holder("k").await;
        assert_eq!(answer(client.release("k", token)).await.problem(), "lock-lost");
    }
}

on_each_authority! {
    /// Tokens can be guessed, and somebody who waits has one, too.
    async fn nobody_who_waits_can_be_put_out_of_the_queue(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let [client, other] = servers.each_ref().map(Fencepost::client);
        let token = client.lock("k", LONG).await;
        let waiter = tokio::spawn({
            let client = servers[0].client();
            async move { client.lock("k", LONG).await }
        });
        client.until_waiting("k", 1).await;
        let guesses = token + 1..token + 10;
        for client in [&client, &other] {
            for guess in guesses.clone() {
                for lost in [
                    // Also after a renewal was tried.
                    answer(client.release("k", guess)).await,
                    answer(client.renew("k", guess)).await,
                    answer(client.release("k", guess)).await,
                ] {
                    assert_eq!((lost.status, lost.problem().as_str()), (409, "lock-lost"));
                }
            }
        }
        let lock = client.inspect("k").await;
        assert_eq!((&lock["token"], &lock["waiters"]), (&json!(token), &json!(1)));
        // Whoever has been granted the lock can release it anywhere.
        assert_eq!(answer(other.release("k", token)).await.status, 204);
        let next = waiter.await.expect("no panic");
        assert!(guesses.contains(&next), "{next} was among the guesses");
    }
}

on_each_authority! {
    async fn the_locks_that_are_held_are_listed_by_name(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let list = async |query: &str| {
            let page = answer(client.get(&format!("/v1/locks{query}"))).await;
            assert_eq!(page.status, 200, "{}", page.text());
            let page = page.json();
            let locks = page["locks"].as_array().expect("locks");
            let names: Vec<_> = locks.iter().map(|lock| lock["name"].clone()).collect();
            (json!(names), page["next"].clone(), locks.clone())
        };
        assert_eq!(list("").await.0, json!([]));
        let token = client.lock("orders/%2542", LONG).await;
        client.lock("orders/7/", LONG).await;
        client.lock("orders", LONG).await;
        let gone = client.lock("orders/43", LONG).await;
        client.lock("\u{fc}ber", LONG).await;
        assert_eq!(answer(client.release("orders/43", gone)).await.status, 204);

        let (names, next, locks) = list("?prefix=orders/").await;
        assert_eq!((names, next), (json!(["orders/%42", "orders/7/"]), json!(null)));
        assert_eq!((&locks[0]["token"], &locks[0]["owner"]), (&json!(token), &json!("")));
        assert!(locks[0]["ttl_ms"].as_u64().is_some_and(|left| left > 30_000));
        assert_eq!(list("").await.0, json!(["orders", "orders/%42", "orders/7/", "\u{fc}ber"]));
        let (names, next, _) = list("?limit=2").await;
        assert_eq!((names, next), (json!(["orders", "orders/%42"]), json!("orders/%42")));
        let (names, next, _) = list("?limit=2&after=orders/%2542").await;
        assert_eq!((names, next), (json!(["orders/7/", "\u{fc}ber"]), json!(null)));
    }
}

on_each_authority! {
    /// Names that could be taken for one another, or for something else, are not.
    async fn every_name_is_a_lock_of_its_own(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let names = ["a", "a/", "a/b", "a//b", "a/b/", "%2Fa", ".", "..", "a%00b", "A", "a%20", "%25",
            "*", "%F0%9F%94%92", "a%0Ab"];
        for name in names {
            // A client library would tidy some of them up.
            let granted =
                send(&server.address, "POST", &format!("/v1/locks/{name}"), &[], "").await;
            let expected = if name == "a%00b" { 400 } else { 201 };
            assert_eq!(granted.status, expected, "{name}: {}", granted.text());
        }
        let held = answer(client.acquire("a%2Fb", &json!({}))).await;
        assert_eq!(held.problem(), "lock-held", "an escaped slash is a slash");
    }
}
