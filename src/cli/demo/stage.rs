//! A fencepost server for the time of the story, on a free port and a temporary file.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

use super::timeline::{Timeline, Who};
use crate::cli::{exit::Failure, run::bound};

/// How long anything may take before the story is given up.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Stage {
    // In this order: the server is killed before its directory is removed.
    _server: Child,
    directory: TempDir,
    pub url: String,
}

impl Stage {
    pub async fn set(timeline: &Timeline) -> Result<Self, Failure> {
        let directory = TempDir::with_prefix("fencepost-demo-")
            .map_err(|error| Failure::failed(format!("no temporary directory: {error}")))?;
        let mut store = OsString::from("sqlite:");
        store.push(directory.path().join("fencepost.db"));
        let mut server = command(&[
            "serve".into(),
            "--listen=127.0.0.1:0".into(),
            "--admin-listen=127.0.0.1:0".into(),
            "--log-format=json".into(),
            "--log=info".into(),
            "--authority=store".into(),
            "--store".into(),
            store,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::failed(format!("cannot start a server: {error}")))?;
        let mut log = BufReader::new(server.stderr.take().expect("it is piped")).lines();
        let started = tokio::time::timeout(PATIENCE, address_once_ready(&mut log)).await;
        let address = started.map_err(|_| Failure::failed("the server does not get ready"))??;
        // A log that nobody reads would stop it at some point.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let url = format!("http://{address}");
        let facts = json!({ "url": url, "pid": server.id() });
        let text = format!("a fencepost server starts on {url}, with a temporary SQLite file");
        timeline.event(Who::World, "server", facts, &text).await?;
        Ok(Self { _server: server, directory, url })
    }

    /// A plain file beside the server's own.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("stock.txt")
    }
}

/// This program with other arguments, and without the user's own settings.
pub fn command(arguments: &[OsString]) -> Command {
    let program = [bound::this_program().into_os_string()];
    let mut command = bound::command(&[&program, arguments].concat());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCEPOST_") {
            command.env_remove(name);
        }
    }
    // Ctrl-C is for the teller of the story, who then ends it in order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

async fn address_once_ready(log: &mut Lines<BufReader<ChildStderr>>) -> Result<String, Failure> {
    let mut address = None;
    let mut last = String::new();
    while let Ok(Some(line)) = log.next_line().await {
        let entry: Value = serde_json::from_str(&line).unwrap_or_default();
        match entry["message"].as_str() {
            Some("fencepost is starting") => address = entry["listen"].as_str().map(str::to_owned),
            Some("fencepost is ready") => {
                return address.ok_or_else(|| Failure::failed("the server has no address"));
            }
            _ => last = line,
        }
    }
    Err(Failure::failed(format!("the server did not start: {last}")))
}
