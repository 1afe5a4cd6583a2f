//! There is no way around the check: no path, method, target form or header leads past it.

use axum::http::Method;

use crate::harness::{
    access::Access,
    collector::{Collector, Mood},
    eventually,
    fencepost::Fencepost,
    http::{Client, answer, raw, send, status},
    http2::Connection,
    store::TestStore,
};

const POLICY: &str =
    "[[rule]]\nidentity = \"orders\"\nprefixes = [\"orders/\"]\nrights = [\"read\", \"write\"]\n";

/// What is open on the other listener, and what is not there at all, in every disguise.
const TARGETS: [&str; 40] = [
    "/livez",
    "/readyz",
    "/startupz",
    "/metrics",
    "/openapi.json",
    "/",
    "//",
    "/v1",
    "/v1/",
    "/v1/resources",
    "/v1/resources/",
    "/v1/resources/livez",
    "/v1/resources/metrics",
    "/v1/resources/..%2Flivez",
    "/v1/resources/../../livez",
    "/v1/resources/k/../../../livez",
    "/v1/resources/k?x=/livez",
    "/v1/resources?x=/livez",
    "/v1/resources/k%3F/livez",
    "/v1/resources/k%23/livez",
    "/v1/resources/k;/livez",
    "/v1/resources/k/livez",
    "/v1/resources/k%00/livez",
    "/livez/../v1/resources/k",
    "/livez/..%2Fv1/resources/k",
    "/livez%2F..%2Fv1%2Fresources%2Fk",
    "/livez/v1/resources/k",
    "/metrics/../v1/resources/k",
    "/./v1/resources/k",
    "//v1/resources/k",
    "/v1//resources/k",
    "/v1/%72esources/k",
    "/%761/resources/k",
    "/%6civez",
    "/%6Civez",
    "/livez/",
    "/livez%20",
    "/LIVEZ",
    "/v1/marks/livez",
    "/v1/locks/livez",
];

async fn guarded() -> (TestStore, Access, Fencepost, String) {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let token = access.token("orders");
    let policy = access.write("policy", POLICY);
    let flags = ["--tokens-file", &access.path("tokens"), "--policy", &policy];
    let server = Fencepost::with(&store, &flags).await;
    (store, access, server, token)
}

#[tokio::test]
async fn whatever_a_stranger_asks_for_and_however_the_answer_is_the_same() {
    let (_store, _access, server, _) = guarded().await;
    for target in TARGETS {
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "TRACE", "PATCH", "get"] {
            let answer = raw(
                &server.address,
                format!(
                    "{method} {target} HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 1\r\n\
                     Connection: close\r\nContent-Length: 0\r\n\r\n"
                ),
            )
            .await;
            assert_eq!(status(&answer), 401, "{method} {target}: {answer}");
        }
    }
}

#[tokio::test]
async fn the_form_of_the_target_makes_no_difference() {
    let (_store, _access, server, token) = guarded().await;
    for target in [
        "http://test/livez",
        "http://127.0.0.1:7421/livez",
        "http://livez/v1/resources/carts/1",
        "http://test/v1/resources/carts/1?/livez",
        "HTTP://test/v1/resources/carts/1",
        "http://user@test/v1/resources/carts/1",
    ] {
        let stranger = send(&server.address, "GET", target, &[], "").await;
        assert_eq!(stranger.status, 401, "{target}");
        let bearer = format!("Authorization: Bearer {token}");
        let known = send(&server.address, "GET", target, &[&bearer], "").await;
        assert!([400, 403, 404].contains(&known.status), "{target}: {}", known.text());
        assert_ne!(known.text(), "ok\n", "{target}");
    }
    let star =
        raw(&server.address, "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!([400, 401].contains(&status(&star)), "{star}");
    let connect =
        raw(&server.address, "CONNECT livez:80 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
    assert!([400, 401].contains(&status(&connect)), "{connect}");
}

#[tokio::test]
async fn headers_by_which_others_rewrite_a_request_mean_nothing() {
    let (_store, _access, server, token) = guarded().await;
    let bearer = format!("Authorization: Bearer {token}");
    for header in [
        "X-Original-URL: /livez",
        "X-Rewrite-URL: /v1/resources/orders/1",
        "X-Forwarded-Uri: /v1/resources/orders/1",
        "X-Forwarded-Prefix: /v1/resources/orders",
        "X-Forwarded-Path: /livez",
        "X-Forwarded-For: 127.0.0.1",
        "X-Real-IP: 127.0.0.1",
        "Forwarded: for=127.0.0.1;host=localhost",
        "X-Forwarded-Client-Cert: URI=spiffe://example.org/admin",
        "X-HTTP-Method-Override: GET",
        "X-HTTP-Method: GET",
        "X-Method-Override: GET",
        "X-Remote-User: operator",
    ] {
        let target = "/v1/resources/carts/1";
        let stranger = send(&server.address, "PUT", target, &[header], "v").await;
        assert_eq!(stranger.status, 401, "{header}");
        let headers = [bearer.as_str(), "X-Fencing-Token: 1", header];
        let known = send(&server.address, "PUT", target, &headers, "v").await;
        assert_eq!(known.status, 403, "{header}");
        // The header does not turn a write that is allowed into something else, either.
        let own = send(&server.address, "PUT", "/v1/resources/orders/1", &headers, "v").await;
        assert!([200, 201].contains(&own.status), "{header}: {}", own.text());
    }
}

#[tokio::test]
async fn a_key_may_be_named_like_what_is_open() {
    let (_store, _access, server, token) = guarded().await;
    let client = server.client().bearing(&token);
    for name in ["livez", "metrics", "readyz", "openapi.json"] {
        assert_eq!(answer(client.put(name, 1, "v")).await.status, 403, "{name}");
        assert_eq!(answer(client.read(name)).await.status, 403, "{name}");
        let own = format!("orders/{name}");
        assert_eq!(answer(client.put(&own, 1, "v")).await.status, 201, "{name}");
        assert_eq!(answer(client.read(&own)).await.text(), "v", "{name}");
    }
}

#[tokio::test]
async fn over_http_2_it_is_the_same() {
    let (_store, _access, server, token) = guarded().await;
    let stranger = Client::over_http_2(&server.address);
    for path in ["/livez", "/metrics", "/v1/resources/orders/1", "/v1/resources/k?x=/livez"] {
        assert_eq!(answer(stranger.get(path)).await.status, 401, "{path}");
        // Another authority than the Host, one of which names what is open elsewhere.
        let mixed = stranger.get(path).header("Host", "livez");
        assert!([400, 401].contains(&answer(mixed).await.status), "{path}");
    }
    let client = stranger.bearing(&token);
    assert_eq!(answer(client.put("orders/1", 1, "v")).await.status, 201);
    let mixed = client.put("carts/1", 1, "v").header("Host", "orders");
    assert_ne!(answer(mixed).await.status, 201);
    // One connection, several identities: each request stands for itself.
    for _ in 0..3 {
        assert_eq!(answer(client.read("orders/1")).await.status, 200);
        assert_eq!(answer(stranger.read("orders/1")).await.status, 401);
    }
}

#[tokio::test]
async fn on_one_connection_each_request_stands_for_itself() {
    let (_store, _access, server, token) = guarded().await;
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let get = |more: &str, end: &str| {
        format!("GET /v1/resources/orders/1 HTTP/1.1\r\nHost: a\r\n{more}{end}\r\n")
    };
    // After a stranger's the connection ends: there is nothing to be had for a place in the queue.
    let requests = [get(&bearer, ""), get("", ""), get(&bearer, "")].concat();
    let answers = raw(&server.address, requests).await;
    let statuses: Vec<&str> = answers
        .match_indices("HTTP/1.1 ")
        .map(|(at, start)| &answers[at + start.len()..at + start.len() + 3])
        .collect();
    assert_eq!(statuses, ["404", "401"], "{answers}");
}

/// Not even by a request that could be read in two ways.
#[tokio::test]
async fn a_stranger_leaves_no_traces_in_the_record() {
    let (_store, _access, server, _) = guarded().await;
    let request = "PUT /v1/resources/orders/1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\
                   X-Fencing-Client: forged\r\nContent-Length: 0\r\n\r\n";
    let said = raw(&server.address, request).await;
    assert_eq!(status(&said), 401, "{said}");
    assert!(said.contains("connection: close"), "{said}");
    let recorded = answer(server.admin_client().get("/v1/rejections")).await.text();
    assert!(!recorded.contains("forged"), "{recorded}");
}

/// A sidecar asks nobody for a password, and a browser on its machine may be on anybody's page.
#[tokio::test]
async fn pages_of_other_sites_are_not_answered_where_nobody_has_to_prove_anything() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let own = format!("http://{}", server.address);
    for (header, value, expected) in [
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
        ("Sec-Fetch-Site", "none", 201),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", &own, 201),
    ] {
        let name = format!("{header}-{}", value.len());
        let asked = client.acquire(&name, &serde_json::json!({})).header(header, value);
        assert_eq!(answer(asked).await.status, expected, "{header}: {value}");
    }
}

/// A site may have its own name lead to 127.0.0.1: to its browser that is the site itself.
#[tokio::test]
async fn nor_are_pages_under_a_name_that_leads_here() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let as_chrome = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept-Language: en\r\n";
    let as_curl = "User-Agent: curl/8.5.0\r\n";
    for (host, headers, expected) in [
        ("evil.example:7420", as_chrome, 403),
        ("evil.example:7420", "Accept-Language: *\r\n", 403),
        ("localhost:7420", as_chrome, 404),
        ("127.0.0.1:7420", as_chrome, 404),
        ("fence:7420", as_chrome, 404),
        ("fence.shop.svc.cluster.local:7420", as_curl, 404),
        ("evil.example:7420", as_curl, 404),
    ] {
        let request = format!(
            "GET /v1/resources/k HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n"
        );
        let said = raw(&server.address, request).await;
        assert_eq!(status(&said), expected, "{host} {headers}: {said}");
    }
}

/// Over HTTP/1.1 each of them ends with its answer.
#[tokio::test]
async fn over_http_2_too_strangers_do_not_keep_a_connection() {
    let (_store, _access, server, token) = guarded().await;
    let mut stranger = Connection::open(&server.address, 65_535).await;
    let mut answers = 0;
    while let Some((status, _)) = stranger.get("/v1/resources/orders/1", &[]).await {
        assert_eq!(status, 401);
        answers += 1;
        assert!(answers < 1000, "it goes on for ever");
    }
    assert!(answers > 1, "a mistake or two are nothing");
    stranger.until_closed().await;

    // One connection may carry many: where somebody is known, the others do not end it.
    let mut shared = Connection::open(&server.address, 65_535).await;
    let bearer = format!("Bearer {token}");
    let known = [("Authorization", bearer.as_str())];
    for _ in 0..100 {
        let (status, _) = shared.get("/v1/resources/orders/1", &known).await.expect("an answer");
        assert_eq!(status, 404);
        let (status, _) = shared.get("/v1/resources/orders/1", &[]).await.expect("an answer");
        assert_eq!(status, 401);
    }
    assert!(shared.is_open());
}

#[tokio::test]
async fn strangers_do_not_cut_off_somebody_who_still_waits() {
    let (_store, _access, server, token) = guarded().await;
    let mut shared = Connection::open(&server.address, 65_535).await;
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("X-Fencing-Token", "1")];
    let begun = shared.begin(Method::PUT, "/v1/resources/orders/1", &headers, false).await;
    let (answer, mut body) = begun.expect("a request");
    for _ in 0..100 {
        let (status, _) = shared.get("/v1/resources/orders/1", &[]).await.expect("an answer");
        assert_eq!(status, 401);
    }
    body.send_data("v".into(), true).expect("it is still there");
    assert_eq!(answer.await.expect("an answer").status().as_u16(), 201);
}

/// Over HTTP/2 a body there would be an error of the protocol.
#[tokio::test]
async fn a_head_is_answered_without_a_body_however_it_ends() {
    let (_store, _access, server, token) = guarded().await;
    let mut client = Connection::open(&server.address, 65_535).await;
    let bearer = format!("Bearer {token}");
    let known = [("Authorization", bearer.as_str())];
    for (path, headers, expected) in [
        ("/v1/resources/orders/1", &known[..], 404),
        ("/v1/resources/other", &known[..], 403),
        ("/v1/nothing", &known[..], 404),
        ("/v1/batch", &known[..], 405),
        ("/openapi.json", &known[..], 200),
        ("/v1/resources/orders/1", &[], 401),
    ] {
        let begun = client.begin(Method::HEAD, path, headers, true).await;
        let (answer, _) = begun.expect("a request");
        let (head, mut body) = answer.await.expect("an answer").into_parts();
        assert_eq!(head.status.as_u16(), expected, "{path}");
        assert!(head.headers["content-length"] != "0", "{path}: {:?}", head.headers);
        assert!(body.data().await.is_none(), "{path} has a body");
    }
}

/// What is traced is for those to say who are known: a stranger could fill a collector.
#[tokio::test]
async fn a_stranger_does_not_say_what_is_traced() {
    let collector = Collector::start(Mood::Willing).await;
    let (store, access) = (TestStore::sqlite(), Access::new());
    let token = access.token("orders");
    let tokens = access.path("tokens");
    let flags = ["--tokens-file", &tokens, "--otlp-endpoint", &collector.url];
    let server = Fencepost::with(&store, &flags).await;
    let [foreign, own] = ["0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d"];
    let parent = |trace: &str| format!("00-{trace}-b7ad6b7169203331-01");
    let stranger = server.client().read("k").header("traceparent", parent(foreign));
    let turned_away = answer(stranger).await;
    assert_eq!((turned_away.status, turned_away.header("traceparent")), (401, None));
    let known = server.client().bearing(&token).read("k").header("traceparent", parent(own));
    assert_eq!(answer(known).await.status, 404);
    let seen = |trace: &str| collector.seen().iter().any(|span| span.trace == trace);
    eventually("the known one's arrives", || async { seen(own) }).await;
    // They are sent in the order in which they ended.
    assert!(!seen(foreign));
}
