//! Input that no client should send, over a raw socket, and the right answer to each.

use crate::harness::{
    fencepost::Fencepost,
    http::{Answer, answer, raw, send, status, text},
    store::TestStore,
};

const TOKEN: &str = "X-Fencing-Token: 5";
const KEY: &str = "/v1/resources/k";

/// What is no number to us, though somebody's parser would take it.
const NOT_NUMBERS: &[&str] = &[
    "",
    "0",
    "00",
    "005",
    "+5",
    "-5",
    "5, 9",
    "5,5",
    "5 9",
    "1e3",
    "0x10",
    "5.0",
    "5_0",
    "٥",
    "５",
    "five",
    "\"5\"",
    "9223372036854775808",
    "18446744073709551616",
    "99999999999999999999",
];

async fn sqlite() -> (TestStore, Fencepost) {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    (store, server)
}

/// Every write there is, with these headers.
async fn every_write(server: &Fencepost, headers: &[&str]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (method, target) in [("PUT", KEY), ("DELETE", KEY), ("PUT", "/v1/marks/k")] {
        answers.push(send(&server.address, method, target, headers, "").await);
    }
    answers
}

async fn nothing_happened(server: &Fencepost) {
    assert_eq!(server.client().mark("k").await, (0, 0));
    assert_eq!(server.client().mark("smuggled").await, (0, 0));
}

#[tokio::test]
async fn a_token_is_plain_digits_once() {
    let (_store, server) = sqlite().await;
    let mut headers: Vec<Vec<String>> =
        NOT_NUMBERS.iter().map(|text| vec![format!("X-Fencing-Token: {text}")]).collect();
    headers.push(vec![TOKEN.into(), TOKEN.into()]);
    headers.push(vec![TOKEN.into(), "x-fencing-token: 6".into()]);
    for headers in headers {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let mut answers = every_write(&server, &headers).await;
        answers.push(send(&server.address, "GET", KEY, &headers, "").await);
        for answer in answers {
            assert_eq!(answer.status, 400, "{headers:?}");
            assert_eq!(answer.problem(), "invalid-token", "{headers:?}");
        }
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn spaces_around_a_token_do_not_matter() {
    let (_store, server) = sqlite().await;
    for padded in ["X-Fencing-Token:5", "X-Fencing-Token: \t 6 \t ", "x-FENCING-token: 7"] {
        for answer in every_write(&server, &[padded]).await {
            assert!(matches!(answer.status, 200 | 201 | 204), "{padded}: {}", answer.text());
        }
    }
    assert_eq!(server.client().mark("k").await, (7, 0));
    // The highest of all, which nobody can have issued, is believed where no authority is set.
    let highest = every_write(&server, &["X-Fencing-Token: 9223372036854775807"]).await;
    assert_eq!(highest[0].header("x-fencing-mark"), Some("9223372036854775807"));
}

#[tokio::test]
async fn a_seq_is_plain_digits_once() {
    let (_store, server) = sqlite().await;
    let mut seqs: Vec<String> =
        NOT_NUMBERS.iter().map(|text| format!("X-Fencing-Seq: {text}")).collect();
    seqs.push("X-Fencing-Seq: 1\r\nX-Fencing-Seq: 1".into());
    for seq in seqs {
        for answer in every_write(&server, &[TOKEN, &seq]).await {
            assert_eq!(answer.status, 400, "{seq}");
            assert_eq!(answer.problem(), "invalid-seq", "{seq}");
        }
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn other_headers_of_a_write_are_checked_too() {
    let (_store, server) = sqlite().await;
    let long = "x".repeat(257);
    for header in [
        "X-Fencing-Rule:",
        "X-Fencing-Rule: Above",
        "X-Fencing-Rule: above\r\nX-Fencing-Rule: above",
        "X-Fencing-Client: a\r\nX-Fencing-Client: b",
        &format!("X-Fencing-Client: {long}"),
    ] {
        for answer in every_write(&server, &[TOKEN, header]).await {
            assert_eq!(answer.status, 400, "{header}");
            assert_eq!(answer.problem(), "invalid-request", "{header}");
        }
    }
    for (header, status) in [
        (format!("Content-Type: {long}"), 400),
        ("Content-Type: a/b\r\nContent-Type: c/d".into(), 400),
        ("Content-Range: bytes 0-1/2".into(), 400),
        ("Content-Encoding: gzip".into(), 415),
    ] {
        let refused = send(&server.address, "PUT", KEY, &[TOKEN, &header], "v").await;
        assert_eq!(refused.status, status, "{header}");
        refused.problem();
    }
    nothing_happened(&server).await;
    let client = format!("X-Fencing-Client: {}", "é".repeat(128));
    assert_eq!(every_write(&server, &[TOKEN, &client]).await[0].status, 201);
}

#[tokio::test]
async fn a_request_has_exactly_one_host() {
    let (_store, server) = sqlite().await;
    for hosts in ["", "Host: a\r\nHost: b\r\n", "Host: a\r\nHost: a\r\n"] {
        let request = format!(
            "PUT {KEY} HTTP/1.1\r\n{hosts}{TOKEN}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let refused = raw(&server.address, request).await;
        let refused = Answer::parse(refused.as_bytes()).expect("a whole answer");
        assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn what_is_too_long_is_refused() {
    let (_store, server) = sqlite().await;
    let key = format!("/v1/resources/{}", "k".repeat(10_000));
    let refused = send(&server.address, "PUT", &key, &[TOKEN], "").await;
    assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-key"));

    let path = format!("/v1/resources/{}", "k".repeat(70_000));
    let many: Vec<String> = (0..110).map(|number| format!("X-{number}: x")).collect();
    let large = format!("X-Large: {}", "x".repeat(500_000));
    for (target, headers, expected) in [
        (path.as_str(), vec![TOKEN], 414),
        (KEY, many.iter().map(String::as_str).chain([TOKEN]).collect(), 431),
        (KEY, vec![TOKEN, large.as_str()], 431),
    ] {
        let refused = raw(&server.address, text("PUT", target, &headers, "")).await;
        assert_eq!(status(&refused), expected);
    }
    nothing_happened(&server).await;
}

/// What comes back for a put that is framed like this, and whose body is either `0\r\n\r\n` or
/// empty. A second request hides behind it: if the server and a proxy before it could differ about
/// where the first one ends, it would get through.
async fn smuggle(server: &Fencepost, framing: &str) -> u16 {
    let head = format!("PUT {KEY} HTTP/1.1\r\nHost: test\r\n{TOKEN}\r\n{framing}\r\n\r\n");
    let smuggled = text("PUT", "/v1/resources/smuggled", &[TOKEN], "");
    let answers = raw(&server.address, format!("{head}0\r\n\r\n{smuggled}")).await;
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{framing}: {answers}");
    status(&answers)
}

#[tokio::test]
async fn a_body_whose_end_is_unclear_is_refused() {
    let (_store, server) = sqlite().await;
    for framing in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 6\r\nContent-Length: 5",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5.",
        "Content-Length: 99999999999999999999",
        "Content-Length : 5",
        "Content-Length: 5\r\n Transfer-Encoding: chunked",
        "X: y\rContent-Length: 5",
        "X: y\0\r\nContent-Length: 5",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: chunked;x",
    ] {
        assert_eq!(smuggle(&server, framing).await, 400, "{framing}");
    }
    nothing_happened(&server).await;
}

/// As RFC 9112 wants it: the chunks decide, and nothing more is read from that connection.
#[tokio::test]
async fn chunks_with_a_length_beside_them_end_the_connection() {
    let (_store, server) = sqlite().await;
    for (framing, expected) in [
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 201),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 200),
    ] {
        assert_eq!(smuggle(&server, framing).await, expected, "{framing}");
        assert_eq!(answer(server.client().read("k")).await.text(), "");
        assert_eq!(server.client().mark("smuggled").await, (0, 0));
    }
}

#[tokio::test]
async fn a_broken_chunk_writes_nothing() {
    let (_store, server) = sqlite().await;
    for chunks in
        ["-1\r\nx\r\n", "0x1\r\nx\r\n", "1\r\nxx\r\n", "fffffffffffffffff\r\nx\r\n", "\r\n"]
    {
        let request = format!(
            "PUT {KEY} HTTP/1.1\r\nHost: test\r\n{TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n\
             {chunks}0\r\n\r\n"
        );
        let answers = raw(&server.address, request).await;
        let refused = Answer::parse(answers.as_bytes()).expect("a whole answer");
        assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
    }
    nothing_happened(&server).await;
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let (_store, server) = sqlite().await;
    for noise in [
        "GET / HTTP/3.0\r\nHost: test\r\n\r\n",
        "GET /v1/resources/a b HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET /v1/resources/\x1b[31m HTTP/1.1\r\nHost: test\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\0\x03\x03",
        "SSH-2.0-OpenSSH_9.6\r\n",
    ] {
        assert_eq!(status(&raw(&server.address, noise).await), 400, "{noise:?}");
    }
}

#[tokio::test]
async fn an_unknown_route_is_a_problem() {
    let (_store, server) = sqlite().await;
    for target in ["/", "/v1", "/v1/marks", "/v1/batch/", "/v2/resources/k", "/V1/resources/k", "*"]
    {
        let unknown = send(&server.address, "GET", target, &[], "").await;
        assert_eq!((unknown.status, unknown.problem().as_str()), (404, "not-found"), "{target}");
    }
    let unknown = send(&server.admin, "GET", "/nope", &[], "").await;
    assert_eq!((unknown.status, unknown.problem().as_str()), (404, "not-found"));
}

#[tokio::test]
async fn a_wrong_method_is_a_problem_that_names_the_right_ones() {
    let (_store, server) = sqlite().await;
    for (method, target, allowed) in [
        ("POST", KEY, "GET,HEAD,PUT,DELETE"),
        ("PATCH", KEY, "GET,HEAD,PUT,DELETE"),
        ("BREW", KEY, "GET,HEAD,PUT,DELETE"),
        ("PUT", "/v1/resources", "GET,HEAD"),
        ("DELETE", "/v1/marks/k", "GET,HEAD,PUT"),
        ("GET", "/v1/batch", "POST"),
        ("POST", "/openapi.json", "GET,HEAD"),
    ] {
        let refused = send(&server.address, method, target, &[TOKEN], "").await;
        assert_eq!(refused.status, 405, "{method} {target}");
        assert_eq!(refused.problem(), "method-not-allowed");
        assert_eq!(refused.header("allow"), Some(allowed), "{method} {target}");
    }
    let refused = send(&server.admin, "POST", "/readyz", &[], "").await;
    assert_eq!((refused.status, refused.problem().as_str()), (405, "method-not-allowed"));
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
    nothing_happened(&server).await;
}
