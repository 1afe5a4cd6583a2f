//! Tokens and policy change while the server runs: for good ones at once, and never for broken ones.

use std::fs;

use crate::harness::{
    access::Access,
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
};

const OPEN: &str = "[[rule]]\nidentity = \"*\"\nprefixes = [\"\"]\nrights = [\"read\"]\n";
const CLOSED: &str = "[[rule]]\nidentity = \"other\"\nprefixes = [\"\"]\nrights = [\"read\"]\n";

async fn status(client: &Client) -> u16 {
    answer(client.read("k")).await.status
}

#[tokio::test]
async fn a_token_comes_and_goes_with_its_line() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let old = access.token("orders");
    let server = Fencepost::with(&store, &["--tokens-file", &access.path("tokens")]).await;
    let old = server.client().bearing(&old);
    assert_eq!(status(&old).await, 404);
    let new = server.client().bearing(&access.token("orders"));
    eventually("the new one is good", || async { status(&new).await == 404 }).await;
    assert_eq!(status(&old).await, 404, "both are, for as long as both are there");

    let text = fs::read_to_string(access.path("tokens")).unwrap();
    access.write("tokens", text.lines().nth(1).unwrap());
    eventually("the old one is not", || async { status(&old).await == 401 }).await;
    assert_eq!(status(&new).await, 404);
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_told_loudly() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let token = access.token("orders");
    access.write("policy", OPEN);
    let (tokens, policy) = (access.path("tokens"), access.path("policy"));
    let server = Fencepost::with(&store, &["--tokens-file", &tokens, "--policy", &policy]).await;
    let client = server.client().bearing(&token);
    assert_eq!(status(&client).await, 404);
    let refused = async |file: &str| {
        let metrics = answer(server.admin_client().get("/metrics")).await.text();
        metrics.contains(&format!("fencepost_file_refused{{file=\"{file}\"}} 1"))
    };
    for (name, file, broken) in [
        ("policy", "policy", "[[rule]]\nidentity = \"*\"\nrights = [\"read\"]\n"),
        ("policy", "policy", "nonsense"),
        ("policy", "policy", ""),
        ("policy", "policy", "# half of it is not written yet\n"),
        ("tokens", "tokens", "orders:s3cret"),
        ("tokens", "tokens", ""),
        ("tokens", "tokens", " \n# half of it is not written yet\n"),
    ] {
        let good = fs::read(access.path(name)).unwrap();
        access.write(name, broken);
        eventually("it is refused", || async { refused(file).await }).await;
        assert_eq!(status(&client).await, 404, "what was good stays in force");
        access.write(name, good);
        eventually("it is mended", || async { !refused(file).await }).await;
    }
    fs::remove_file(access.path("policy")).unwrap();
    eventually("that it is gone is noticed", || async { refused("policy").await }).await;
    assert_eq!(status(&client).await, 404);
    let log = server.log();
    assert!(
        log.contains("REFUSED") && log.contains("\"ERROR\"") && !log.contains("s3cret"),
        "{log}"
    );

    access.write("policy", CLOSED);
    eventually("the new one is in force", || async { status(&client).await == 403 }).await;
}

/// An empty file is no way to say it.
#[tokio::test]
async fn that_nobody_may_come_in_or_do_anything_can_be_said() {
    let (store, access) = (TestStore::sqlite(), Access::new());
    let token = access.token("orders");
    access.write("policy", OPEN);
    let (tokens, policy) = (access.path("tokens"), access.path("policy"));
    let server = Fencepost::with(&store, &["--tokens-file", &tokens, "--policy", &policy]).await;
    let client = server.client().bearing(&token);
    assert_eq!(status(&client).await, 404);
    access.write("policy", "rule = []\n");
    eventually("everything is forbidden", || async { status(&client).await == 403 }).await;
    access.write("tokens", "nobody\n");
    eventually("nobody is known", || async { status(&client).await == 401 }).await;
}
