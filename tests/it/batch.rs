//! `POST /v1/batch`: several writes that stand or fall together.

use serde_json::{Value, json};

use crate::harness::{
    fencepost::Fencepost,
    http::{Answer, Client, answer},
    store::on_each_store,
};

async fn batch(client: &Client, writes: Value) -> Answer {
    answer(client.batch(&json!({ "writes": writes }))).await
}

/// A batch in the very words of the test, which a JSON library might change.
async fn batch_text(client: &Client, writes: &str) -> Answer {
    let request = client
        .request(reqwest::Method::POST, "/v1/batch")
        .header("Content-Type", "application/json; charset=utf-8")
        .body(format!("{{\"writes\":[{writes}]}}"));
    answer(request).await
}

async fn nothing_happened(client: &Client, keys: &[&str]) {
    for key in keys {
        let read = answer(client.read(key)).await;
        assert_eq!((read.status, read.fencing()), (404, (Some("0"), None)), "{key}");
    }
}

on_each_store! {
    async fn a_batch_has_a_result_for_each_write_in_order(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("old", 3, "v")).await;
        answer(client.put("gone", 3, "v")).await;
        let done = batch(&client, json!([
            {"key": "z", "token": 5, "value": {"a": 1}},
            {"key": "old", "token": 4, "value_base64": "AP8=", "content_type": "image/x"},
            {"key": "gone", "token": 6, "delete": true},
            {"key": "a", "token": 7, "delete": true},
        ])).await;
        assert_eq!((done.status, done.header("content-type")), (200, Some("application/json")));
        assert_eq!(
            done.json(),
            json!({"results": [
                {"key": "z", "status": 201, "version": 1, "token": 5},
                {"key": "old", "status": 200, "version": 2, "token": 4},
                {"key": "gone", "status": 204, "version": 2, "token": 6},
                {"key": "a", "status": 204, "version": 0, "token": 7},
            ]})
        );

        let value = answer(client.read("z")).await;
        assert_eq!(value.header("content-type"), Some("application/json"));
        assert_eq!(value.text(), "{\"a\":1}");
        assert_eq!(value.fencing(), (Some("5"), Some("\"1\"")));
        let bytes = answer(client.read("old")).await;
        assert_eq!(bytes.body, [0, 255]);
        assert_eq!(bytes.header("content-type"), Some("image/x"));
        for (key, mark) in [("gone", 6), ("a", 7)] {
            assert_eq!(answer(client.read(key)).await.status, 404);
            assert_eq!(client.mark(key).await, (mark, 0));
        }
    }
}

on_each_store! {
    async fn a_value_is_kept_as_the_text_it_was_sent_as(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let values = [
            "null", "false", "\"\\u00e9\"", "1.0", "1e2", "12345678901234567890.10", "-0",
            "{ \"b\" : 1,\n\"a\":2, \"b\":3 }", "[ ]",
        ];
        let writes: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(number, value)| {
                format!("{{\"key\":\"k{number}\",\"token\":5,\"value\":{value}}}")
            })
            .collect();
        let done = batch_text(&client, &writes.join(",")).await;
        assert_eq!(done.status, 200, "{}", done.text());
        for (number, value) in values.iter().enumerate() {
            let read = answer(client.read(&format!("k{number}"))).await;
            assert_eq!(read.text(), *value);
            assert_eq!(read.header("content-type"), Some("application/json"));
        }
        let bytes = json!([{"key": "bytes", "token": 5, "value_base64": ""}]);
        assert_eq!(batch(&client, bytes).await.status, 200);
        let read = answer(client.read("bytes")).await;
        assert_eq!((read.status, read.body.len()), (200, 0));
        assert_eq!(read.header("content-type"), Some("application/octet-stream"));
    }
}

on_each_store! {
    async fn one_refused_write_refuses_them_all(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        answer(client.put("guarded", 9, "v").header("X-Fencing-Seq", 4)).await;
        let refused_at_1 = |write: Value| {
            let writes = json!([
                {"key": "a", "token": 9, "value": 1, "scope": "lock"}, write,
                {"key": "z", "token": 9, "value": 1}
            ]);
            batch(&client, writes)
        };
        for (write, members) in [
            (
                json!({"key": "guarded", "token": 8, "seq": 9, "value": 2, "scope": "other"}),
                json!({"type": "urn:fencepost:stale-token", "status": 409, "token": 8, "seq": 9,
                       "scope": "other"}),
            ),
            (
                json!({"key": "guarded", "token": 9, "seq": 3, "delete": true}),
                json!({"type": "urn:fencepost:out-of-order", "status": 409, "token": 9, "seq": 3}),
            ),
            (
                json!({"key": "guarded", "token": 9, "seq": 4, "value": 2}),
                json!({"type": "urn:fencepost:seq-reused", "status": 422, "token": 9, "seq": 4}),
            ),
            (
                json!({"key": "guarded", "token": 9, "rule": "above", "value": 2}),
                json!({"type": "urn:fencepost:stale-token", "status": 409, "token": 9}),
            ),
            (
                json!({"key": "guarded", "token": 10, "if_match": 7, "value": 2}),
                json!({"type": "urn:fencepost:version-mismatch", "status": 412, "token": 10}),
            ),
            (
                json!({"key": "guarded", "token": 10, "if_none_match": "*", "value": 2}),
                json!({"type": "urn:fencepost:version-mismatch", "status": 412, "token": 10}),
            ),
        ] {
            let mut expected = members;
            for (member, value) in [
                ("index", json!(1)), ("key", json!("guarded")), ("mark", json!(9)),
                ("version", json!(1)), ("retryable", json!(false)),
            ] {
                expected[member] = value;
            }
            assert_eq!(refused_at_1(write).await.members(), expected);

            nothing_happened(&client, &["a", "lock", "z", "other"]).await;
            assert_eq!(client.mark("guarded").await, (9, 4));
            assert_eq!(answer(client.read("guarded")).await.text(), "v");
        }
    }
}

on_each_store! {
    async fn later_writes_see_the_marks_that_earlier_ones_raise(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let stale = batch(&client, json!([
            {"key": "a", "token": 7, "scope": "lock", "value": 1},
            {"key": "b", "token": 6, "scope": "lock", "value": 1},
        ])).await;
        assert_eq!(
            stale.members(),
            json!({
                "type": "urn:fencepost:stale-token", "status": 409, "retryable": false,
                "index": 1, "key": "b", "scope": "lock", "token": 6, "mark": 0,
            })
        );
        assert!(stale.json()["detail"].as_str().unwrap().contains("same batch"), "{}", stale.text());
        // A mark that was rolled back refuses nothing afterwards.
        nothing_happened(&client, &["a", "b", "lock"]).await;
        let lower = client.put("a", 1, "v").header("X-Fencing-Scope", "lock");
        assert_eq!(answer(lower).await.status, 201);

        let done = batch(&client, json!([
            {"key": "lock", "token": 7, "value": 1},
            {"key": "b", "token": 7, "scope": "lock", "value": 1},
        ])).await;
        assert_eq!(done.status, 200, "{}", done.text());
    }
}

on_each_store! {
    async fn each_write_has_preconditions_of_its_own(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for _ in 0..3 {
            answer(client.put("three", 5, "v")).await;
        }
        answer(client.put("one", 5, "v")).await;
        let done = batch(&client, json!([
            {"key": "three", "token": 5, "if_match": 3, "value": 1},
            {"key": "one", "token": 5, "if_match": "\"1\"", "delete": true},
            {"key": "none", "token": 5, "if_none_match": "*", "value": 1},
        ])).await;
        assert_eq!(done.status, 200, "{}", done.text());
        for write in [
            json!({"key": "k", "token": 5, "value": 1, "if_match": "*"}),
            json!({"key": "k", "token": 5, "value": 1, "if_match": "W/\"1\""}),
            json!({"key": "k", "token": 5, "value": 1, "if_match": "1"}),
            json!({"key": "k", "token": 5, "value": 1, "if_match": 0}),
            json!({"key": "k", "token": 5, "value": 1, "if_match": 1.5}),
            json!({"key": "k", "token": 5, "value": 1, "if_none_match": "\"1\""}),
            json!({"key": "k", "token": 5, "value": 1, "if_none_match": "*", "if_match": 1}),
        ] {
            let refused = batch(&client, json!([write])).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
        }
        nothing_happened(&client, &["k"]).await;
    }
}

on_each_store! {
    async fn a_batch_can_be_replayed(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let writes = json!([
            {"key": "a", "token": 5, "seq": 1, "value": 1, "if_none_match": "*"},
            {"key": "b", "token": 5, "seq": 2, "delete": true},
        ]);
        let first = batch(&client, writes.clone()).await.json();
        assert_eq!(first, json!({"results": [
            {"key": "a", "status": 201, "version": 1, "token": 5},
            {"key": "b", "status": 204, "version": 0, "token": 5},
        ]}));
        assert_eq!(batch(&client, writes.clone()).await.json(), json!({"results": [
            {"key": "a", "status": 201, "version": 1, "token": 5, "replay": true},
            {"key": "b", "status": 204, "version": 0, "token": 5, "replay": true},
        ]}));

        // One that was seen before, and one that was not.
        let unseen = json!({"key": "b", "token": 5, "seq": 3, "value": 1});
        let mixed = batch(&client, json!([writes[0], unseen])).await;
        assert_eq!(mixed.json(), json!({"results": [
            {"key": "a", "status": 201, "version": 1, "token": 5, "replay": true},
            {"key": "b", "status": 201, "version": 1, "token": 5},
        ]}));
        // A single put with the same bytes and type is the same write.
        let put = client.put("a", 5, "1").header("Content-Type", "application/json");
        let replay = answer(put.header("X-Fencing-Seq", 1)).await;
        assert_eq!(replay.header("x-fencing-replay"), Some("true"));
    }
}

on_each_store! {
    async fn a_batch_holds_1_to_1000_writes_and_each_key_once(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let many = |count: usize| -> Value {
            (0..count)
                .map(|number| json!({"key": format!("k{number}"), "token": 5, "value": 0}))
                .collect()
        };
        for count in [0, 1001] {
            let refused = batch(&client, many(count)).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
        }
        let twice = batch(&client, json!([
            {"key": "a/b", "token": 5, "value": 0}, {"key": "c", "token": 5, "value": 0},
            {"key": "a/b", "token": 6, "delete": true},
        ])).await;
        assert_eq!(twice.problem(), "invalid-request");
        assert_eq!(twice.json()["index"], 2);
        nothing_happened(&client, &["k0", "a/b", "c"]).await;

        let most = batch(&client, many(1000)).await;
        assert_eq!(most.status, 200);
        assert_eq!(most.json()["results"].as_array().map(Vec::len), Some(1000));
    }
}

on_each_store! {
    async fn a_batch_that_makes_no_sense_is_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for (write, problem) in [
            (r#"{"key":"k","value":1}"#, "token-required"),
            (r#"{"key":"k","token":0,"value":1}"#, "invalid-token"),
            (r#"{"key":"k","token":-5,"value":1}"#, "invalid-token"),
            (r#"{"key":"k","token":5.0,"value":1}"#, "invalid-token"),
            (r#"{"key":"k","token":1e3,"value":1}"#, "invalid-token"),
            (r#"{"key":"k","token":"5","value":1}"#, "invalid-token"),
            (r#"{"key":"k","token":9223372036854775808,"value":1}"#, "invalid-token"),
            (r#"{"key":"k","token":5,"seq":0,"value":1}"#, "invalid-seq"),
            (r#"{"key":"k","token":5,"seq":"1","value":1}"#, "invalid-seq"),
            (r#"{"key":"","token":5,"value":1}"#, "invalid-key"),
            (r#"{"key":"a\u0000b","token":5,"value":1}"#, "invalid-key"),
            (r#"{"key":"k","token":5,"scope":"","value":1}"#, "invalid-key"),
            (r#"{"key":"k","token":5,"value":1,"extra":1}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"value":1,"rule":"below"}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"token":6,"value":1}"#, "invalid-request"),
            (r#"{"key":5,"token":5,"value":1}"#, "invalid-request"),
            (r#"{"token":5,"value":1}"#, "invalid-request"),
            ("1", "invalid-request"),
            (r#"{"key":"k","token":5}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"delete":false}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"delete":true,"value":null}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"value":1,"value_base64":"AA=="}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"value_base64":"A"}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"value_base64":"-_-_"}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"value":1,"content_type":""}"#, "invalid-request"),
            (r#"{"key":"k","token":5,"value":1,"content_type":"a\r\nb: c"}"#, "invalid-request"),
        ] {
            let fine = r#"{"key":"fine","token":5,"value":1}"#;
            let refused = batch_text(&client, &format!("{fine},{write}")).await;
            assert_eq!(refused.problem(), problem, "{write}: {}", refused.text());
            assert_eq!(refused.json()["index"], 1, "{write}");
        }
        for write in [
            r#"{"key":"\ud800","token":5,"value":1}"#,
            r#"{"key":"k","token":5,"value":}"#,
            r#"{"key":"k","token":05,"value":1}"#,
        ] {
            let refused = batch_text(&client, write).await;
            assert_eq!(refused.status, 400, "{write}");
            assert_eq!(refused.problem(), "invalid-request", "{write}");
        }
        nothing_happened(&client, &["k", "fine"]).await;
    }
}

on_each_store! {
    async fn a_batch_is_a_json_document_of_its_own_kind(store: TestStore) {
        let server = Fencepost::with(&store, &["--max-body", "1KiB"]).await;
        let client = server.client();
        let good = json!({"writes": [{"key": "k", "token": 5, "value": 1}]}).to_string();
        let post = |content_type: Option<&str>, body: &str| {
            let request = client.request(reqwest::Method::POST, "/v1/batch").body(body.to_owned());
            match content_type {
                Some(content_type) => request.header("Content-Type", content_type),
                None => request,
            }
        };
        for content_type in [None, Some("text/plain"), Some("application/json-seq")] {
            let refused = answer(post(content_type, &good)).await;
            assert_eq!(refused.status, 415, "{content_type:?}");
            assert_eq!(refused.problem(), "unsupported-media-type");
        }
        let [twice, listed] = [format!("{good}{good}"), format!("[{good}]")];
        for document in ["", "[]", "{}", "{\"writes\":{}}", &twice, &listed] {
            let refused = answer(post(Some("application/json"), document)).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
        }
        for (name, value) in [
            ("If-Match", "\"1\""), ("If-None-Match", "*"), ("X-Fencing-Scope", "lock"),
            ("X-Fencing-Seq", "1"), ("X-Fencing-Rule", "above"),
        ] {
            let request = post(Some("application/json"), &good).header(name, value);
            let refused = answer(request).await;
            assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
        }
        let request = client.request(reqwest::Method::POST, "/v1/batch?x=1").body(good.clone());
        let refused = answer(request.header("Content-Type", "application/json")).await;
        assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
        let large = good.replace('1', &"1".repeat(2000));
        let refused = answer(post(Some("application/json"), &large)).await;
        assert_eq!((refused.status, refused.problem().as_str()), (413, "too-large"));
        nothing_happened(&client, &["k"]).await;
        assert_eq!(answer(post(Some("Application/JSON"), &good)).await.status, 200);
    }
}
