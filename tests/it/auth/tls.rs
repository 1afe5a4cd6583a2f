//! TLS, and clients that prove who they are by their certificates.

use std::time::Duration;

use reqwest::Version;
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::harness::{
    PATIENCE,
    access::{Access, Ca, flags, host, uri},
    eventually,
    fencepost::{Fencepost, run},
    http::{Client, answer},
    store::TestStore,
};

const SPIFFE: &str = "spiffe://example.org/ns/shop/sa/orders";

#[tokio::test]
async fn a_certificate_says_who_asks_by_its_san() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let policy = format!(
        "[[rule]]\nidentity = \"{SPIFFE}\"\nprefixes = [\"a/\"]\nrights = [\"read\", \"write\"]\n\
         [[rule]]\nidentity = \"billing.example\"\nprefixes = [\"b/\"]\nrights = [\"read\", \"write\"]\n"
    );
    let tls = ca.serve_flags(&access);
    let (client_ca, policy) = (access.path("ca.pem"), access.write("policy", policy));
    let given = ["--tls-client-ca", &client_ca, "--policy", &policy];
    let server = Fencepost::with(&store, &[&flags(&tls)[..], &given].concat()).await;
    let by_uri = ca.client(&server.address, &[host("orders.shop"), uri(SPIFFE)]);
    let by_host = ca.client(&server.address, &[host("billing.example")]);
    for (client, own, other) in [(&by_uri, "a/1", "b/1"), (&by_host, "b/1", "a/1")] {
        let put = client.put(own, 1, "v").send().await.expect("an answer");
        assert_eq!((put.status().as_u16(), put.version()), (201, Version::HTTP_2));
        assert_eq!(answer(client.put(other, 1, "v")).await.status, 403);
    }
    // A browser would show it for any page that asks.
    for (header, value) in [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")] {
        let from_a_page = answer(by_uri.put("a/1", 1, "v").header(header, value)).await;
        assert_eq!(from_a_page.status, 403, "{header}: {}", from_a_page.text());
    }
    // Known to the authority, but not clear who it is.
    let two = ca.client(&server.address, &[uri(SPIFFE), uri("spiffe://example.org/other")]);
    assert_eq!(answer(two.read("a/1")).await.status, 401);
    // There is no other way to prove it, so a certificate is needed for the handshake itself; and
    // one of another authority, or none, does not do.
    assert!(ca.client(&server.address, &[]).read("a/1").send().await.is_err());
    let other = Ca::new("theirs");
    let (certificate, key) = other.issue(&[uri(SPIFFE)]);
    let forged = Client::over_tls(&server.address, |builder| {
        let trusted = reqwest::Certificate::from_pem(ca.pem().as_bytes()).unwrap();
        let pem = format!("{key}\n{certificate}");
        builder
            .tls_certs_only([trusted])
            .identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap())
    });
    assert!(forged.read("a/1").send().await.is_err());
    // Nor does plain HTTP.
    assert!(Client::new(&server.address).read("a/1").send().await.is_err());
    let metrics = answer(server.admin_client().get("/metrics")).await.text();
    assert!(!metrics.contains("tls_handshakes_failed_total 0"), "{metrics}");
}

#[tokio::test]
async fn either_proof_will_do_but_a_wrong_one_is_not_made_good_by_the_other() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let token = access.token("orders");
    let policy = access.write(
        "policy",
        "[[rule]]\nidentity = \"orders\"\nprefixes = [\"\"]\nrights = [\"read\"]\n",
    );
    let tls = ca.serve_flags(&access);
    let (client_ca, tokens) = (access.path("ca.pem"), access.path("tokens"));
    let given = ["--tls-client-ca", &client_ca, "--tokens-file", &tokens, "--policy", &policy];
    let server = Fencepost::with(&store, &[&flags(&tls)[..], &given].concat()).await;
    let bare = ca.client(&server.address, &[]);
    let certified = ca.client(&server.address, &[uri(SPIFFE)]);
    assert_eq!(answer(bare.read("k")).await.status, 401);
    assert_eq!(answer(bare.bearing(&token).read("k")).await.status, 404);
    assert_eq!(answer(certified.read("k")).await.status, 403, "known, and not allowed");
    assert_eq!(answer(certified.bearing(&token).read("k")).await.status, 404, "the token says who");
    assert_eq!(answer(certified.bearing("fp_wrong").read("k")).await.status, 401);
}

#[tokio::test]
async fn new_certificates_are_taken_without_a_restart_and_broken_ones_are_not() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let token = access.token("orders");
    let tls = ca.serve_flags(&access);
    let tokens = access.path("tokens");
    let given = [&flags(&tls)[..], &["--tokens-file", &tokens]].concat();
    let server = Fencepost::with(&store, &given).await;
    let works = async |ca: &Ca| {
        let client = ca.client(&server.address, &[]).bearing(&token);
        client.read("k").send().await.is_ok_and(|answer| answer.status() == 404)
    };
    assert!(works(&ca).await);

    // A certificate without its key.
    let next = Ca::new("the next");
    let (certificate, key) = next.issue(&[rcgen::SanType::IpAddress([127, 0, 0, 1].into())]);
    access.write("server.pem", &certificate);
    eventually("it is refused", || async { server.log().contains("REFUSED") }).await;
    assert!(works(&ca).await, "the old one stays");
    let metrics = answer(server.admin_client().get("/metrics")).await.text();
    assert!(metrics.contains("fencepost_file_refused{file=\"tls\"} 1"), "{metrics}");

    access.write("server.key", &key);
    eventually("the new one is in force", || async { works(&next).await }).await;
    assert!(!works(&ca).await);
    let metrics = answer(server.admin_client().get("/metrics")).await.text();
    assert!(metrics.contains("fencepost_file_refused{file=\"tls\"} 0"), "{metrics}");
}

#[tokio::test]
async fn who_never_finishes_a_handshake_does_not_keep_its_place() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let token = access.token("orders");
    let tls = ca.serve_flags(&access);
    let tokens = access.path("tokens");
    let given = ["--tokens-file", &tokens, "--max-connections", "2"];
    let server = Fencepost::with(&store, &[&flags(&tls)[..], &given].concat()).await;
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(TcpStream::connect(&server.address).await.unwrap());
    }
    for stream in &mut silent {
        let closed = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 16])).await;
        assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
    }
    let client = ca.client(&server.address, &[]).bearing(&token);
    eventually("there is a place again", || async {
        let asked = client.read("k").timeout(Duration::from_secs(5)).send().await;
        asked.is_ok_and(|answer| answer.status() == 404)
    })
    .await;
}

#[tokio::test]
async fn the_admin_listener_can_have_the_same_certificate() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let tls = ca.serve_flags(&access);
    let client_ca = access.path("ca.pem");
    let given = ["--tls-client-ca", &client_ca, "--admin-tls"];
    let server = Fencepost::start(&store.url, &[&flags(&tls)[..], &given].concat());
    let url = format!("https://{}", server.admin);
    // Probes need no certificate, whatever the public listener asks for.
    let ready = run(&["healthcheck", "--admin-url", &url, "--ca", &client_ca, "--wait", "30s"]);
    assert!(ready.status.success(), "{}", String::from_utf8_lossy(&ready.stderr));
    let probe = ca.client(&server.admin, &[]);
    assert_eq!(answer(probe.get("/livez")).await.status, 200);
    assert!(Client::new(&server.admin).get("/livez").send().await.is_err());
}

/// Whoever resumes a session shows no certificate, and theirs may have expired since.
#[tokio::test]
async fn no_session_is_resumed_without_a_certificate() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let tls = ca.serve_flags(&access);
    let given = ["--tls-client-ca", &access.path("ca.pem")];
    let server = Fencepost::with(&store, &[&flags(&tls)[..], &given].concat()).await;
    let (certificate, key) = ca.issue(&[uri(SPIFFE)]);
    let (certificate, key) = (access.write("own.pem", certificate), access.write("own.key", key));
    for version in ["-tls1_2", "-tls1_3"] {
        let said = std::process::Command::new("openssl")
            .args(["s_client", "-connect", &server.address, "-reconnect", version])
            .args(["-cert", &certificate, "-key", &key])
            .stdin(std::process::Stdio::null())
            .output()
            .expect("openssl runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("New, TLSv1"), "{said}");
        assert!(!said.contains("Reused, TLSv1"), "{said}");
    }
}
