//! A header that is meant to protect a write is either obeyed or refused. None is ignored.

use crate::harness::{
    fencepost::Fencepost,
    http::{Answer, raw, send, status, text},
    store::TestStore,
};

/// A new holder has claimed the scope `s` with 10; 9 is stale.
async fn taken_over() -> (TestStore, Fencepost) {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let claimed = send(&server.address, "PUT", "/v1/marks/s", &["X-Fencing-Token: 10"], "").await;
    assert_eq!(claimed.status, 200);
    (store, server)
}

fn assert_refused(answer: &Answer, nearest: &str, what: &str) {
    assert_eq!(answer.status, 400, "{what}: {}", answer.text());
    assert_eq!(answer.problem(), "invalid-request", "{what}");
    assert!(answer.text().contains(nearest), "{what}: {}", answer.text());
}

#[tokio::test]
async fn misspelt_scope_does_not_remove_the_fence() {
    let (_store, server) = taken_over().await;
    for header in [
        "X-Fencing-Scop: s",
        "x-fencing-scopes: s",
        "X-Fencing-Socpe: s",
        "X-FencingScope: s",
        "X-Fencing_Scope: s",
        "X_Fencing_Scope: s",
        "Fencing-Scope: s",
        "X-Fence-Scope: s",
        "X-Fencepost-Scope: s",
        "X-Fecning-Scope: s",
    ] {
        let stale = ["X-Fencing-Token: 9", header];
        for (method, target) in [
            ("PUT", "/v1/resources/new"),
            ("DELETE", "/v1/resources/new"),
            ("PUT", "/v1/marks/new"),
        ] {
            let answer = send(&server.address, method, target, &stale, "").await;
            assert_refused(&answer, "X-Fencing-Scope?", &format!("{method} {target} {header}"));
            assert_eq!(answer.json()["key"], "new", "{header}");
        }
    }
    assert_eq!(server.client().mark("new").await, (0, 0));
    // Spelt right, it fences.
    let stale = ["X-Fencing-Token: 9", "X-Fencing-Scope: s"];
    let answer = send(&server.address, "PUT", "/v1/resources/new", &stale, "v").await;
    assert_eq!(answer.problem(), "stale-token");
}

#[tokio::test]
async fn misspelt_headers_are_refused_on_every_route_and_method() {
    let (_store, server) = taken_over().await;
    for (method, target) in [
        ("GET", "/v1/resources/k"),
        ("HEAD", "/v1/resources/k"),
        ("PUT", "/v1/resources/k"),
        ("DELETE", "/v1/resources/k"),
        ("GET", "/v1/resources"),
        ("GET", "/v1/marks/k"),
        ("PUT", "/v1/marks/k"),
        ("POST", "/v1/batch"),
        ("GET", "/v1/locks"),
        ("GET", "/v1/locks/k"),
        ("POST", "/v1/locks/k"),
        ("PUT", "/v1/locks/k"),
        ("DELETE", "/v1/locks/k"),
        ("GET", "/v1/rejections"),
        ("GET", "/openapi.json"),
    ] {
        for (header, nearest) in [
            ("X-Fencing-Tokn: 9", "X-Fencing-Token?"),
            ("X-Fencing-Sequence: 1", "X-Fencing-Seq?"),
            ("X-Fencing-Rul: above", "X-Fencing-Rule?"),
            ("X-Fencing-Clinet: me", "X-Fencing-Client?"),
            ("X-Fencing-Mark: 9", "header of answers"),
            ("X-Fencing-Replay: true", "header of answers"),
            ("If_Match: \"1\"", "If-Match?"),
            ("If-Matches: \"1\"", "If-Match?"),
        ] {
            if method == "HEAD" {
                // Its answer has a length and no body.
                let head = text(method, target, &[header, "Connection: close"], "");
                assert_eq!(status(&raw(&server.address, head).await), 400, "{target} {header}");
                continue;
            }
            let answer = send(&server.address, method, target, &[header], "").await;
            assert_refused(&answer, nearest, &format!("{method} {target} {header}"));
        }
    }
    assert_eq!(server.client().mark("k").await, (0, 0));
}

#[tokio::test]
async fn valid_header_is_refused_where_it_would_be_ignored() {
    let (_store, server) = taken_over().await;
    for (method, target, header) in [
        ("GET", "/v1/marks/s", "X-Fencing-Scope: s"),
        ("GET", "/v1/resources", "X-Fencing-Scope: s"),
        ("GET", "/v1/resources/k", "X-Fencing-Scope: s"),
        ("GET", "/v1/locks", "X-Fencing-Scope: s"),
        ("GET", "/v1/locks/k", "X-Fencing-Seq: 1"),
        ("POST", "/v1/locks/k", "X-Fencing-Scope: s"),
        ("PUT", "/v1/locks/k", "X-Fencing-Scope: s"),
        ("DELETE", "/v1/locks/k", "X-Fencing-Rule: above"),
        ("POST", "/v1/batch", "X-Fencing-Scope: s"),
        ("GET", "/v1/rejections", "X-Fencing-Scope: s"),
        ("PUT", "/v1/marks/k", "If-Match: \"1\""),
        ("PUT", "/v1/marks/k", "If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT"),
        ("PUT", "/v1/locks/k", "If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT"),
    ] {
        let mut headers = vec![header, "Content-Type: application/json"];
        if method != "GET" {
            headers.push("X-Fencing-Token: 9");
        }
        let answer = send(&server.address, method, target, &headers, "").await;
        assert_refused(&answer, "", &format!("{method} {target} {header}"));
    }
}

#[tokio::test]
async fn misspelt_members_and_queries_are_refused() {
    let (_store, server) = taken_over().await;
    let json = ["Content-Type: application/json"];
    for write in [
        r#"{"key": "new", "token": 9, "scop": "s", "value": 1}"#,
        r#"{"key": "new", "token": 9, "Scope": "s", "value": 1}"#,
        r#"{"key": "new", "token": 9, "x-fencing-scope": "s", "value": 1}"#,
        r#"{"key": "new", "token": 9, "if-match": 1, "value": 1}"#,
        r#"{"key": "new", "token": 9, "sequence": 1, "value": 1}"#,
    ] {
        let body = format!(r#"{{"writes": [{write}]}}"#);
        let answer = send(&server.address, "POST", "/v1/batch", &json, &body).await;
        assert_refused(&answer, "unknown field", write);
    }
    let body = r#"{"writes": [{"key":"new","token":9,"value":1}], "scope": "s"}"#;
    let answer = send(&server.address, "POST", "/v1/batch", &json, body).await;
    assert_refused(&answer, "unknown field", body);
    for terms in [r#"{"ttl": 1000}"#, r#"{"scope": "s"}"#, r#"{"token": 9}"#] {
        let answer = send(&server.address, "POST", "/v1/locks/k", &json, terms).await;
        assert_ne!(answer.status, 201, "{terms}");
    }
    for target in [
        "/v1/resources/new?scope=s",
        "/v1/resources/new?scop=s",
        "/v1/marks/new?scope=s",
        "/v1/locks/new?scope=s",
    ] {
        let answer = send(&server.address, "PUT", target, &["X-Fencing-Token: 9"], "").await;
        assert_refused(&answer, "query", target);
    }
    assert_eq!(server.client().mark("new").await, (0, 0));
}

#[tokio::test]
async fn body_where_none_is_read_is_refused() {
    let (_store, server) = taken_over().await;
    for (method, target) in [
        ("PUT", "/v1/marks/new"),
        ("DELETE", "/v1/resources/new"),
        ("PUT", "/v1/locks/new"),
        ("DELETE", "/v1/locks/new"),
        ("GET", "/v1/resources/new"),
    ] {
        let answer =
            send(&server.address, method, target, &["X-Fencing-Token: 9"], r#"{"scope":"s"}"#)
                .await;
        assert_refused(&answer, "body", &format!("{method} {target}"));
    }
    assert_eq!(server.client().mark("new").await, (0, 0));
}

#[tokio::test]
async fn scope_sent_after_the_body_is_refused() {
    let (_store, server) = taken_over().await;
    for trailer in ["X-Fencing-Scope: s", "X-Fencing-Scop: s", "If-Match: \"1\""] {
        let request = format!(
            "PUT /v1/resources/new HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 9\r\n\
             Trailer: X-Fencing-Scope\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\nv\r\n0\r\n{trailer}\r\n\r\n"
        );
        assert_eq!(status(&raw(&server.address, request).await), 400, "{trailer}");
    }
    assert_eq!(server.client().mark("new").await, (0, 0));
}

#[tokio::test]
async fn scope_sent_after_the_head_of_a_fenced_read_is_refused() {
    let (_store, server) = taken_over().await;
    let stale = ["X-Fencing-Token: 9", "X-Fencing-Scope: s"];
    let answer = send(&server.address, "GET", "/v1/resources/new", &stale, "").await;
    assert_eq!(answer.problem(), "stale-token");
    for method in ["GET", "HEAD"] {
        for body in ["", "d\r\n{\"scope\":\"s\"}\r\n"] {
            let request = format!(
                "{method} /v1/resources/new HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 9\r\n\
                 Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                 {body}0\r\nX-Fencing-Scope: s\r\n\r\n"
            );
            assert_eq!(status(&raw(&server.address, request).await), 400, "{method} {body:?}");
        }
    }
    assert_eq!(server.client().mark("new").await, (0, 0));
    // A read without a token claims nothing, so its body can mean nothing.
    let answer = send(&server.address, "GET", "/v1/resources/new", &[], "{}").await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn method_is_judged_before_the_headers() {
    let (_store, server) = taken_over().await;
    for (method, target) in [
        ("TRACE", "/v1/marks/0"),
        ("OPTIONS", "/v1/resources"),
        ("TRACE", "/openapi.json"),
        ("PATCH", "/v1/resources/k"),
        ("POST", "/v1/marks/k"),
        ("DELETE", "/v1/rejections"),
    ] {
        for header in ["X-Fencing-Scope: s", "X-Fencing-Scop: s"] {
            let headers = ["X-Fencing-Token: 9", header];
            let answer = send(&server.address, method, target, &headers, "").await;
            assert_eq!(answer.status, 405, "{method} {target}: {}", answer.text());
            assert!(answer.header("allow").is_some(), "{method} {target}");
        }
    }
}
