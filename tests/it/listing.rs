//! `GET /v1/resources`: which keys have a value.

use serde_json::{Value, json};

use crate::harness::{
    fencepost::Fencepost,
    http::{Client, answer},
    store::on_each_store,
};

/// Writes many keys at once.
async fn fill(client: &Client, keys: &[String]) {
    for keys in keys.chunks(1000) {
        let writes: Vec<_> =
            keys.iter().map(|key| json!({"key": key, "token": 3, "value": 1})).collect();
        let filled = answer(client.batch(&json!({"writes": writes}))).await;
        assert_eq!(filled.status, 200, "{}", filled.text());
    }
}

async fn page(client: &Client, query: &[(&str, &str)]) -> (Vec<String>, Option<String>) {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    let path = format!("/v1/resources?{query}");
    let listing = answer(client.get(&path)).await;
    assert_eq!(listing.status, 200, "{path}: {}", listing.text());
    let listing = listing.json();
    let key = |entry: &Value| entry["key"].as_str().expect("a key").to_owned();
    let keys = listing["resources"].as_array().expect("a list").iter().map(key).collect();
    (keys, listing["next"].as_str().map(str::to_owned))
}

on_each_store! {
    async fn a_listing_describes_every_key_that_has_a_value(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let empty = answer(client.get("/v1/resources")).await;
        assert_eq!((empty.status, empty.header("content-type")), (200, Some("application/json")));
        assert_eq!(empty.json(), json!({"resources": [], "next": null}));

        answer(client.put("b/2", 5, "two").header("Content-Type", "text/plain")).await;
        answer(client.put("b/2", 7, "zwei").header("Content-Type", "text/x-german")).await;
        answer(client.put("a", 6, "")).await;
        answer(client.claim("claimed", 5)).await;
        answer(client.put("deleted", 5, "v")).await;
        answer(client.delete("deleted", 5)).await;
        // Its mark has risen above that of its value.
        answer(client.claim("a", 9)).await;
        assert_eq!(
            answer(client.get("/v1/resources")).await.json(),
            json!({"resources": [
                {"key": "a", "version": 1, "token": 9,
                 "content_type": "application/octet-stream", "size": 0},
                {"key": "b/2", "version": 2, "token": 7,
                 "content_type": "text/x-german", "size": 4},
            ], "next": null})
        );
    }
}

on_each_store! {
    async fn keys_come_in_the_order_of_their_bytes(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let keys = ["B", "a", "a!", "a/", "a/b", "aB", "ab", "z", "é", "\u{ffff}", "🔒", "e\u{301}"];
        let mut keys: Vec<String> = keys.map(String::from).into();
        fill(&client, &keys).await;
        keys.sort_unstable();
        assert_eq!(page(&client, &[]).await, (keys, None));
    }
}

on_each_store! {
    async fn a_prefix_is_taken_literally(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let keys =
            ["a%b", "a%", "a_b", "axb", "a*", "A%b", "a%\u{10ffff}x", "b", "\u{10ffff}\u{10ffff}"];
        fill(&client, &keys.map(String::from)).await;
        for (prefix, expected) in [
            ("a%", vec!["a%", "a%b", "a%\u{10ffff}x"]),
            ("a_", vec!["a_b"]),
            ("a%\u{10ffff}", vec!["a%\u{10ffff}x"]),
            ("\u{10ffff}", vec!["\u{10ffff}\u{10ffff}"]),
            ("a%b", vec!["a%b"]),
            ("none", vec![]),
        ] {
            let (found, next) = page(&client, &[("prefix", prefix)]).await;
            assert_eq!((found.iter().map(String::as_str).collect(), next), (expected, None));
        }
        assert_eq!(page(&client, &[("prefix", "")]).await.0.len(), keys.len());
    }
}

on_each_store! {
    async fn pages_follow_each_other_without_gaps(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let keys: Vec<String> = (0..1050).map(|number| format!("k/{number:04}")).collect();
        fill(&client, &keys).await;
        fill(&client, &["j".into(), "l".into()]).await;

        // 100 where nothing is said, 1000 at most.
        let (found, next) = page(&client, &[("prefix", "k/")]).await;
        assert_eq!((&found[..], next.as_deref()), (&keys[..100], Some("k/0099")));
        let (found, next) = page(&client, &[("prefix", "k/"), ("limit", "1000")]).await;
        assert_eq!((&found[..], next.as_deref()), (&keys[..1000], Some("k/0999")));

        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let query = [("prefix", "k/"), ("limit", "350"), ("after", after.as_str())];
            let (found, next) = page(&client, &query).await;
            seen.extend(found);
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        // Three full pages, and no empty fourth.
        assert_eq!(seen, keys);
    }
}

on_each_store! {
    async fn after_need_not_be_a_key_that_is_there(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        fill(&client, &["a", "b/1", "b/2", "c"].map(String::from)).await;
        for (query, expected) in [
            (vec![("after", "b")], vec!["b/1", "b/2", "c"]),
            (vec![("after", "b/1")], vec!["b/2", "c"]),
            (vec![("after", "b/1"), ("prefix", "b/")], vec!["b/2"]),
            (vec![("after", "a"), ("prefix", "b/")], vec!["b/1", "b/2"]),
            (vec![("after", "c"), ("prefix", "b/")], vec![]),
            (vec![("after", "zzz")], vec![]),
        ] {
            assert_eq!(page(&client, &query).await.0, expected, "{query:?}");
        }
        assert_eq!(page(&client, &[("limit", "2")]).await.1.as_deref(), Some("b/1"));
    }
}

on_each_store! {
    /// Whatever a key is made of, `next` leads on from it.
    async fn any_key_can_end_a_page(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let mut keys: Vec<String> =
            ["a b", "a+b", "a%2Fb", "a&b=c", "\r\n\u{1b}", "\u{fffd}", "é", "#?", "🔒"]
                .map(String::from)
                .into();
        fill(&client, &keys).await;
        keys.sort_unstable();
        let mut seen = Vec::new();
        let mut after = String::new();
        while seen.len() < keys.len() {
            let (found, next) = page(&client, &[("limit", "1"), ("after", &after)]).await;
            seen.extend(found);
            after = next.unwrap_or_default();
        }
        assert_eq!(seen, keys);
        assert_eq!(page(&client, &[("prefix", "\u{fffd}")]).await.0, ["\u{fffd}"]);
    }
}

on_each_store! {
    async fn a_listing_that_makes_no_sense_is_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for query in [
            "limit=5&limit=5", "limit=007", "limit=%2B5", "prefix=a&prefix=a", "after=a&after=b", "limits=5", "key=k",
            "prefix=%ff", "after=%C3",
        ] {
            let refused = answer(client.get(&format!("/v1/resources?{query}"))).await;
            assert_eq!(refused.status, 400, "{query}");
            assert_eq!(refused.problem(), "invalid-request", "{query}");
        }
        for query in ["prefix=%00".to_owned(), format!("after={}", "k".repeat(1025))] {
            let refused = answer(client.get(&format!("/v1/resources?{query}"))).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-key"));
        }
    }
}
