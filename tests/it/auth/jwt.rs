//! JWTs: checked against published keys, with issuer, audience and time.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{
    access::{Access, Issuer, now},
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
};

const ACCOUNT: &str = "system:serviceaccount:shop:orders";

async fn server(store: &TestStore, access: &Access, keys: &str) -> Fencepost {
    let policy = "[[rule]]\nidentity = \"system:serviceaccount:shop:*\"\nprefixes = [\"orders/\"]\n\
                  rights = [\"read\"]\n";
    let policy = access.write("policy", policy);
    let flags = ["--jwt-keys", keys, "--jwt-issuer", Issuer::NAME];
    let more = ["--jwt-audience", Issuer::AUDIENCE, "--policy", &policy];
    Fencepost::with(store, &[flags, more].concat()).await
}

async fn status(client: &Client, token: &str) -> u16 {
    answer(client.bearing(token).read("orders/1")).await.status
}

fn with(changes: &Value) -> Value {
    let mut claims = Issuer::claims(ACCOUNT);
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn without(name: &str) -> Value {
    let mut claims = Issuer::claims(ACCOUNT);
    claims.as_object_mut().unwrap().remove(name);
    claims
}

#[tokio::test]
async fn a_good_one_proves_its_subject_and_every_other_proves_nothing() {
    let (store, access, issuer) = (TestStore::sqlite(), Access::new(), Issuer::new("key-1"));
    let server = server(&store, &access, &access.write("keys", issuer.jwks())).await;
    let client = server.client();
    let good = issuer.token(&Issuer::claims(ACCOUNT));
    assert_eq!(status(&client, &good).await, 404, "known and allowed: {}", server.log());
    let single = issuer.token(&with(&json!({"aud": Issuer::AUDIENCE})));
    assert_eq!(status(&client, &single).await, 404);
    let other = issuer.token(&Issuer::claims("system:serviceaccount:shopping:orders"));
    assert_eq!(status(&client, &other).await, 403);

    for claims in [
        with(&json!({"exp": now() - 120})),
        with(&json!({"nbf": now() + 120})),
        with(&json!({"exp": "9999999999"})),
        with(&json!({"nbf": "0"})),
        with(&json!({"iss": "https://other.example"})),
        with(&json!({"aud": "other"})),
        with(&json!({"aud": []})),
        with(&json!({"sub": ""})),
        with(&json!({"sub": 7})),
        with(&json!({"sub": "orders\n"})),
        without("exp"),
        without("iss"),
        without("aud"),
        without("sub"),
    ] {
        assert_eq!(status(&client, &issuer.token(&claims)).await, 401, "{claims}");
    }

    let claims = Issuer::claims(ACCOUNT);
    let stranger = Issuer::new("key-1");
    let nobody = Issuer::new("key-2");
    let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let admin = part(Issuer::claims("admin"));
    for token in [
        stranger.token(&claims),
        nobody.token(&claims),
        format!("{header}.{admin}.{signature}"),
        format!("{header}.{payload}."),
        format!("{header}.{payload}"),
        format!("{header}.{payload}.{signature}.{signature}"),
        format!("{}.{payload}.", part(json!({"alg": "none"}))),
        format!("{}.{payload}.", part(json!({"alg": "none", "kid": "key-1"}))),
        // The public key as the secret of an algorithm that has one.
        hmac(&issuer, &claims),
        issuer.signed(&json!({"alg": "ES384", "kid": "key-1"}), &claims),
        issuer.signed(&json!({"alg": "RS256", "kid": "key-1"}), &claims),
        // Extensions that must be understood.
        issuer.signed(
            &json!({"alg": "ES256", "kid": "key-1", "crit": ["b64"], "b64": false}),
            &claims,
        ),
        // A key of the sender's own choice.
        stranger.signed(&json!({"alg": "ES256", "jwk": stranger.jwk(), "kid": "key-1"}), &claims),
    ] {
        assert_eq!(status(&client, &token).await, 401, "{token}");
    }
    assert!(!server.log().contains(&good));
}

fn hmac(issuer: &Issuer, claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"alg": "HS256", "kid": issuer.kid});
    let message = format!("{}.{}", part(&header), part(claims));
    let secret = issuer.jwk()["x"].as_str().unwrap().to_owned();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let tag = ring::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

/// A place that publishes keys, and counts how often it is asked.
struct Publisher {
    url: String,
    keys: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
}

impl Publisher {
    async fn start(keys: Option<String>) -> Self {
        let keys = Arc::new(Mutex::new(keys));
        let asked: Arc<AtomicUsize> = Arc::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let (now, count) = (keys.clone(), asked.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                count.fetch_add(1, Ordering::SeqCst);
                let keys = now.lock().unwrap().clone();
                let status = if keys.is_some() { "200 OK" } else { "500 Broken" };
                let keys = keys.unwrap_or_default();
                let length = keys.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{keys}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, keys, asked }
    }

    fn publish(&self, keys: Option<String>) {
        *self.keys.lock().unwrap() = keys;
    }
}

#[tokio::test]
async fn keys_at_an_address_are_asked_for_when_they_change_and_kept_when_it_is_away() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let (first, second) = (Issuer::new("first"), Issuer::new("second"));
    let publisher = Publisher::start(Some(first.jwks())).await;
    let server = server(&store, &access, &publisher.url).await;
    let client = server.client();
    let claims = Issuer::claims(ACCOUNT);
    eventually("its keys are known", || async {
        status(&client, &first.token(&claims)).await == 404
    })
    .await;

    // Strangers who name keys that there are not cannot make us ask all the time.
    let asked = publisher.asked.load(Ordering::SeqCst);
    for number in 0..50 {
        let unknown = Issuer::new(&format!("unknown-{number}"));
        assert_eq!(status(&client, &unknown.token(&claims)).await, 401);
    }
    assert!(publisher.asked.load(Ordering::SeqCst) <= asked + 2, "{asked}");

    // It fails, and what is known goes on being good.
    publisher.publish(None);
    eventually("it was asked in vain", || async {
        let unknown = Issuer::new("unknown").token(&claims);
        assert_eq!(status(&client, &unknown).await, 401);
        server.log().contains("could not be had")
    })
    .await;
    assert_eq!(status(&client, &first.token(&claims)).await, 404);

    // A new key is known as soon as somebody comes with it, and an old one is forgotten with that.
    publisher.publish(Some(second.jwks()));
    eventually("the new key is known", || async {
        status(&client, &second.token(&claims)).await == 404
    })
    .await;
    assert_eq!(status(&client, &first.token(&claims)).await, 401);
}

/// The issuer may give any name, also that of somebody who has a token.
#[tokio::test]
async fn a_rule_for_tokens_is_not_for_jwts() {
    let (store, access, issuer) = (TestStore::sqlite(), Access::new(), Issuer::new("one"));
    let token = access.token("orders");
    let keys = access.write("keys", issuer.jwks());
    let rule = |by: &str, prefix: &str| {
        format!(
            "[[rule]]\nidentity = \"orders\"\n{by}prefixes = [\"{prefix}\"]\n\
             rights = [\"read\", \"lock\"]\n"
        )
    };
    let policy = [rule("by = [\"token\"]\n", "orders/"), rule("", "both/")].concat();
    let policy = access.write("policy", policy);
    let tokens = access.path("tokens");
    let flags = ["--tokens-file", &tokens, "--policy", &policy, "--authority", "store"];
    let jwt = ["--jwt-keys", &keys, "--jwt-issuer", Issuer::NAME];
    let audience = ["--jwt-audience", Issuer::AUDIENCE];
    let server = Fencepost::with(&store, &[&flags[..], &jwt, &audience].concat()).await;
    let by_token = server.client().bearing(&token);
    let by_jwt = server.client().bearing(&issuer.token(&Issuer::claims("orders")));
    assert_eq!(answer(by_token.read("orders/1")).await.status, 404);
    assert_eq!(answer(by_jwt.read("orders/1")).await.status, 403);
    assert_eq!(answer(by_jwt.read("both/1")).await.status, 404);
    let held = by_token.lock("orders/1", std::time::Duration::from_mins(5)).await;
    assert_eq!(answer(by_jwt.renew("orders/1", held)).await.status, 403);
    assert_eq!(answer(by_jwt.release("orders/1", held)).await.status, 403);
    assert_eq!(answer(by_token.release("orders/1", held)).await.status, 204);
}
