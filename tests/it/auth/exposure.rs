//! Safe by default: what can be reached from elsewhere is guarded, or does not start.

use crate::harness::{
    access::{Access, Ca},
    fencepost::{Fencepost, run},
    store::TestStore,
};

fn refused(flags: &[&str]) -> String {
    let store = TestStore::sqlite();
    let given = ["serve", "--admin-listen=127.0.0.1:0", "--store", &store.url];
    let output = run(&[&given, flags].concat());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{text}");
    text
}

#[test]
fn an_address_for_all_needs_authentication_and_tls() {
    let (access, ca) = (Access::new(), Ca::new("ours"));
    access.token("orders");
    let tokens = access.path("tokens");
    let [cert, cert_path, key, key_path] = ca.serve_flags(&access);
    let tls = [cert.as_str(), &cert_path, &key, &key_path];
    for listen in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        let listen = ["--listen", listen];
        let text = refused(&listen);
        for word in ["--tokens-file", "--tls-cert", "--insecure", "127.0.0.1", "docs/access.md"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        let text = refused(&[&listen[..], &["--tokens-file", &tokens]].concat());
        assert!(text.contains("--tls-cert") && !text.contains("--jwt-keys"), "{text}");
        let text = refused(&[&listen[..], &tls].concat());
        assert!(text.contains("--jwt-keys"), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let access = Access::new();
    access.token("orders");
    let tokens = access.path("tokens");
    let empty = access.write("empty", "# nothing\n");
    for (flags, word) in [
        (&["--tls-cert", "a"][..], "--tls-key"),
        (&["--tokens-file", &empty], "there is no token in it"),
        (&["--tokens-file", &tokens, "--policy", &empty], "there is no rule in it"),
        (&["--tls-client-ca", "a"], "--tls-cert"),
        (&["--admin-tls"], "--tls-cert"),
        (&["--policy", "a"], "--tokens-file"),
        (&["--jwt-keys", "a"], "--jwt-issuer"),
        (&["--jwt-keys", "http://issuer.example/keys"], "https://"),
        (&["--tokens-file", "/does/not/exist"], "/does/not/exist"),
        (&["--tokens-file", &tokens, "--policy", "/does/not/exist"], "/does/not/exist"),
        (&["--tls-cert", &tokens, "--tls-key", &tokens], "certificate"),
    ] {
        let text = refused(&[&["--listen=127.0.0.1:0"], flags].concat());
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[tokio::test]
async fn insecure_has_to_be_said_and_is_said_again_at_every_start() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--listen", "0.0.0.0:0", "--insecure"]).await;
    assert!(server.log().contains("INSECURE"), "{}", server.log());
    let output = run(&["check", "--store", &store.url, "--listen=0.0.0.0:1", "--insecure"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("--insecure: whoever reaches"), "{text}");

    let loopback = Fencepost::on(&store).await;
    assert!(!loopback.log().contains("INSECURE"), "{}", loopback.log());
}
