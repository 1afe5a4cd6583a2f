//! What runs under `fencepost run` is fenced by the lock it runs under, without being told so.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::ffi::OsStrExt,
    process::{Command, Output, Stdio},
};

use crate::harness::{
    fencepost::{BINARY, Fencepost},
    http::answer,
    store::TestStore,
};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments);
    command
}

async fn with_locks() -> (TestStore, Fencepost) {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    (store, server)
}

/// A script as `run` would start it for a holder with this token.
fn under(server: &Fencepost, token: &str, arguments: &[&str]) -> Output {
    command(arguments)
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .env("FENCEPOST_TOKEN", token)
        .env("FENCEPOST_LOCK", "orders")
        .env("FENCEPOST_LOCK_TOKEN", token)
        .stdin(Stdio::null())
        .output()
        .expect("fencepost runs")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[tokio::test]
async fn stale_holder_is_refused_on_a_key_that_is_new() {
    let (_store, server) = with_locks().await;
    let url = format!("http://{}", server.address);
    let take = || {
        let taken = command(&["lock", "orders", "--ttl", "1s", "--wait", "10m", "-o", "token"])
            .env("FENCEPOST_URL", &url)
            .output()
            .unwrap();
        assert!(taken.status.success());
        String::from_utf8(taken.stdout).unwrap().trim().to_owned()
    };
    let (old, new) = (take(), take());
    for arguments in
        [vec!["put", "orders/42", "late"], vec!["delete", "orders/42"], vec!["claim", "orders/42"]]
    {
        assert_eq!(code(&under(&server, &old, &arguments)), Some(73), "{arguments:?}");
    }
    assert_eq!(code(&under(&server, &old, &["get", "orders/42"])), Some(73));
    assert_eq!(server.client().mark("orders/42").await, (0, 0));

    // Other locks' tokens raise no mark of this one.
    let mark = server.client().mark("orders").await;
    let other = (new.parse::<i64>().unwrap() + 1).to_string();
    let taken = command(&["lock", "other", "-o", "token"]).env("FENCEPOST_URL", &url).output();
    assert_eq!(String::from_utf8(taken.unwrap().stdout).unwrap().trim(), other);
    assert_eq!(code(&under(&server, &old, &["put", "--token", &other, "others/1", "v"])), Some(0));
    assert_eq!(server.client().mark("orders").await, mark);

    // The scope can be left out, and named.
    assert_eq!(code(&under(&server, &old, &["put", "--no-scope", "orders/7", "v"])), Some(0));
    assert_eq!(code(&under(&server, &old, &["put", "--scope", "free", "orders/8", "v"])), Some(0));
    assert_eq!(code(&under(&server, &new, &["put", "orders/42", "v"])), Some(0));
    assert_eq!(code(&under(&server, &new, &["get", "orders/42"])), Some(0));
    let both = under(&server, &new, &["put", "--scope", "a", "--no-scope", "k", "v"]);
    assert_eq!(code(&both), Some(64));
}

#[tokio::test]
async fn run_gives_its_lock_to_client_commands() {
    let (_store, server) = with_locks().await;
    let script = format!("{BINARY} put orders/42 paid");
    let output = command(&["run", "--lock", "orders", "--", "sh", "-c", &script])
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // By the scope, no other key of the next holder's can be written by this one.
    let token: i64 = server.client().mark("orders/42").await.0;
    let next = answer(server.client().claim("orders", token + 1)).await;
    assert_eq!(next.problem(), "unissued-token");
}

/// A script may take other locks, and hand their tokens on as it was handed its own.
#[tokio::test]
async fn token_of_another_lock_raises_no_mark_of_the_jobs_lock() {
    let (_store, server) = with_locks().await;
    let script = format!(
        "{BINARY} put orders/1 v &&
         T=$({BINARY} lock other -o token) &&
         FENCEPOST_TOKEN=$T {BINARY} put others/1 v &&
         {BINARY} put orders/2 v"
    );
    let output = command(&["run", "--lock", "orders", "--", "sh", "-c", &script])
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let client = server.client();
    let own = client.mark("orders/1").await.0;
    assert_eq!((client.mark("orders").await.0, client.mark("orders/2").await.0), (own, own));
    assert!(client.mark("others/1").await.0 > own);
}

/// A write that would lose its scope is not sent.
#[tokio::test]
async fn lock_that_cannot_be_read_from_the_environment_is_an_error() {
    let (_store, server) = with_locks().await;
    let not_utf8 = OsStr::from_bytes(b"ord\xffers");
    let put = |lock: &OsStr, its_token: Option<&OsStr>, more: &[&str]| {
        let mut put = command(&[&["put", "--token", "5", "k", "v"], more].concat());
        put.env("FENCEPOST_URL", format!("http://{}", server.address)).env("FENCEPOST_LOCK", lock);
        if let Some(its_token) = its_token {
            put.env("FENCEPOST_LOCK_TOKEN", its_token);
        }
        put.output().unwrap()
    };
    for (lock, its_token) in [
        (not_utf8, Some(OsStr::new("5"))),
        (OsStr::new(""), Some(OsStr::new("5"))),
        (OsStr::new("orders"), None),
        (OsStr::new("orders"), Some(not_utf8)),
    ] {
        let refused = put(lock, its_token, &[]);
        assert_eq!(code(&refused), Some(64), "{lock:?} {its_token:?}: {refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("--no-scope"), "{refused:?}");
        assert_eq!(server.client().mark("k").await, (0, 0));
        // It is sent to the server, which judges the token.
        assert_eq!(code(&put(lock, its_token, &["--no-scope"])), Some(1), "{lock:?}");
    }
}

fn put_with(server: &Fencepost, arguments: &[&str], input: Option<&[u8]>) -> Output {
    let mut child = command(&[&["put", "--token", "5", "k"], arguments].concat())
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(input) = input {
        child.stdin.take().unwrap().write_all(input).unwrap();
    }
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn put_reads_standard_input_but_never_an_empty_one_by_itself() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let value = async || answer(server.client().read("k")).await.text();

    assert_eq!(code(&put_with(&server, &[], Some(b"from a pipe\n"))), Some(0));
    assert_eq!(value().await, "from a pipe\n");
    // As under cron, and behind a program that has failed.
    for empty in [None, Some(&b""[..])] {
        let refused = put_with(&server, &[], empty);
        assert_eq!(code(&refused), Some(64), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("standard input is empty"));
    }
    let closed = Command::new("sh")
        .args(["-c", "exec \"$0\" put --token 5 k <&-", BINARY])
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .output()
        .unwrap();
    assert_eq!(code(&closed), Some(64), "{closed:?}");
    assert_eq!(value().await, "from a pipe\n");
    // A value that is named wins, whatever is piped in.
    assert_eq!(code(&put_with(&server, &["named"], Some(b"piped"))), Some(0));
    assert_eq!(value().await, "named");
    for asked in [&["--file", "-"][..], &[""][..]] {
        assert_eq!(code(&put_with(&server, &["full"], None)), Some(0));
        assert_eq!(code(&put_with(&server, asked, None)), Some(0), "{asked:?}");
        assert_eq!(value().await, "", "{asked:?}");
    }
}
