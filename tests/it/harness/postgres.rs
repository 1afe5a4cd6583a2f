//! A real Postgres. Tests share one cluster and have a database each; those that hurt the server
//! start one of their own.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use fencepost::store::{Store, postgres::PostgresStore};
use sqlx::{ConnectOptions, Connection, Decode, PgConnection, Type, postgres::PgConnectOptions};
use tokio::sync::OnceCell;

use super::{
    PATIENCE, Surroundings, bound_command_in, elsewhere, eventually, free_port, spawn_bound_to_us,
    until_it_answers,
};

pub const USER: &str = "postgres";

pub struct Postgres {
    directory: PathBuf,
    port: u16,
    settings: Vec<String>,
    around: Surroundings,
    server: Option<Child>,
}

/// The cluster that most tests share.
pub async fn shared() -> &'static Postgres {
    static SHARED: OnceCell<Postgres> = OnceCell::const_new();
    SHARED.get_or_init(shared_start).await
}

/// Where very many test processes are started, `FENCEPOST_TEST_PG_TEMPLATE` names a cluster to copy: that
/// takes a tenth of making one.
async fn shared_start() -> Postgres {
    let settings = ["fsync=off"];
    let Some(template) = std::env::var_os("FENCEPOST_TEST_PG_TEMPLATE") else {
        return Postgres::start(&settings).await;
    };
    let directory = new_directory();
    let data = directory.join("data");
    let copied = Command::new("cp").arg("-a").arg(template).arg(data).status().expect("cp runs");
    assert!(copied.success(), "the template is copied");
    let mut postgres = Postgres::stopped(&here(), directory, &settings);
    postgres.run().await;
    postgres
}

/// A new, empty database in the shared cluster: its URL.
pub async fn database() -> String {
    shared().await.database("").await
}

/// The address for the role that serves, in a database that the owner has brought up to date, with
/// the rights that `migrations/roles.sql` gives to each.
pub async fn to_serve(superuser: &str) -> String {
    let owner = superuser.replace("postgres@", "fencepost_owner@");
    apply_roles(superuser).await;
    let migrated = "SELECT to_regclass('fencepost.resources') IS NOT NULL";
    if !fetch::<bool>(superuser, migrated).await {
        let store = PostgresStore::new(&owner, 1).expect("a valid URL");
        store.migrate().await.expect("migrations run");
    }
    superuser.replace("postgres@", "fencepost_serve@")
}

/// Roles are the whole cluster's, so two databases must not make them at once.
pub async fn apply_roles(url: &str) {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = TURN.lock().await;
    execute(url, include_str!("../../../migrations/roles.sql")).await;
}

impl Postgres {
    /// A cluster of its own, with `name=value` settings.
    pub async fn start(settings: &[&str]) -> Self {
        Self::make(&here(), new_directory(), settings, &[]).await
    }

    /// The same, with something around it.
    pub async fn start_with(around: &Surroundings, settings: &[&str]) -> Self {
        Self::make(around, new_directory(), settings, &[]).await
    }

    /// The same, in a directory that is there and belongs to Postgres. Its log comes in small files, of
    /// which it soon needs another.
    pub async fn start_in(around: &Surroundings, directory: PathBuf, settings: &[&str]) -> Self {
        Self::make(around, directory, settings, &["--wal-segsize=1"]).await
    }

    async fn make(
        around: &Surroundings,
        directory: PathBuf,
        settings: &[&str],
        flags: &[&str],
    ) -> Self {
        let data = directory.join("data");
        let initdb = Command::new("setpriv")
            .args(as_postgres())
            .arg(bin("initdb"))
            .args(["--auth", "trust", "--username", USER, "--encoding", "UTF8", "--no-locale"])
            .arg("--no-sync")
            .args(flags)
            .arg("-D")
            .arg(&data)
            .current_dir(&directory)
            .output()
            .expect("initdb runs");
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let mut postgres = Self::stopped(around, directory, settings);
        postgres.run().await;
        postgres
    }

    fn stopped(around: &Surroundings, directory: PathBuf, settings: &[&str]) -> Self {
        Self {
            directory,
            port: free_port(),
            settings: settings.iter().map(ToString::to_string).collect(),
            around: around.clone(),
            server: None,
        }
    }

    /// A standby that follows a primary by way of `port`, under the name `standby`.
    pub async fn standby(port: u16, settings: &[&str]) -> Self {
        Self::standby_in(&here(), port, settings).await
    }

    pub async fn standby_in(around: &Surroundings, port: u16, settings: &[&str]) -> Self {
        let directory = new_directory();
        let source = format!("host=127.0.0.1 port={port} user={USER} application_name=standby");
        let mut copy = Command::new("setpriv");
        copy.args(as_postgres())
            .arg(bin("pg_basebackup"))
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", &source, "-D"])
            .arg(directory.join("data"))
            .current_dir(&directory);
        // The proxy that it goes through may live on this very thread.
        let copied = tokio::task::spawn_blocking(move || copy.output())
            .await
            .expect("a thread")
            .expect("pg_basebackup runs");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let mut standby = Self::stopped(around, directory, settings);
        standby.run().await;
        standby
    }

    /// Makes a standby the primary, on a timeline of its own.
    pub async fn promote(&self) {
        let promoted: bool = fetch(&self.url("postgres"), "SELECT pg_promote(true, 30)").await;
        assert!(promoted, "the standby takes over");
    }

    /// Starts the server (again), and waits until it answers.
    pub async fn run(&mut self) {
        let log = fs::File::create(self.directory.join("log")).expect("a log file");
        let mut command = bound_command_in(&self.around, bin("postgres"), Some(USER));
        command
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string(), "-k"])
            .arg(&self.directory)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300"])
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        self.server = Some(spawn_bound_to_us(command).expect("postgres starts"));
        let url = self.url("postgres");
        until_it_answers("Postgres", &self.directory.join("log"), || async {
            PgConnection::connect(&url).await.is_ok()
        })
        .await;
    }

    /// `mode` as `pg_ctl stop -m` knows it.
    pub async fn stop(&mut self, mode: &str) {
        let status = Command::new("setpriv")
            .args(as_postgres())
            .arg(bin("pg_ctl"))
            .args(["stop", "-m", mode, "-t", &PATIENCE.as_secs().to_string(), "-D"])
            .arg(self.data())
            .current_dir(&self.directory)
            .stdout(Stdio::null())
            .status()
            .expect("pg_ctl runs");
        assert!(status.success(), "pg_ctl stop -m {mode}");
        if let Some(mut server) = self.server.take() {
            server.wait().expect("postgres ends");
        }
    }

    /// Whether it still runs, or has given up by itself.
    pub fn is_running(&mut self) -> bool {
        let server = self.server.as_mut();
        server.is_some_and(|server| server.try_wait().expect("postgres can be asked").is_none())
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Where the Unix socket is, and where a test may put files that Postgres must read.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A new database: its URL. `options` as in CREATE DATABASE.
    pub async fn database(&self, options: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        execute(&self.url("postgres"), &format!("CREATE DATABASE {name} {options}")).await;
        self.url(&name)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn here() -> Surroundings {
    Surroundings { network: elsewhere::network(), ..Surroundings::default() }
}

/// Hands a file of ours to Postgres, readable by nobody else.
pub fn give(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("permissions");
    chown_to_postgres(file);
}

pub fn chown_to_postgres(path: &Path) {
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name(USER).expect("users").expect("a user `postgres`");
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("chown");
    }
}

/// The database that a URL names.
pub fn name_of(url: &str) -> &str {
    let path = url.rsplit('/').next().expect("a path");
    path.split('?').next().expect("a name")
}

pub async fn connect(url: &str) -> PgConnection {
    let options: PgConnectOptions = url.parse().expect("a URL");
    options.disable_statement_logging().connect().await.expect("postgres answers")
}

/// Raw SQL, as somebody at a psql prompt would type it.
pub async fn execute(url: &str, sql: &str) {
    try_execute(url, sql).await.expect("the statement runs");
}

pub async fn try_execute(url: &str, sql: &str) -> Result<(), sqlx::Error> {
    let mut connection = connect(url).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.map(|_| ())
}

/// The one value that a query returns.
pub async fn fetch<T>(url: &str, sql: &str) -> T
where
    T: for<'row> Decode<'row, sqlx::Postgres> + Type<sqlx::Postgres> + Send + Unpin,
{
    let mut connection = connect(url).await;
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut connection).await.expect("a value")
}

/// The first column of every row.
pub async fn fetch_all<T>(url: &str, sql: &str) -> Vec<T>
where
    T: for<'row> Decode<'row, sqlx::Postgres> + Type<sqlx::Postgres> + Send + Unpin,
{
    let mut connection = connect(url).await;
    let rows = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_all(&mut connection).await;
    rows.expect("values")
}

/// A counter of `pg_stat_database`, once every fencepost has left: what a connection adds to it is sure to
/// be counted when it is closed. It looks from another database, so as not to be counted itself.
///
/// Until version 15 a process of its own does the counting: it hears of each end in order, but later. So
/// one more connection is ended, in a way that is counted apart; once it is counted, the others are.
pub async fn counted_in_the_end(url: &str, counter: &str) -> i64 {
    let name = name_of(url);
    let elsewhere = url.replace(&format!("/{name}?"), "/postgres?");
    let of_ours = format!("FROM pg_stat_database WHERE datname = '{name}'");
    eventually("every fencepost has left", || async {
        let here = format!(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = '{name}' AND application_name = 'fencepost'"
        );
        fetch::<i64>(&elsewhere, &here).await == 0
    })
    .await;
    let killed = format!("SELECT sessions_killed {of_ours}");
    let before: i64 = fetch(&elsewhere, &killed).await;
    let ended = try_execute(url, "SELECT pg_terminate_backend(pg_backend_pid())").await;
    assert!(ended.is_err(), "a connection that ends itself says so");
    eventually("the last of them is counted", || async {
        fetch::<i64>(&elsewhere, &killed).await > before
    })
    .await;
    fetch(&elsewhere, &format!("SELECT {counter} {of_ours}")).await
}

/// Locks a resource's row, as a slow transaction would, until the connection is closed.
pub async fn lock_row(url: &str, key: &str) -> PgConnection {
    let mut connection = connect(url).await;
    sqlx::raw_sql("BEGIN").execute(&mut connection).await.expect("a transaction");
    sqlx::query("SELECT FROM fencepost.resources WHERE key = $1 FOR UPDATE")
        .bind(key)
        .fetch_one(&mut connection)
        .await
        .expect("the row is there");
    connection
}

/// Whether somebody waits for a lock, and for longer than a lane would.
pub async fn somebody_waits(url: &str) -> bool {
    let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
               AND datname = current_database()
               AND query_start < clock_timestamp() - interval '200 ms')";
    sqlx::query_scalar(sql).fetch_one(&mut connect(url).await).await.expect("an answer")
}

fn as_postgres() -> Vec<&'static str> {
    if nix::unistd::geteuid().is_root() {
        vec!["--reuid", USER, "--regid", USER, "--init-groups", "--"]
    } else {
        vec!["--"]
    }
}

/// The newest Postgres on this machine, unless `FENCEPOST_TEST_PG_BIN` names another.
pub fn bin(program: &str) -> PathBuf {
    match std::env::var_os("FENCEPOST_TEST_PG_BIN") {
        Some(directory) => Path::new(&directory).join(program),
        None => installed(program),
    }
}

/// A program of the installed Postgres, whatever release the servers are of: other releases come without clients.
pub fn installed(program: &str) -> PathBuf {
    let newest = fs::read_dir("/usr/lib/postgresql")
        .expect("Postgres is installed: run `make setup`")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.parse::<u32>().ok())
        .max()
        .expect("Postgres is installed: run `make setup`");
    format!("/usr/lib/postgresql/{newest}/bin/{program}").into()
}

/// A directory that Postgres may use, named after this process, so that the next run can tell
/// which ones nobody needs any more.
pub fn new_directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    static SWEEP: std::sync::Once = std::sync::Once::new();
    SWEEP.call_once(sweep);
    let name =
        format!("fencepost-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let directory = std::env::temp_dir().join(name);
    fs::create_dir(&directory).expect("a temporary directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("permissions");
    chown_to_postgres(&directory);
    directory
}

/// The shared cluster outlives every test, so its directory is left to the next run.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("fencepost-test-").and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
