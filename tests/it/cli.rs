//! The client commands against a real server: what they print, and how they end.

use std::{
    io::{Read, Write},
    process::{Output, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{
    fencepost::{BINARY, Fencepost, run, run_with},
    store::on_each_store,
};

/// A shell whose environment names the server.
struct Shell<'a>(&'a Fencepost);

impl Shell<'_> {
    fn run(&self, arguments: &[&str]) -> Output {
        let url = format!("http://{}", self.0.address);
        run_with(arguments, |command| {
            command.env("FENCEPOST_URL", url);
        })
    }

    /// What a command that must succeed prints to a pipe.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert_eq!(code(&output), 0, "{}", errors(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The problem that a command ends with, and its exit code.
    #[track_caller]
    fn problem(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        assert!(output.stdout.is_empty());
        let problem: Value = serde_json::from_slice(&output.stderr).expect("a problem document");
        let kind = problem["type"].as_str().expect("a type").replace("urn:fencepost:", "");
        (code(&output), kind)
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

on_each_store! {
    async fn every_client_command_does_its_work(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let shell = Shell(&server);

        let written = shell.json(&["put", "--token", "7", "orders/42", "paid"]);
        assert_eq!(written, json!({"key": "orders/42", "version": 1, "token": 7}));
        assert_eq!(printed(&shell.run(&["get", "orders/42"])), "paid");
        assert_eq!(
            shell.json(&["get", "orders/42", "-o", "json"]),
            json!({"key": "orders/42", "version": 1, "token": 7, "value": "paid",
                   "content_type": "text/plain; charset=utf-8"})
        );
        assert_eq!(
            shell.json(&["list", "orders/"]),
            json!({"next": null, "resources": [{"key": "orders/42", "version": 1, "token": 7,
                   "size": 4, "content_type": "text/plain; charset=utf-8"}]})
        );
        assert_eq!(
            shell.json(&["claim", "--token", "8", "orders/42"]),
            json!({"key": "orders/42", "token": 8, "seq": 0})
        );
        assert_eq!(
            shell.json(&["mark", "orders/42"]),
            json!({"key": "orders/42", "token": 8, "seq": 0})
        );
        assert_eq!(
            shell.json(&["delete", "--token", "9", "orders/42"]),
            json!({"key": "orders/42", "token": 9})
        );
        assert_eq!(shell.problem(&["get", "orders/42"]), (1, "not-found".into()));
    }
}

on_each_store! {
    async fn the_exit_code_tells_why(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let shell = Shell(&server);
        shell.json(&["put", "--token", "7", "--seq", "2", "k", "v"]);

        let put = |more: &[&str]| shell.problem(&[&["put", "k", "w"], more].concat());
        assert_eq!(put(&["--token", "6"]), (73, "stale-token".into()));
        assert_eq!(put(&["--token", "7", "--seq", "1"]), (73, "out-of-order".into()));
        assert_eq!(put(&["--token", "7"]), (73, "out-of-order".into()));
        assert_eq!(put(&["--token", "7", "--seq", "2"]), (1, "seq-reused".into()));
        assert_eq!(put(&["--token", "8", "--if-absent"]), (1, "version-mismatch".into()));
        assert_eq!(put(&["--token", "8", "--if-version", "2"]), (1, "version-mismatch".into()));
        assert_eq!(put(&["--token", "8", "--rule", "above"]), (73, "stale-token".into()));
        assert_eq!(put(&["--token", "0"]), (64, "invalid-token".into()));
        assert_eq!(put(&["--token", "9", "--seq", "x"]), (64, "invalid-seq".into()));
        assert_eq!(shell.problem(&["get", "--token", "6", "k"]), (73, "stale-token".into()));
        assert_eq!(shell.problem(&["claim", "--token", "6", "k"]), (73, "stale-token".into()));
        assert_eq!(shell.problem(&["delete", "--token", "6", "k"]), (73, "stale-token".into()));
        assert_eq!(shell.problem(&["mark", ""]), (64, "invalid-key".into()));
        assert_eq!(shell.json(&["put", "--token", "8", "--if-version", "1", "k", "w"])["version"], 2);
    }
}

on_each_store! {
    async fn a_fenced_read_and_a_scope_reach_the_fence(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let shell = Shell(&server);
        shell.json(&["put", "--token", "3", "--scope", "locks/é 1", "a", "v"]);
        assert_eq!(shell.json(&["mark", "locks/é 1"])["token"], 3);
        assert_eq!(printed(&shell.run(&["get", "--token", "5", "--scope", "locks/é 1", "a"])), "v");
        assert_eq!(shell.json(&["mark", "a"])["token"], 5);
        assert_eq!(shell.json(&["mark", "locks/é 1"])["token"], 5);
        let late = ["put", "--token", "4", "--scope", "locks/é 1", "b", "v"];
        assert_eq!(shell.problem(&late), (73, "stale-token".into()));
    }
}

on_each_store! {
    async fn a_key_may_hold_any_character(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let shell = Shell(&server);
        let keys =
            ["../a", "a/..", "a/../b", "...", "a b", "100%", "%2F", "a?b=c", "a#b", "🦀", "-k", "a//b", "\t\n", "+"];
        for key in keys {
            let written = shell.json(&["put", "--token", "1", "--", key, key]);
            assert_eq!((&written["key"], &written["version"]), (&json!(key), &json!(1)));
            assert_eq!(printed(&shell.run(&["get", "--", key])), key);
        }
        let listed = shell.json(&["list"]);
        let listed: Vec<&str> = listed["resources"]
            .as_array()
            .expect("resources")
            .iter()
            .map(|resource| resource["key"].as_str().expect("a key"))
            .collect();
        let mut expected = keys.to_vec();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }
}

#[tokio::test]
async fn a_value_may_come_from_a_file_or_a_pipe_and_be_any_bytes() {
    let store = crate::harness::store::TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let shell = Shell(&server);
    let bytes: Vec<u8> = (0..=255).collect();

    let mut put = std::process::Command::new(BINARY)
        .args(["put", "--token", "1", "piped", "--file", "-"])
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("fencepost runs");
    put.stdin.take().expect("a pipe").write_all(&bytes).expect("it reads");
    assert!(put.wait().expect("it ends").success());
    assert_eq!(shell.run(&["get", "piped"]).stdout, bytes);
    let document = shell.json(&["get", "piped", "-o", "json"]);
    assert_eq!(document["content_type"], "application/octet-stream");
    assert!(document["value_base64"].as_str().expect("base64").starts_with("AAECAwQF"));

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, &bytes).expect("it is written");
    let path = file.path().display().to_string();
    shell.json(&["put", "--token", "1", "k", "--file", &path, "--content-type", "image/x-made-up"]);
    assert_eq!(shell.run(&["get", "k"]).stdout, bytes);
    assert_eq!(shell.json(&["get", "k", "-o", "json"])["content_type"], "image/x-made-up");

    let missing = shell.run(&["put", "--token", "1", "k", "--file", "/nowhere"]);
    assert_eq!(code(&missing), 1);
    assert!(errors(&missing).contains("/nowhere"), "{}", errors(&missing));
}

#[tokio::test]
async fn tables_are_for_people_and_json_is_for_programs() {
    let store = crate::harness::store::TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let shell = Shell(&server);
    shell.json(&["put", "--token", "7", "orders/42", "paid"]);
    shell.json(&["put", "--token", "7", "two\nlines\u{1b}[31m", ""]);

    let table = printed(&shell.run(&["list", "-o", "table"]));
    insta::assert_snapshot!("table", table);

    let url = format!("http://{}", server.address);
    let on_a_terminal = on_a_terminal(&format!("{BINARY} mark orders/42 --url {url}"));
    assert!(on_a_terminal.contains("KEY") && !on_a_terminal.contains('{'), "{on_a_terminal}");
    let value = on_a_terminal_of(&url, "get orders/42");
    assert_eq!(value.trim_end_matches("\r\n"), "paid");
    let refused = on_a_terminal_of(&url, "put --token 6 orders/42 x");
    assert!(refused.contains("error:") && refused.contains("token 6 is behind the mark 7"));
    assert!(!refused.contains("urn:"), "{refused}");
}

fn on_a_terminal_of(url: &str, command: &str) -> String {
    on_a_terminal(&format!("{BINARY} {command} --url {url}"))
}

/// What a command prints to a terminal: `script` provides one.
fn on_a_terminal(command: &str) -> String {
    let output = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", command, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test]
async fn a_list_goes_on_over_as_many_pages_as_there_are() {
    let store = crate::harness::store::TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let writes: Vec<Value> =
        (0..1000).map(|n| json!({"key": format!("k{n:04}"), "token": 1, "value": n})).collect();
    for prefix in ["a/", "b/"] {
        let mut writes = writes.clone();
        for write in &mut writes {
            write["key"] = json!(format!("{prefix}{}", write["key"].as_str().expect("a key")));
        }
        let answer = server.client().batch(&json!({ "writes": writes })).send().await;
        assert_eq!(answer.expect("an answer").status(), 200);
    }
    let shell = Shell(&server);
    let count = |arguments: &[&str]| {
        let listed = shell.json(arguments);
        (listed["resources"].as_array().expect("resources").len(), listed["next"].clone())
    };
    assert_eq!(count(&["list"]), (2000, Value::Null));
    assert_eq!(count(&["list", "b/"]), (1000, Value::Null));
    assert_eq!(count(&["list", "--limit", "1500"]), (1500, json!("b/k0499")));
    assert_eq!(count(&["list", "--after", "b/k0499"]), (500, Value::Null));
    assert_eq!(count(&["list", "--limit", "2000"]), (2000, Value::Null));
}

#[tokio::test]
async fn the_token_may_come_from_the_environment() {
    let store = crate::harness::store::TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let output = run_with(&["put", "k", "v"], |command| {
        command
            .env("FENCEPOST_URL", format!("http://{}/", server.address))
            .env("FENCEPOST_TOKEN", "41");
    });
    assert_eq!(code(&output), 0, "{}", errors(&output));
    assert_eq!(Shell(&server).json(&["mark", "k"])["token"], 41);
}

#[test]
fn a_server_that_is_away_is_told_from_a_refusal() {
    for arguments in [
        &["get", "k", "--url", "http://127.0.0.1:1"][..],
        &["put", "--token", "1", "k", "v", "--url", "http://127.0.0.1:1"],
        &["list", "--url", "http://127.0.0.1:1"],
        &["healthcheck", "--admin-url", "http://127.0.0.1:1"],
    ] {
        let output = run(arguments);
        assert_eq!(code(&output), 69);
        let message = errors(&output);
        assert!(message.contains("http://127.0.0.1:1") && message.contains("fencepost serve"));
    }
}

/// HTTP libraries resolve them even when they are escaped, and would ask for something else.
#[test]
fn the_two_keys_that_cannot_be_sent_are_refused_with_a_way_out() {
    for key in [".", ".."] {
        let output = run(&["get", key]);
        assert_eq!(code(&output), 64);
        assert!(errors(&output).contains("curl --path-as-is"), "{}", errors(&output));
    }
}

#[test]
fn another_kind_of_server_is_not_taken_for_a_fencepost() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<h1>Log in</h1>");
        }
    });
    for command in
        [&["get", "k"][..], &["list"], &["put", "--token", "1", "k", "v"], &["mark", "k"]]
    {
        let output = run(&[command, &["--url", &url]].concat());
        assert_eq!(code(&output), 1);
        assert!(errors(&output).contains("is --url right?"), "{}", errors(&output));
    }
}

#[test]
fn a_write_without_a_token_is_a_wrong_use() {
    for command in [&["put", "k", "v"][..], &["delete", "k"], &["claim", "k"]] {
        let output = run(command);
        assert_eq!(code(&output), 64);
        assert!(errors(&output).contains("--token"), "{}", errors(&output));
    }
}
