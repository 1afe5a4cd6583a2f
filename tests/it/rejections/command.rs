//! `fencepost rejections`: lines of JSON in a pipe, a table on a terminal, and on and on.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::{Arc, Mutex},
};

use serde_json::Value;

use super::{one_stale_write, rejections};
use crate::harness::{
    bound_command, eventually,
    fencepost::{BINARY, Fencepost, run},
    free_port, spawn_bound_to_us,
    store::TestStore,
};

fn url(server: &Fencepost) -> String {
    format!("http://{}", server.address)
}

#[tokio::test]
async fn in_a_pipe_each_is_a_line_of_json() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    for key in ["a", "b"] {
        one_stale_write(&server.client(), key).await;
    }
    let printed = run(&["rejections", "--url", &url(&server)]);
    assert!(printed.status.success());
    let lines: Vec<Value> = String::from_utf8(printed.stdout)
        .expect("UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let mut oldest_first = rejections(&server.client(), "").await;
    oldest_first.reverse();
    assert_eq!(lines, oldest_first);
    let only = run(&["rejections", "--url", &url(&server), "--key", "a", "--since", "1h"]);
    assert_eq!(String::from_utf8_lossy(&only.stdout).lines().count(), 1);
    let bad = run(&["rejections", "--url", &url(&server), "--reason", "none"]);
    assert_eq!(bad.status.code(), Some(64));
    assert!(
        String::from_utf8_lossy(&bad.stderr).contains("stale-token"),
        "it says which there are"
    );
    let away = run(&["rejections", "--url", &format!("http://127.0.0.1:{}", free_port())]);
    assert_eq!(away.status.code(), Some(69));
}

#[tokio::test]
async fn on_a_terminal_it_is_a_table_that_no_key_can_spoil() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    one_stale_write(&server.client(), "a%0A%1B%5B2Jb").await;
    let command = format!("{BINARY} rejections --url {}", url(&server));
    let printed = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let table = String::from_utf8(printed.stdout).expect("UTF-8").replace("\r\n", "\n");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].contains("KEY") && lines[0].contains("LAG"), "{table}");
    assert!(lines[1].contains("a\\n\\u{1b}[2Jb") && lines[1].contains("stale-token"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");
}

#[tokio::test]
async fn it_follows_over_a_restart_of_the_server_and_shows_each_once() {
    let store = TestStore::sqlite();
    let address = format!("127.0.0.1:{}", free_port());
    let server = Fencepost::with(&store, &["--listen", &address]).await;
    one_stale_write(&server.client(), "before").await;
    let mut command = bound_command(BINARY, None);
    command
        .args(["rejections", "--follow", "--url", &url(&server)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut follower = spawn_bound_to_us(command).expect("it starts");
    let keys = lines_of(follower.stdout.take().expect("its output"));
    let said = lines_of(follower.stderr.take().expect("its messages"));
    let shown = || -> Vec<String> {
        let lines = keys.lock().expect("lines");
        let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.map(|line| line["key"].as_str().expect("a key").to_owned()).collect()
    };
    eventually("it shows what has happened", || async { shown() == ["before"] }).await;
    one_stale_write(&server.client(), "during").await;
    eventually("it shows what happens", || async { shown() == ["before", "during"] }).await;

    drop(server);
    let gone = || said.lock().expect("lines").iter().any(|line| line.contains("has gone"));
    eventually("it says that the server has gone", || async { gone() }).await;
    let server = Fencepost::with(&store, &["--listen", &address]).await;
    one_stale_write(&server.client(), "after").await;
    eventually("it goes on", || async { shown().last().is_some_and(|key| key == "after") }).await;
    let each = shown();
    assert!(
        each.iter().all(|key| each.iter().filter(|other| *other == key).count() == 1),
        "{each:?}"
    );
    assert!(said.lock().expect("lines").iter().any(|line| line.contains("is back")));
    follower.kill().expect("it runs");
    follower.wait().expect("it ends");
}

fn lines_of(output: impl std::io::Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let all = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            all.lock().expect("lines").push(line);
        }
    });
    lines
}
