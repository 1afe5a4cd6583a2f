//! The commands around the server: starting it, asking after it, and explaining itself.

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::harness::{
    bound_command, eventually,
    fencepost::{BINARY, Fencepost, run},
    free_port,
    http::Client,
    spawn_bound_to_us,
    store::{TestStore, on_each_store},
};

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn help_reads_well() {
    let mut pages = text(&run(&["--help"]));
    let shown = |command: &&clap::Command| !command.is_hide_set();
    for command in fencepost::cli::command().get_subcommands().filter(shown) {
        let name = command.get_name();
        pages +=
            &["\n=== fencepost ", name, " --help\n\n", &text(&run(&[name, "--help"]))].concat();
    }
    insta::assert_snapshot!("help", pages);
}

#[test]
fn the_version_is_told() {
    let version = format!("fencepost {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&run(&["--version"])), version);
    assert_eq!(text(&run(&["-V"])), version);
}

#[test]
fn a_word_that_is_no_command_is_a_wrong_use() {
    for arguments in [&["frobnicate"][..], &["get"], &["--no-such-flag"], &["get", "a", "b"]] {
        assert_eq!(run(arguments).status.code(), Some(64), "{arguments:?}");
    }
}

#[test]
fn there_are_completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&run(&["completions", shell]));
        assert!(script.contains("store-connections") && script.contains("claim"), "{script}");
        assert!(script.contains("unlock") && script.contains("grace"), "{script}");
        assert!(!script.contains("run-child") && !script.contains("demo-worker"), "{script}");
    }
    // The shell itself has the last word on syntax.
    let script = text(&run(&["completions", "bash"]));
    let check = std::process::Command::new("bash")
        .args(["-c", &format!("{script}\ncomplete -p fencepost")])
        .output()
        .expect("bash runs");
    assert!(text(&check).contains("fencepost"));
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let output = std::process::Command::new("bash")
        .args(["-c", "set -o pipefail; \"$0\" completions bash | head -1 >/dev/null", BINARY])
        .output()
        .expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}

on_each_store! {
    async fn a_healthcheck_asks_the_admin_address(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let healthy = run(&["healthcheck", "--admin-url", &format!("http://{}", server.admin)]);
        assert!(text(&healthy).ends_with("ok\n"));
    }
}

#[test]
fn a_server_that_waits_for_its_store_is_not_healthy() {
    let server = Fencepost::start("postgres://127.0.0.1:1/nowhere", &[]);
    let waiting = run(&["healthcheck", "--admin-url", &format!("http://{}", server.admin)]);
    assert_eq!(waiting.status.code(), Some(69));
    let message = String::from_utf8_lossy(&waiting.stderr);
    assert!(message.contains("not ready"), "{message}");
}

on_each_store! {
    async fn the_first_line_of_the_log_says_what_is_served_where(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let log = server.log();
        let first: Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
        assert_eq!(first["message"], "fencepost is starting");
        assert_eq!(first["level"], "INFO");
        assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(first["store"], store.to_serve().await.as_str());
        assert_eq!(first["listen"], server.address.as_str());
        assert_eq!(first["admin"], server.admin.as_str());
    }
}

/// No command, no flags, an empty directory: everything by default, and it serves.
#[tokio::test]
async fn without_a_command_it_serves() {
    let directory = tempfile::tempdir().expect("a place");
    let (public, admin) = (free_port(), free_port());
    let mut command = bound_command(BINARY, None);
    command
        .current_dir(&directory)
        .env("FENCEPOST_LISTEN", format!("127.0.0.1:{public}"))
        .env("FENCEPOST_ADMIN_LISTEN", format!("127.0.0.1:{admin}"))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut server = spawn_bound_to_us(command).expect("it starts");
    let client = Client::new(&format!("127.0.0.1:{public}"));
    eventually("it serves", || async {
        let lock = client.acquire("k", &serde_json::json!({}));
        lock.send().await.is_ok_and(|answer| answer.status() == 201)
    })
    .await;
    assert!(directory.path().join("fencepost.db").exists());
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

#[tokio::test]
async fn on_a_terminal_the_log_is_text() {
    // A database without a schema ends it as soon as it has said hello.
    let url = TestStore::postgres().await.url;
    let command =
        format!("{BINARY} serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --store '{url}'");
    let output = std::process::Command::new("script")
        .args(["--quiet", "--command", &command, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let log = text(&output);
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].contains("fencepost is starting") && !lines[0].starts_with('{'), "{log}");
    let last = lines.last().expect("a line");
    assert!(last.contains("ERROR") && last.contains("fencepost migrate"), "{log}");
}

/// The reason why a server ends is the last line of its log, in the log's own format.
fn last_words(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr);
    let last: Value = serde_json::from_str(log.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["level"], "ERROR", "{log}");
    last
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let store = TestStore::sqlite();
    let words = last_words(&run(&["serve", "--store", &store.url, "--listen", &address]));
    let message = words["message"].as_str().expect("a message");
    assert!(message.contains("--listen") && message.contains(&address), "{message}");
}

#[tokio::test]
async fn a_database_that_will_not_do_is_refused_with_the_remedy() {
    let serve = |store: &str| {
        run(&[
            "serve",
            "--store",
            store,
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ])
    };
    let url = TestStore::postgres().await.url;
    let words = last_words(&serve(&url));
    assert!(words["message"].as_str().expect("a message").contains("--migrate"), "{words}");
    let words = last_words(&serve(&url.replace("postgres@", "nobody@")));
    assert!(words["message"].as_str().expect("a message").contains("\"nobody\""), "{words}");
}

on_each_store! {
    async fn migrate_brings_a_database_up_to_date_and_check_only_looks(store: TestStore) {
        let check = ["migrate", "--check", "--store", &store.url];
        let before = run(&check);
        assert_eq!(before.status.code(), Some(1));
        let message = String::from_utf8_lossy(&before.stderr).into_owned();
        assert!(message.contains("fencepost migrate"), "{message}");
        for _ in 0..2 {
            assert!(text(&run(&["migrate", "--store", &store.url])).contains("up to date"));
        }
        assert!(text(&run(&check)).contains("up to date"));
    }
}
