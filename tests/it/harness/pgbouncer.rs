//! A real pgbouncer in transaction mode, between fencepost and a real Postgres.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use sqlx::{Connection, PgConnection};

use super::{
    bound_command, free_port,
    postgres::{self, Postgres, name_of},
    spawn_bound_to_us, until_it_answers,
};

const FILE: &str = "pgbouncer.ini";

pub struct Pgbouncer {
    directory: PathBuf,
    port: u16,
    process: Child,
}

impl Pgbouncer {
    /// Lends out at most `pool_size` connections to each database of `postgres`. `settings` are
    /// further lines of its file.
    pub async fn before(postgres: &Postgres, pool_size: u32, settings: &str) -> Self {
        Self::before_port(postgres.port(), pool_size, settings).await
    }

    /// The same, for whatever answers there.
    pub async fn before_port(server: u16, pool_size: u32, settings: &str) -> Self {
        let directory = postgres::new_directory();
        let port = free_port();
        let users = directory.join("users");
        fs::write(&users, format!("\"{}\" \"\"\n", postgres::USER)).expect("a file");
        postgres::give(&users);
        let file = directory.join(FILE);
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = 500\n\
             {settings}\n",
            users.display(),
        );
        fs::write(&file, text).expect("a file");
        postgres::give(&file);
        let process = spawn(&directory);
        let pgbouncer = Self { directory, port, process };
        pgbouncer.wait_until_it_answers().await;
        pgbouncer
    }

    /// Kills it and starts it again, on the same port.
    pub async fn restart(&mut self) {
        self.process.kill().expect("it was running");
        self.process.wait().expect("it ends");
        self.process = spawn(&self.directory);
        self.wait_until_it_answers().await;
    }

    async fn wait_until_it_answers(&self) {
        let url = self.url("pgbouncer");
        until_it_answers("pgbouncer", &self.directory.join("log"), || async {
            // Its console speaks too little SQL for a greeting, but it does answer.
            !matches!(PgConnection::connect(&url).await, Err(sqlx::Error::Io(_)))
        })
        .await;
    }

    /// The way through it to the database that `direct` names.
    pub fn url(&self, direct: &str) -> String {
        let name = name_of(direct);
        format!("postgres://{}@127.0.0.1:{}/{name}?sslmode=disable", postgres::USER, self.port)
    }
}

fn spawn(directory: &Path) -> Child {
    let log = fs::File::create(directory.join("log")).expect("a log file");
    let mut command = bound_command(program(), Some(postgres::USER));
    command
        .arg(directory.join(FILE))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log file"))
        .stderr(log);
    spawn_bound_to_us(command).expect("pgbouncer starts")
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Debian puts it where ordinary users do not look.
fn program() -> PathBuf {
    let debian = PathBuf::from("/usr/sbin/pgbouncer");
    if debian.exists() { debian } else { "pgbouncer".into() }
}
