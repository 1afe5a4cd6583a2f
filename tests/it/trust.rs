//! Which tokens above the mark are believed, over HTTP.

mod authority_away;
mod bounded;
mod granted;

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    authority::on_each_authority,
    http::{Answer, answer},
};

/// A lease that does not end while a test runs.
const LONG: Duration = Duration::from_mins(10);

/// What no authority has issued.
const FORGED: [i64; 3] = [i64::MAX, 1 << 61, (1 << 62) + 1];

/// A refusal that says what it is about, and where the key's mark is.
fn check_unissued(refused: &Answer, key: &str, token: i64, mark: i64) {
    assert_eq!((refused.status, refused.problem().as_str()), (422, "unissued-token"));
    let problem = refused.json();
    assert_eq!((&problem["key"], &problem["token"]), (&json!(key), &json!(token)));
    assert_eq!(problem["mark"], mark);
    assert_eq!(problem["retryable"], false);
    assert_eq!(refused.header("x-fencing-mark"), Some(mark.to_string().as_str()));
}

on_each_authority! {
    async fn open_believes_any_token(authority: TestAuthority) {
        let server = authority.fencepost_with(&["--trust", "open"]).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", i64::MAX, "x")).await.status, 201);
        assert_eq!(client.mark("k").await.0, i64::MAX);
    }
}
