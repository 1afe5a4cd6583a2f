//! Looking at marks, claiming them, and reads that claim.

use reqwest::Method;
use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{Client, answer},
    store::on_each_store,
};

fn fenced_read(client: &Client, key: &str, token: i64) -> reqwest::RequestBuilder {
    client.read(key).header("X-Fencing-Token", token)
}

on_each_store! {
    async fn a_key_that_nobody_has_touched_has_the_mark_0(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let unseen = answer(client.get("/v1/marks/a%2Fb")).await;
        assert_eq!(unseen.status, 200);
        assert_eq!(unseen.header("content-type"), Some("application/json"));
        assert_eq!(unseen.json(), json!({"key": "a/b", "token": 0, "seq": 0}));
        assert_eq!(unseen.fencing(), (Some("0"), None));
        let head = answer(client.request(Method::HEAD, "/v1/marks/a/b")).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.fencing(), (Some("0"), None));
    }
}

on_each_store! {
    async fn a_mark_is_that_of_the_last_write(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "v").header("X-Fencing-Seq", 3)).await;
        let mark = answer(client.get("/v1/marks/k")).await;
        assert_eq!(mark.json(), json!({"key": "k", "token": 5, "seq": 3}));
        assert_eq!(mark.fencing(), (Some("5"), Some("\"1\"")));
    }
}

on_each_store! {
    async fn a_claim_raises_the_mark_and_writes_nothing(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        // Equal is accepted, and changes nothing.
        for _ in 0..2 {
            let claimed = answer(client.claim("k", 5)).await;
            assert_eq!(claimed.status, 200);
            assert_eq!(claimed.header("content-type"), Some("application/json"));
            assert_eq!(claimed.json(), json!({"key": "k", "token": 5, "seq": 0}));
            assert_eq!(claimed.fencing(), (Some("5"), None));
        }
        let read = answer(client.read("k")).await;
        assert_eq!(read.problem(), "not-found");
        assert_eq!(read.fencing(), (Some("5"), None));

        let stale = answer(client.claim("k", 4)).await;
        assert_eq!(stale.fencing(), (Some("5"), None));
        assert_eq!(
            stale.members(),
            json!({
                "type": "urn:fencepost:stale-token", "status": 409, "retryable": false,
                "key": "k", "token": 4, "mark": 5,
            })
        );
        assert_eq!(answer(client.put("k", 4, "v")).await.problem(), "stale-token");

        // Claiming was no change, so this is the first.
        let created = answer(client.put("k", 5, "v")).await;
        assert_eq!((created.status, created.fencing()), (201, (Some("5"), Some("\"1\""))));
    }
}

on_each_store! {
    async fn a_claim_leaves_the_value_alone(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "v").header("Content-Type", "text/plain")).await;
        let claimed = answer(client.claim("k", 9)).await;
        assert_eq!(claimed.json(), json!({"key": "k", "token": 9, "seq": 0}));
        assert_eq!(claimed.fencing(), (Some("9"), Some("\"1\"")));
        let read = answer(client.read("k")).await;
        assert_eq!((read.status, read.text().as_str()), (200, "v"));
        assert_eq!(read.header("content-type"), Some("text/plain"));
        assert_eq!(read.fencing(), (Some("9"), Some("\"1\"")));
        assert_eq!(answer(client.put("k", 8, "zombie")).await.fencing(), read.fencing());
    }
}

on_each_store! {
    /// A claim writes no value, so a second one cannot undo anything.
    async fn a_claim_is_not_bound_by_the_rule_above(store: TestStore) {
        let server = Fencepost::with(&store, &["--rule", "above"]).await;
        let client = server.client();
        for _ in 0..2 {
            assert_eq!(answer(client.claim("k", 5)).await.status, 200);
        }
        // But it has been seen, which is what `above` asks about.
        assert_eq!(answer(client.put("k", 5, "v")).await.problem(), "stale-token");
        assert_eq!(answer(client.claim("k", 5)).await.status, 200);
    }
}

on_each_store! {
    async fn a_claim_takes_no_precondition(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for (name, value) in [("If-Match", "\"1\""), ("If-None-Match", "*")] {
            let refused = answer(client.claim("k", 5).header(name, value)).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
        }
        assert_eq!(client.mark("k").await, (0, 0));
    }
}

on_each_store! {
    async fn a_fenced_read_claims_then_reads(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "v").header("Content-Type", "text/plain")).await;

        for _ in 0..2 {
            let read = answer(fenced_read(&client, "k", 7)).await;
            assert_eq!((read.status, read.text().as_str()), (200, "v"));
            assert_eq!(read.header("content-type"), Some("text/plain"));
            assert_eq!(read.fencing(), (Some("7"), Some("\"1\"")));
        }
        assert_eq!(client.mark("k").await, (7, 0));
        assert_eq!(answer(client.put("k", 6, "zombie")).await.problem(), "stale-token");

        let stale = answer(fenced_read(&client, "k", 6)).await;
        assert_eq!(stale.status, 409);
        assert_eq!(stale.fencing(), (Some("7"), Some("\"1\"")));
        assert_eq!(
            stale.members(),
            json!({
                "type": "urn:fencepost:stale-token", "status": 409, "retryable": false,
                "key": "k", "token": 6, "mark": 7, "version": 1,
            })
        );
    }
}

on_each_store! {
    async fn a_fenced_read_claims_whatever_it_finds(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let absent = answer(fenced_read(&client, "absent", 7)).await;
        assert_eq!(absent.problem(), "not-found");
        assert_eq!(absent.fencing(), (Some("7"), None));
        assert_eq!(client.mark("absent").await, (7, 0));

        answer(client.put("k", 5, "v")).await;
        let known = answer(fenced_read(&client, "k", 7).header("If-None-Match", "\"1\"")).await;
        assert_eq!((known.status, known.fencing()), (304, (Some("7"), Some("\"1\""))));
        assert_eq!(client.mark("k").await, (7, 0));

        let head = client.request(Method::HEAD, "/v1/resources/k").header("X-Fencing-Token", 8);
        assert_eq!(answer(head).await.fencing(), (Some("8"), Some("\"1\"")));
        assert_eq!(client.mark("k").await, (8, 0));
    }
}

on_each_store! {
    async fn a_read_without_a_token_changes_nothing(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("k", 5, "v")).await;
        assert_eq!(answer(client.read("k")).await.status, 200);
        assert_eq!(answer(client.read("absent")).await.status, 404);
        assert_eq!(client.mark("k").await, (5, 0));
        assert_eq!(client.mark("absent").await, (0, 0));
    }
}

on_each_store! {
    async fn a_read_with_headers_that_mean_nothing_there_is_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for name in ["X-Fencing-Seq", "X-Fencing-Scope", "X-Fencing-Rule", "If-Match"] {
            let plain = answer(client.read("k").header(name, "1")).await;
            assert_eq!(plain.problem(), "invalid-request", "{name}");
        }
        for name in ["X-Fencing-Seq", "If-Match"] {
            let fenced = answer(fenced_read(&client, "k", 5).header(name, "1")).await;
            assert_eq!(fenced.problem(), "invalid-request", "{name}");
        }
        assert_eq!(client.mark("k").await, (0, 0));
    }
}

on_each_store! {
    /// Holder 10 reads 100; the paused holder 9 wakes up and adds 50; holder 10 writes 110. Unless
    /// the read has claimed the key, 50 is lost.
    async fn trap_1_no_older_holder_writes_between_a_read_and_its_write(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("balance", 9, "100")).await;
        assert_eq!(answer(fenced_read(&client, "balance", 10)).await.text(), "100");
        let zombie = answer(client.put("balance", 9, "150")).await;
        assert_eq!(zombie.problem(), "stale-token");
        assert_eq!(answer(client.put("balance", 10, "110")).await.status, 200);
        assert_eq!(answer(client.read("balance")).await.text(), "110");
    }
}

on_each_store! {
    async fn marks_survive_a_restart(store: TestStore) {
        {
            let server = Fencepost::on(&store).await;
            let client = server.client();
            answer(client.claim("claimed", 5)).await;
            answer(client.put("deleted", 6, "v")).await;
            answer(client.delete("deleted", 7).header("X-Fencing-Seq", 2)).await;
        }
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(client.mark("claimed").await, (5, 0));
        assert_eq!(client.mark("deleted").await, (7, 2));
        assert_eq!(answer(client.put("claimed", 4, "v")).await.problem(), "stale-token");
        assert_eq!(answer(client.put("deleted", 6, "v")).await.problem(), "stale-token");
    }
}
