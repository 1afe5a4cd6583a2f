//! Bearer tokens.

use reqwest::Method;

use crate::harness::{
    access::Access,
    fencepost::Fencepost,
    http::{answer, send},
    store::TestStore,
};

#[tokio::test]
async fn only_who_has_a_token_is_answered() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let (orders, again) = (access.token("orders"), access.token("orders"));
    let server = Fencepost::with(&store, &["--tokens-file", &access.path("tokens")]).await;
    let stranger = server.client();
    for request in [
        stranger.put("k", 1, "v"),
        stranger.read("k"),
        stranger.get("/v1/resources"),
        stranger.get("/v1/locks"),
        stranger.get("/v1/rejections"),
        stranger.get("/openapi.json"),
        stranger.get("/"),
        stranger.request(Method::OPTIONS, "/v1/resources/k"),
    ] {
        let refused = answer(request).await;
        assert_eq!((refused.status, &*refused.problem()), (401, "unauthenticated"));
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        assert_eq!(refused.fencing(), (None, None));
    }
    for token in [&orders, &again] {
        let client = stranger.bearing(token);
        assert!(answer(client.put("k", 1, "v")).await.status < 300);
        assert_eq!(answer(client.read("k")).await.text(), "v");
        assert_eq!(answer(client.get("/openapi.json")).await.status, 200);
    }
    let metrics = answer(server.admin_client().get("/metrics")).await.text();
    let counted = "fencepost_requests_turned_away_total{reason=\"unauthenticated\"} 8";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn what_is_nearly_a_token_is_none_and_nobody_is_told_why() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let token = access.token("orders");
    let server = Fencepost::with(&store, &["--tokens-file", &access.path("tokens")]).await;
    let line = std::fs::read_to_string(access.path("tokens")).unwrap();
    let digest = line.trim().rsplit_once(':').unwrap().1;
    let good = format!("Authorization: Bearer {token}");
    let target = "/v1/resources";
    let cases = [
        vec![],
        vec![format!("Authorization: Bearer {}", &token[..token.len() - 1])],
        vec![format!("Authorization: Bearer {token}0")],
        vec![format!("Authorization: Bearer {}", token.to_uppercase())],
        vec![format!("Authorization: Bearer {digest}")],
        vec![format!("Authorization: Basic {token}")],
        vec![format!("Authorization: {token}")],
        vec!["Authorization: Bearer".into()],
        vec!["Authorization: Bearer null".into()],
        vec![good.clone(), good.clone()],
        vec![good.clone(), "Authorization: Bearer other".into()],
        vec![format!("Authorization: Bearer {token}, Bearer {token}")],
        vec![format!("X-Authorization: Bearer {token}")],
        vec![format!("Cookie: Authorization=Bearer {token}")],
        vec!["X-Forwarded-User: orders".into()],
    ];
    let mut texts = Vec::new();
    for headers in &cases {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let refused = send(&server.address, "GET", target, &headers, "").await;
        assert_eq!(refused.status, 401, "{headers:?}");
        texts.push(refused.text());
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    for header in [good, format!("authorization: bEARER {token}")] {
        assert_eq!(send(&server.address, "GET", target, &[&header], "").await.status, 200);
    }
    assert!(!server.log().contains(&token));
}

#[tokio::test]
async fn a_broken_tokens_file_is_a_usage_error_that_shows_nothing_of_it() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let path = access.write("tokens", "orders:fp_s3cret");
    let output = crate::harness::fencepost::run(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--store",
        &store.url,
        "--tokens-file",
        &path,
    ]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert!(text.contains("line 1") && !text.contains("s3cret"), "{text}");
}
