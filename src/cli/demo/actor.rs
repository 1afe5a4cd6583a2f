//! A worker process, as the teller of the story sees it.

use std::{ffi::OsString, process::Stdio};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

use super::{
    stage::{self, PATIENCE, Stage},
    timeline::Who,
};
use crate::cli::exit::Failure;

pub struct Actor {
    pub who: Who,
    process: Child,
    script: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    /// Starts a worker that sells `sells` pieces, from a plain file or through the fence.
    pub fn enters(stage: &Stage, who: Who, sells: i64, fenced: bool) -> Result<Self, Failure> {
        let mut arguments: Vec<OsString> = vec![
            "demo-worker".into(),
            "--name".into(),
            who.name().into(),
            "--sells".into(),
            sells.to_string().into(),
            "--url".into(),
            (&stage.url).into(),
        ];
        if !fenced {
            arguments.push("--file".into());
            arguments.push(stage.file().into_os_string());
        }
        let mut process = stage::command(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::failed(format!("cannot start a worker: {error}")))?;
        let script = process.stdin.take().expect("it is piped");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Ok(Self { who, process, script, lines })
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// What it does next; it must be this.
    pub async fn does(&mut self, expected: &str) -> Result<Value, Failure> {
        let event = self.does_something().await?;
        if event["event"] == expected { Ok(event) } else { Err(self.unexpected(expected, &event)) }
    }

    pub async fn does_something(&mut self) -> Result<Value, Failure> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            return Err(self.unexpected("anything", &Value::Null));
        };
        serde_json::from_str(&line).map_err(|error| Failure::failed(error.to_string()))
    }

    fn unexpected(&self, expected: &str, event: &Value) -> Failure {
        let name = self.who.name();
        Failure::failed(format!("worker {name} should have done {expected}, but did {event}"))
    }

    /// Its work is done, and it may write. If it is frozen, it will find that out when it wakes up.
    pub async fn may_write(&mut self) -> Result<(), Failure> {
        let told = self.script.write_all(b"write\n").await;
        told.map_err(|error| Failure::failed(format!("worker {}: {error}", self.who.name())))
    }

    pub fn freeze(&self) -> Result<(), Failure> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn wake(&self) -> Result<(), Failure> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = self.process.id().and_then(|pid| i32::try_from(pid).ok());
        let sent = pid.is_some_and(|pid| kill(Pid::from_raw(pid), signal).is_ok());
        if sent { Ok(()) } else { Err(Failure::failed("a worker has ended too early")) }
    }
}
