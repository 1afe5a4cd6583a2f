//! The policy: what an identity may touch, wherever in a request it is named.

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::harness::{
    access::Access,
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
};

const POLICY: &str = r#"
[[rule]]
identity = "orders"
prefixes = ["orders/"]
rights = ["read", "write", "lock"]

[[rule]]
identity = "reader"
prefixes = ["orders/"]
rights = ["read"]

[[rule]]
identity = "locker"
prefixes = ["orders/"]
rights = ["lock"]

[[rule]]
identity = "operator"
prefixes = [""]
rights = ["admin"]
"#;

struct Scene {
    server: Fencepost,
    access: Access,
    _store: TestStore,
}

impl Scene {
    async fn new(flags: &[&str]) -> Self {
        let (store, access) = (TestStore::sqlite(), Access::new());
        access.write("policy", POLICY);
        for identity in ["orders", "reader", "locker", "operator", "nobody"] {
            access.write(identity, access.token(identity));
        }
        let (tokens, policy) = (access.path("tokens"), access.path("policy"));
        let given = ["--tokens-file", &tokens, "--policy", &policy, "--authority", "store"];
        let server = Fencepost::with(&store, &[&given, flags].concat()).await;
        Self { server, access, _store: store }
    }

    fn client(&self, identity: &str) -> Client {
        let token = std::fs::read_to_string(self.access.path(identity)).unwrap();
        self.server.client().bearing(&token)
    }
}

async fn status(request: RequestBuilder) -> u16 {
    let answer = answer(request).await;
    if answer.status == 403 {
        assert_eq!(answer.problem(), "forbidden");
        assert_eq!(answer.fencing(), (None, None), "nothing is told of the key");
    }
    answer.status
}

#[tokio::test]
async fn each_right_is_for_its_own_and_what_no_rule_allows_is_forbidden() {
    let scene = Scene::new(&["--trust", "open"]).await;
    let (orders, reader) = (scene.client("orders"), scene.client("reader"));
    assert_eq!(status(orders.put("orders/1", 1, "v")).await, 201);
    assert_eq!(status(reader.read("orders/1")).await, 200);
    assert_eq!(status(reader.get("/v1/marks/orders/1")).await, 200);
    assert_eq!(status(reader.get("/v1/locks/orders/1")).await, 200);
    for (who, request) in [
        ("reader writes", reader.put("orders/1", 2, "v")),
        ("reader deletes", reader.delete("orders/1", 2)),
        ("reader claims", reader.claim("orders/1", 2)),
        ("reader reads with a token", reader.read("orders/1").header("X-Fencing-Token", 2)),
        ("reader locks", reader.acquire("orders/1", &json!({}))),
        ("locker reads", scene.client("locker").read("orders/1")),
        ("locker writes", scene.client("locker").put("orders/1", 2, "v")),
        ("operator reads", scene.client("operator").read("orders/1")),
        ("nobody reads", scene.client("nobody").read("orders/1")),
        ("orders sees rejections", orders.get("/v1/rejections")),
        ("orders sees its rejections", orders.get("/v1/rejections?key=orders%2F1")),
    ] {
        assert_eq!(status(request).await, 403, "{who}");
    }
    assert_eq!(orders.mark("orders/1").await, (1, 0), "nothing of it has had an effect");
    assert_eq!(status(scene.client("operator").get("/v1/rejections")).await, 200);
    // A lock's own claim raises the mark of its key.
    let token = scene.client("locker").lock("orders/2", std::time::Duration::from_mins(1)).await;
    assert_eq!(orders.mark("orders/2").await, (token, 0));
    assert_eq!(status(scene.client("locker").release("orders/2", token)).await, 204);
}

#[tokio::test]
async fn a_key_is_looked_at_wherever_it_is_named() {
    let scene = Scene::new(&["--trust", "open"]).await;
    let orders = scene.client("orders");
    let batch = |writes| orders.batch(&json!({ "writes": writes }));
    for (what, request) in [
        ("a key", orders.put("carts/1", 1, "v")),
        ("a scope", orders.put("orders/1", 1, "v").header("X-Fencing-Scope", "carts/1")),
        (
            "the scope of a fenced read",
            orders
                .read("orders/1")
                .header("X-Fencing-Token", 1)
                .header("X-Fencing-Scope", "carts%2F1"),
        ),
        ("a mark", orders.get("/v1/marks/carts/1")),
        ("a claim", orders.claim("carts/1", 1)),
        ("a lock", orders.acquire("carts/1", &json!({}))),
        ("a look at a lock", orders.get("/v1/locks/carts/1")),
        ("a renewal", orders.renew("carts/1", 1)),
        ("a release", orders.release("carts/1", 1)),
        ("everything", orders.get("/v1/resources")),
        ("a wider prefix", orders.get("/v1/resources?prefix=orders")),
        ("another prefix", orders.get("/v1/resources?prefix=carts/")),
        ("all locks", orders.get("/v1/locks")),
        ("the locks of others", orders.get("/v1/locks?prefix=carts/")),
        ("after does not help", orders.get("/v1/resources?prefix=&after=orders/")),
        (
            "the second of a batch",
            batch(json!([
                {"key": "orders/1", "token": 1, "value": 1},
                {"key": "carts/1", "token": 1, "value": 1},
            ])),
        ),
        (
            "the scope of a batch's write",
            batch(json!([{"key": "orders/1", "token": 1, "scope": "carts/1", "value": 1}])),
        ),
    ] {
        assert_eq!(status(request).await, 403, "{what}");
    }
    let forbidden =
        answer(batch(json!([{"key": "orders/1", "token": 1, "value": 1}, {"key": "x", "token": 1, "delete": true}])))
            .await;
    assert_eq!(forbidden.json()["index"], 1);
    assert_eq!(orders.mark("orders/1").await, (0, 0), "nothing of it has had an effect");
    for (what, request) in [
        ("its own prefix", orders.get("/v1/resources?prefix=orders/")),
        ("a narrower one", orders.get("/v1/resources?prefix=orders/4")),
        ("its locks", orders.get("/v1/locks?prefix=orders/")),
        ("its own batch", batch(json!([{"key": "orders/1", "token": 1, "value": 1}]))),
    ] {
        assert_eq!(status(request).await, 200, "{what}");
    }
}

#[tokio::test]
async fn a_prefix_is_compared_with_the_key_that_is_stored() {
    let scene = Scene::new(&["--trust", "open"]).await;
    let orders = scene.client("orders");
    // The server never rewrites a path: these are names of their own.
    for key in ["orders/..", "orders/../carts/1", "orders//1", "orders%2F1", "%6Frders/1"] {
        let target = format!("/v1/resources/{key}");
        let bearer = format!(
            "Authorization: Bearer {}",
            std::fs::read_to_string(scene.access.path("orders")).unwrap()
        );
        let headers = [bearer.as_str(), "X-Fencing-Token: 1"];
        let put =
            crate::harness::http::send(&scene.server.address, "PUT", &target, &headers, "v").await;
        assert!(put.status < 300, "{key}: {}", put.text());
    }
    for key in ["ORDERS/1", "%2Forders/1", "./orders/1", "carts/../orders/1", "orders"] {
        let target = format!("/v1/resources/{key}");
        let bearer = format!(
            "Authorization: Bearer {}",
            std::fs::read_to_string(scene.access.path("orders")).unwrap()
        );
        let headers = [bearer.as_str(), "X-Fencing-Token: 1"];
        let put =
            crate::harness::http::send(&scene.server.address, "PUT", &target, &headers, "v").await;
        assert_eq!(put.status, 403, "{key}: {}", put.text());
    }
    let listed = answer(orders.get("/v1/resources?prefix=orders/")).await.json();
    let keys: Vec<&str> = listed["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["orders/..", "orders/../carts/1", "orders//1", "orders/1"]);
}

#[tokio::test]
async fn forbidden_is_the_same_for_what_is_there_and_what_is_not() {
    let scene = Scene::new(&["--trust", "open"]).await;
    assert_eq!(status(scene.client("orders").put("orders/1", 7, "v")).await, 201);
    let nobody = scene.client("nobody");
    let mut seen = Vec::new();
    for key in ["orders/1", "orders/2"] {
        for request in [
            nobody.read(key),
            nobody.put(key, 1, "v"),
            nobody.put(key, 8, "v").header("If-Match", "\"1\""),
            nobody.get(&format!("/v1/marks/{key}")),
            nobody.request(Method::HEAD, &format!("/v1/resources/{key}")),
        ] {
            let answer = answer(request).await;
            assert_eq!(answer.status, 403);
            seen.push(answer.text());
        }
    }
    assert_eq!(seen[..5], seen[5..]);
}

#[tokio::test]
async fn without_a_policy_whoever_is_known_may_do_all_but_what_operators_do() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let token = access.token("anybody");
    let flags = ["--tokens-file", &access.path("tokens"), "--authority", "store"];
    let server = Fencepost::with(&store, &flags).await;
    let client = server.client().bearing(&token);
    let token = client.lock("a", std::time::Duration::from_mins(1)).await;
    assert_eq!(status(client.put("a", token, "v")).await, 201);
    assert_eq!(status(client.get("/v1/resources")).await, 200);
    assert_eq!(status(client.get("/v1/rejections")).await, 403);
}

/// Whoever may not write a key leaves nothing behind by writing it badly, either.
#[tokio::test]
async fn what_is_malformed_is_recorded_for_those_who_may_write_there() {
    let scene = Scene::new(&[]).await;
    let bad_token = |identity: &str, key: &str| {
        let request = scene.client(identity).request(Method::PUT, &format!("/v1/resources/{key}"));
        request.header("X-Fencing-Token", "five").header("X-Fencing-Client", "mark-of-the-test")
    };
    let bad_batch = |identity: &str| {
        let request = scene.client(identity).batch(&json!({"writes": []}));
        request.header("X-Fencing-Client", "mark-of-the-test")
    };
    let recorded = async || {
        let record = answer(scene.server.admin_client().get("/v1/rejections")).await.json();
        record["rejections"].as_array().unwrap().len()
    };
    for (identity, key) in [
        ("reader", "orders/1"),
        ("locker", "orders/1"),
        ("nobody", "orders/1"),
        ("operator", "orders/1"),
        ("orders", "carts/1"),
        ("nobody", "%00"),
        ("reader", "orders/%zz"),
    ] {
        assert_eq!(status(bad_token(identity, key)).await, 403, "{identity} {key}");
    }
    let scope = bad_token("orders", "orders/1").header("X-Fencing-Scope", "carts/1");
    assert_eq!(status(scope).await, 400, "its token is looked at before its scope");
    assert_eq!(recorded().await, 1);
    let foreign = scene.client("orders").put("orders/1", 1, "v");
    let foreign = foreign.header("X-Fencing-Scope", "carts/1").header("X-Fencing-Rule", "none");
    assert_eq!(status(foreign).await, 403);
    for identity in ["reader", "nobody", "operator"] {
        assert_eq!(status(bad_batch(identity)).await, 403, "{identity}");
    }
    assert_eq!(recorded().await, 1);
    assert_eq!(status(bad_token("orders", "orders/1")).await, 400);
    assert_eq!(status(bad_token("orders", "%00")).await, 400);
    assert_eq!(status(bad_batch("orders")).await, 400);
    assert_eq!(recorded().await, 4);
}
