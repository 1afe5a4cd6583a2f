//! A real Redis that syncs every write to disk before it answers, and the fence as a script in it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

use tempfile::TempDir;

use super::{
    it::harness::{bound_command, eventually, free_port, spawn_bound_to_us},
    template::{TOKEN, key, value},
    wire::redis_command,
};

/// Value, mark and version are in one hash. A refusal is the mark, negated.
const FENCED_WRITE: &str = "\
local mark = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') \
if mark > tonumber(ARGV[1]) then return -mark end \
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2]) \
return redis.call('HINCRBY', KEYS[1], 'version', 1)";

pub struct Redis {
    pub address: String,
    /// The script's name, as `EVALSHA` takes it.
    pub script: String,
    server: Child,
    _directory: TempDir,
}

impl Redis {
    pub async fn start(keys: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let mut command = bound_command("redis-server", None);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let server = spawn_bound_to_us(command).expect("redis-server is installed: `make bench`");
        eventually("redis answers", || async { ask(&address, &[&["PING"]]).is_ok() }).await;
        let loaded = ask(&address, &[&["SCRIPT", "LOAD", FENCED_WRITE]]).expect("a script");
        let script = loaded.lines().nth(1).expect("its name").trim().to_owned();
        let redis = Self { address, script, server, _directory: directory };
        redis.seed(keys);
        redis
    }

    fn seed(&self, keys: u64) {
        const AT_ONCE: u64 = 1000;
        let (token, value) = (TOKEN.to_string(), value());
        for first in (0..keys).step_by(1000) {
            let names: Vec<String> = (first..(first + AT_ONCE).min(keys)).map(key).collect();
            let writes: Vec<[&str; 8]> = names
                .iter()
                .map(|key| ["HSET", key, "token", &token, "value", &value, "version", "1"])
                .collect();
            let writes: Vec<&[&str]> = writes.iter().map(<[&str; 8]>::as_slice).collect();
            ask(&self.address, &writes).expect("redis takes its keys");
        }
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Sends commands, and reads until the server has answered and closed.
fn ask(address: &str, commands: &[&[&str]]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let mut text: String = commands.iter().map(|command| redis_command(command)).collect();
    text += &redis_command(&["QUIT"]);
    stream.write_all(text.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with('-') { Err(std::io::Error::other(answer)) } else { Ok(answer) }
}
