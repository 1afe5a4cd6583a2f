//! Being let in by an etcd: certificates, passwords, and what is said where it does not work. The
//! whole server, as a user would start it.

use serde_json::json;

use crate::harness::{
    etcd::{CertificateAuthority, Etcd},
    eventually,
    fencepost::{Fencepost, run_discreetly},
    http::answer,
    store::TestStore,
};

/// The status of a write under a token that only the authority can vouch for.
async fn status_of_a_write(server: &Fencepost, key: &str) -> u16 {
    answer(server.client().put(key, 1, "v")).await.status
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    let (authority, store) = (CertificateAuthority::new(), TestStore::sqlite());
    let etcd = Etcd::with_tls(&authority).await;
    let [ca, cert, key] =
        authority.files(etcd.directory(), "app").map(|path| path.display().to_string());
    let [stranger, _, _] =
        CertificateAuthority::new().files(etcd.directory(), "x").map(|p| p.display().to_string());
    let url = format!("etcds://{}", etcd.address());
    let with_all =
        ["--authority", &url, "--etcd-ca", &ca, "--etcd-cert", &cert, "--etcd-key", &key];
    let server = Fencepost::with(&store, &with_all).await;
    assert_eq!(status_of_a_write(&server, "k").await, 201);
    // A certificate alone says that TLS is meant.
    let plain = etcd.url();
    let implied = [&["--authority", &plain], &with_all[2..]].concat();
    assert_eq!(status_of_a_write(&Fencepost::with(&store, &implied).await, "k2").await, 201);
    // Without one, or with a server whom nobody vouches for, there is no answer.
    for flags in [
        &["--authority", &url, "--etcd-ca", &ca][..],
        &["--authority", &url, "--etcd-ca", &stranger, "--etcd-cert", &cert, "--etcd-key", &key],
        &["--authority", &url],
        &["--authority", &plain],
    ] {
        let server = Fencepost::with(&TestStore::sqlite(), flags).await;
        assert_eq!(status_of_a_write(&server, "k3").await, 503, "{flags:?}");
    }
}

#[tokio::test]
async fn a_user_is_let_in_by_its_password() {
    let (mut etcd, store) = (Etcd::start(&[]).await, TestStore::sqlite());
    etcd.enable_auth("app/", "s3cret");
    let file = etcd.directory().join("password");
    std::fs::write(&file, "s3cret\n").expect("the file is written");
    let file = file.display().to_string();
    let in_url = format!("etcd://app:s3cret@{}", etcd.address());
    let plain = etcd.url();
    for (number, flags) in [
        &["--authority", &in_url, "--log", "trace"][..],
        &["--authority", &plain, "--etcd-user", "app", "--etcd-password", "s3cret"],
        &["--authority", &plain, "--etcd-user", "app", "--etcd-password-file", &file],
    ]
    .into_iter()
    .enumerate()
    {
        let server = Fencepost::with(&store, &[flags, &["--etcd-prefix", "app"]].concat()).await;
        assert_eq!(status_of_a_write(&server, &format!("k{number}")).await, 201);
        assert!(!server.log().contains("s3cret"), "{}", server.log());
    }
    let wrong = format!("etcd://app:wr0ng@{}", etcd.address());
    for flags in [
        &["--authority", &wrong, "--etcd-prefix", "app"][..],
        &["--authority", &plain, "--etcd-prefix", "app"],
        // It may not see what is outside its prefix.
        &["--authority", &in_url],
    ] {
        let server = Fencepost::with(&TestStore::sqlite(), flags).await;
        assert_eq!(status_of_a_write(&server, "k").await, 503, "{flags:?}");
        let log = server.log();
        assert!(!log.contains("s3cret") && !log.contains("wr0ng"), "{log}");
    }
}

/// As that of Postgres is: nobody has to restart anything.
#[tokio::test]
async fn a_password_that_is_changed_is_read_anew() {
    let (mut etcd, store) = (Etcd::start(&[]).await, TestStore::sqlite());
    etcd.enable_auth("", "s3cret");
    let file = etcd.directory().join("password");
    std::fs::write(&file, "s3cret\n").expect("the file is written");
    let (url, path) = (etcd.url(), file.display().to_string());
    let flags = ["--authority", &url, "--etcd-user", "app", "--etcd-password-file", &path];
    let server = Fencepost::with(&store, &flags).await;
    let client = server.client();
    let acquired =
        async |name: &str| answer(client.acquire(name, &serde_json::json!({}))).await.status == 201;
    // To check a password costs etcd much, and a busy machine time.
    eventually("the first one is good", || async { acquired("before").await }).await;
    etcd.change_password("an0ther");
    let mut number = 0;
    eventually("the old one is good no more", || {
        number += 1;
        let name = format!("between-{number}");
        let acquired = &acquired;
        async move { !acquired(&name).await }
    })
    .await;
    std::fs::write(&file, "an0ther\n").expect("the file is written");
    eventually("the new one is found", || async { acquired("after").await }).await;
    assert!(!server.log().contains("an0ther"), "{}", server.log());
}

/// With tokens of this kind, every change of a user or a role ends all logins. Nobody is to notice.
#[tokio::test]
async fn a_change_of_users_costs_nobody_a_lock_or_a_place() {
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "known to nobody").expect("it is written");
    let signed = format!("jwt,priv-key={},sign-method=HS256,ttl=10m", secret.path().display());
    let (mut etcd, store) = (Etcd::start(&["--auth-token", &signed]).await, TestStore::sqlite());
    etcd.enable_auth("", "s3cret");
    let url = format!("etcd://app:s3cret@{}", etcd.address());
    let server = Fencepost::with(&store, &["--authority", &url]).await;
    let client = server.client();
    let first = answer(client.acquire("k", &json!({}))).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let waiting = tokio::spawn(answer(client.acquire("k", &json!({"wait_ms": 60_000}))));
    eventually("it waits", || async { etcd.entries("k").len() == 2 }).await;
    etcd.ctl(&["user", "add", "another:one"]);
    assert_eq!(answer(client.acquire("other", &json!({}))).await.status, 201);
    etcd.ctl(&["user", "add", "and-another:one"]);
    let token = first.json()["token"].as_i64().expect("a token");
    let released = answer(client.release("k", token)).await;
    assert_eq!(released.status, 204, "{}", released.text());
    let second = waiting.await.expect("no panic");
    assert_eq!(second.status, 201, "{}", second.text());
}

/// `fencepost check` needs no more rights than `serve` does.
#[tokio::test]
async fn a_user_that_sees_only_its_prefix_can_check() {
    let (mut etcd, store) = (Etcd::start(&[]).await, TestStore::sqlite());
    etcd.enable_auth("app/", "s3cret");
    store.open().await;
    let url = format!("etcd://app:s3cret@{}", etcd.address());
    let check = |prefix| {
        let output = run_discreetly(&[
            "check",
            "--store",
            &store.url,
            "--authority",
            &url,
            "--etcd-prefix",
            prefix,
        ]);
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, said) = check("app");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = check("somebody-elses");
    assert_eq!(code, Some(69), "{said}");
}

#[tokio::test]
async fn a_wrong_password_is_called_by_its_name() {
    let (mut etcd, store) = (Etcd::start(&[]).await, TestStore::sqlite());
    etcd.enable_auth("", "s3cret");
    store.open().await;
    let url = format!("etcd://app:wr0ng@{}", etcd.address());
    let output = run_discreetly(&["check", "--store", &store.url, "--authority", &url]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("authentication failed") && !said.contains("wr0ng"), "{said}");
}

#[tokio::test]
async fn a_user_is_no_hindrance_where_nobody_has_to_be_one() {
    let (etcd, store) = (Etcd::start(&[]).await, TestStore::sqlite());
    let url = format!("etcd://app:s3cret@{}", etcd.address());
    let server = Fencepost::with(&store, &["--authority", &url]).await;
    assert_eq!(status_of_a_write(&server, "k").await, 201);
}

/// Its tokens live for five minutes by default; here for a second.
#[tokio::test]
async fn an_expired_login_is_renewed() {
    let mut etcd = Etcd::start(&["--auth-token-ttl", "1"]).await;
    etcd.enable_auth("", "s3cret");
    let store = TestStore::sqlite();
    let url = format!("etcd://app:s3cret@{}", etcd.address());
    let server = Fencepost::with(&store, &["--authority", &url]).await;
    for number in 0..3 {
        let newest = etcd.revision();
        let put = server.client().put(&format!("k{number}"), newest, "v");
        assert_eq!(answer(put).await.status, 201);
        etcd.ctl(&["put", "noise", "more"]);
        // Longer than a token lives: only time makes one expire, and nothing shows that it has.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn a_server_is_ready_while_etcd_is_away_and_uses_it_once_it_is_there() {
    let mut etcd = Etcd::start(&[]).await;
    etcd.kill();
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", &etcd.url()]).await;
    for _ in 0..4 {
        let refused = answer(server.client().put("k", 1, "v")).await;
        assert_eq!((refused.status, &*refused.problem()), (503, "authority-unavailable"));
    }
    etcd.run().await;
    eventually("writes are accepted", || async { status_of_a_write(&server, "k").await == 201 })
        .await;
    // And a token that nobody can have issued is refused.
    let forged = answer(server.client().put("k", 1 << 60, "v")).await;
    assert_eq!((forged.status, &*forged.problem()), (422, "unissued-token"));
    // What is known goes on working when it is away again.
    etcd.kill();
    assert_eq!(status_of_a_write(&server, "k2").await, 201);
    let unknown = answer(server.client().put("k2", 1 << 60, "v")).await;
    assert_eq!(unknown.status, 503, "{}", unknown.text());
    assert_eq!(unknown.json()["retryable"], json!(true));
    // The log has each change once, the state at the start included, and not each failure.
    let told = |words: &str| server.log().matches(words).count();
    eventually("it is logged", || async { told("etcd does not answer") >= 2 }).await;
    assert_eq!((told("etcd answers"), told("etcd does not answer")), (1, 2), "{}", server.log());
}

#[test]
fn settings_that_cannot_work_are_told_before_anything_starts() {
    let directory = tempfile::tempdir().expect("a place");
    let authority = CertificateAuthority::new();
    let [ca, cert, key] =
        authority.files(directory.path(), "app").map(|path| path.display().to_string());
    let nowhere = directory.path().join("nowhere").display().to_string();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").expect("the file is written");
    let empty = empty.display().to_string();
    let etcd = ["--authority", "etcd://127.0.0.1:1"];
    let user = ["--authority", "etcd://app:s3cret@127.0.0.1:1"];
    for (flags, told) in [
        (&[&etcd[..], &["--etcd-ca", &nowhere]].concat(), "nowhere"),
        (&[&etcd[..], &["--etcd-ca", &empty]].concat(), "no certificate"),
        (&[&etcd[..], &["--etcd-ca", &key]].concat(), "no certificate"),
        (&[&etcd[..], &["--etcd-cert", &cert]].concat(), "--etcd-key"),
        (&[&etcd[..], &["--etcd-cert", &cert, "--etcd-key", &ca]].concat(), "no private key"),
        (&[&etcd[..], &["--etcd-user", "app"]].concat(), "--etcd-password"),
        (&[&etcd[..], &["--etcd-password", "s3cret"]].concat(), "--etcd-user"),
        (&[&etcd[..], &["--etcd-user", "a", "--etcd-password-file", &nowhere]].concat(), "nowhere"),
        (&[&user[..], &["--etcd-user", "app"]].concat(), "--etcd-user"),
        (&[&user[..], &["--etcd-password", "other"]].concat(), "--etcd-password"),
        (&vec!["--authority-file", &nowhere], "nowhere"),
        (&vec!["--authority-file", &empty], "etcd://HOST:PORT"),
    ] {
        for command in ["serve", "config"] {
            let output = run_discreetly(&[&[command], &flags[..]].concat());
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(64), "{flags:?}: {words}");
            assert!(words.contains(told) && !words.contains("s3cret"), "{flags:?}: {words}");
        }
    }
}
