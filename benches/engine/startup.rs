//! From the start of the process to the first 200 of `/readyz`, on SQLite.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::it::harness::{PATIENCE, fencepost::BINARY, free_port};

/// Milliseconds of each start: on a new file, and on one that is there.
pub fn measure(starts: usize) -> (Vec<f64>, Vec<f64>) {
    let once = |_| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("bench.db");
        (start(&file), start(&file))
    };
    (0..starts).map(once).unzip()
}

fn start(file: &Path) -> f64 {
    let admin = format!("127.0.0.1:{}", free_port());
    let began = Instant::now();
    let child = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", &admin])
        .arg("--store")
        .arg(format!("sqlite:{}", file.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _ended_afterwards = Ended(child.expect("fencepost starts"));
    while !is_ready(&admin) {
        assert!(began.elapsed() < PATIENCE, "fencepost never became ready");
        thread::sleep(Duration::from_micros(500));
    }
    began.elapsed().as_secs_f64() * 1e3
}

fn is_ready(admin: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(admin).ok()?;
        let request = format!("GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).ok()?;
        answer.ends_with(b"200").then_some(())
    };
    ask().is_some()
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
