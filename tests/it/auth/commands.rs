//! The commands of the binary: `token`, and those that speak to a guarded server.

use std::{fs, os::unix::fs::PermissionsExt, process::Output};

use serde_json::Value;

use crate::harness::{
    access::{Access, Ca, flags, uri},
    fencepost::{BINARY, Fencepost, run, run_with},
    store::TestStore,
};

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr]
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .concat()
}

#[tokio::test]
async fn clients_can_present_what_a_guarded_server_asks_for() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    let token = access.token("orders");
    let bearer = access.write("bearer", format!("{token}\n"));
    let tls = ca.serve_flags(&access);
    let (authority, tokens) = (access.path("ca.pem"), access.path("tokens"));
    let given = ["--tokens-file", &tokens, "--tls-client-ca", &authority, "--authority", "store"];
    let server = Fencepost::with(&store, &[&flags(&tls)[..], &given].concat()).await;
    let url = format!("https://{}", server.address);
    let with = |command: &[&str], more: &[&str]| {
        run(&[command, &["--url", &url, "--ca", &authority], more].concat())
    };

    let bare = with(&["get", "k"], &[]);
    assert_eq!(bare.status.code(), Some(1), "{}", text(&bare));
    assert!(text(&bare).contains("unauthenticated"), "{}", text(&bare));
    let untrusting = run(&["get", "k", "--url", &url, "--bearer-file", &bearer]);
    assert_eq!(untrusting.status.code(), Some(69), "{}", text(&untrusting));

    let by_file = ["--bearer-file", bearer.as_str()];
    let locked = with(&["lock", "k", "-o", "token"], &by_file);
    assert!(locked.status.success(), "{}", text(&locked));
    let fencing = String::from_utf8(locked.stdout).unwrap();
    let put = with(&["put", "k", "v", "--token", fencing.trim()], &by_file);
    assert!(put.status.success(), "{}", text(&put));
    let arguments = ["get", "k", "--url", &url, "--ca", &authority];
    let by_environment = run_with(&arguments, |command| {
        command.env("FENCEPOST_BEARER", &token);
    });
    assert_eq!(text(&by_environment), "v");

    let (certificate, key) = ca.issue(&[uri("spiffe://example.org/orders")]);
    let (certificate, key) =
        (access.write("client.pem", certificate), access.write("client.key", key));
    let by_certificate =
        with(&["get", "k"], &["--client-cert", &certificate, "--client-key", &key]);
    assert_eq!(text(&by_certificate), "v");
    // It is somebody else by that, and the lock is not theirs.
    let unlock = with(
        &["unlock", "k", "--token", fencing.trim()],
        &["--client-cert", &certificate, "--client-key", &key],
    );
    assert!(text(&unlock).contains("forbidden"), "{}", text(&unlock));
    let unlock = with(&["unlock", "k", "--token", fencing.trim()], &by_file);
    assert!(unlock.status.success(), "{}", text(&unlock));

    // What runs under a lock has all it needs to write.
    let script = format!("{BINARY} put --scope job result done");
    let arguments = ["run", "--lock", "job", "--", "sh", "-c", script.as_str()];
    let ran = run_with(&arguments, |command| {
        command.env("FENCEPOST_URL", &url).env("FENCEPOST_CA", &authority);
        command.env("FENCEPOST_BEARER_FILE", &bearer);
    });
    assert!(ran.status.success(), "{}", text(&ran));
    assert!(!server.log().contains(&token));
}

#[test]
fn a_token_is_shown_once_and_its_line_has_only_a_digest() {
    let output = run(&["token", "system:serviceaccount:shop:orders"]);
    let (token, line) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success());
    let secret = token.trim().strip_prefix("fp_").expect("a marker");
    assert_eq!(secret.len(), 64, "256 bits");
    assert!(line.starts_with("system:serviceaccount:shop:orders:") && !line.contains(secret));
    for wrong in ["", " orders", "a\nb"] {
        assert_eq!(run(&["token", wrong]).status.code(), Some(64), "{wrong:?}");
    }
}

fn findings(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = run(&[&["check", "-o", "json"], arguments].concat());
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let groups = document["groups"].as_array().unwrap();
    let access = groups.iter().find(|group| group["name"] == "access").expect("access");
    let mut found = serde_json::Map::new();
    for check in access["checks"].as_array().unwrap() {
        found.insert(check["name"].as_str().unwrap().into(), check["status"].clone());
    }
    (output.status.code(), Value::Object(found))
}

#[test]
fn check_looks_at_everything_that_access_depends_on() {
    let (store, access, ca) = (TestStore::sqlite(), Access::new(), Ca::new("ours"));
    access.token("orders");
    let tls = ca.serve_flags(&access);
    let policy = access.write(
        "policy",
        "[[rule]]\nidentity = \"orders\"\nprefixes = [\"\"]\nrights = [\"read\"]\n",
    );
    let tokens = access.path("tokens");
    let store = ["--store", store.url.as_str()];
    let guarded = [
        &store[..],
        &flags(&tls),
        &["--listen=0.0.0.0:1", "--tokens-file", &tokens, "--policy", &policy],
    ]
    .concat();
    let good = serde_json::json!(
        {"exposure": "ok", "certificate": "ok", "tokens": "ok", "policy": "ok"}
    );
    assert_eq!(findings(&guarded), (Some(0), good));

    // Whoever gets a certificate for the name is the one with the token, unless the rule says how.
    let authority = access.path("ca.pem");
    let both = [&guarded[..], &["--tls-client-ca", &authority]].concat();
    assert_eq!(findings(&both).1["policy"], "warning");
    let rule = "[[rule]]\nidentity = \"orders\"\nby = [\"token\"]\nprefixes = [\"\"]\n";
    access.write("policy", format!("{rule}rights = [\"read\"]\n"));
    assert_eq!(findings(&both).1["policy"], "ok");

    let line = fs::read(&tokens).unwrap();
    access.write("tokens", "# nothing\n");
    assert_eq!(findings(&guarded).1["tokens"], "failed");
    access.write("tokens", "nobody\n");
    assert_eq!(findings(&guarded).1["tokens"], "warning");
    access.write("tokens", line);
    access.write("policy", "rule = []\n");
    assert_eq!(findings(&guarded).1["policy"], "warning");
    access.write("policy", "");
    assert_eq!(findings(&guarded).1["policy"], "failed");

    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o666)).unwrap();
    let (code, found) = findings(&guarded);
    assert_eq!((code, &found["tokens"]), (Some(1), &"failed".into()));
    access.write("policy", "[[rule]]\n");
    assert_eq!(findings(&guarded).1["policy"], "failed");
    access.write("server.key", "nonsense");
    assert_eq!(findings(&guarded).1["certificate"], "failed");
    let open = [&store[..], &["--listen=0.0.0.0:1"]].concat();
    let (code, found) = findings(&open);
    assert_eq!((code, &found["exposure"]), (Some(1), &"failed".into()));
    let (code, found) = findings(&[&open[..], &["--insecure"]].concat());
    assert_eq!((code, &found["exposure"]), (Some(0), &"warning".into()));
}
