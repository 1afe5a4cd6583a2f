//! A real etcd: alone or in a cluster, with TLS or passwords if a test wants them. Tests share one,
//! and use names of their own; those that hurt the server start one for themselves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use fencepost::{
    authority::etcd::{EtcdAuthority, EtcdOptions},
    store::Store,
    token::Key,
};
use nix::{sys::signal::Signal, unistd::Pid};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{
    Surroundings, bound_command, bound_command_in, elsewhere, free_port, http,
    postgres::new_directory, signals, spawn_bound_to_us, until_it_answers,
};

/// One member.
pub struct Etcd {
    name: String,
    directory: PathBuf,
    /// Where it is, and in which network.
    host: String,
    around: Surroundings,
    client_port: u16,
    peer_port: u16,
    /// More flags of `etcd`.
    flags: Vec<String>,
    /// Flags with which `etcdctl` gets in.
    credentials: Vec<String>,
    scheme: &'static str,
    server: Option<Child>,
}

/// A program of etcd: of the release in `FENCEPOST_TEST_ETCD_BIN`, or the installed one.
fn program(name: &str) -> PathBuf {
    match std::env::var_os("FENCEPOST_TEST_ETCD_BIN") {
        Some(directory) => Path::new(&directory).join(name),
        None => name.into(),
    }
}

/// The etcd that most tests share. Use [`unique`] names in it.
pub async fn shared() -> &'static Etcd {
    static SHARED: OnceCell<Etcd> = OnceCell::const_new();
    SHARED.get_or_init(|| Etcd::start(&[])).await
}

/// The shared etcd, as `--authority` takes it.
pub async fn url_of_shared() -> String {
    shared().await.url()
}

/// A name or a prefix that no other test uses.
pub fn unique(stem: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{stem}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

pub fn unique_key(stem: &str) -> Key {
    Key::new(&unique(stem)).expect("a valid name")
}

impl Etcd {
    /// A single member, with more flags of `etcd`.
    pub async fn start(flags: &[&str]) -> Self {
        let mut etcd = Self::new("alone");
        etcd.flags.extend(flags.iter().map(ToString::to_string));
        etcd.run().await;
        etcd
    }

    /// A member that asks clients for certificates of `authority`, which signed its own, too.
    pub async fn with_tls(authority: &CertificateAuthority) -> Self {
        let mut etcd = Self::new("secured");
        etcd.scheme = "https";
        let [ca, cert, key] = authority.files(&etcd.directory, "server");
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        etcd.flags.extend([
            flag("trusted-ca-file", &ca),
            flag("cert-file", &cert),
            flag("key-file", &key),
            "--client-cert-auth".into(),
        ]);
        let [ca, cert, key] = authority.files(&etcd.directory, "etcdctl");
        etcd.credentials = vec![flag("cacert", &ca), flag("cert", &cert), flag("key", &key)];
        etcd.run().await;
        etcd
    }

    /// Asks for a password from now on: root's is `root`, and `app`, who may use what is under
    /// `prefix`, has `password`.
    pub fn enable_auth(&mut self, prefix: &str, password: &str) {
        self.ctl(&["user", "add", "root:root"]);
        self.ctl(&["user", "add", &format!("app:{password}")]);
        self.ctl(&["role", "add", "locks"]);
        self.ctl(&["role", "grant-permission", "locks", "readwrite", "--prefix=true", prefix]);
        self.ctl(&["user", "grant-role", "app", "locks"]);
        self.ctl(&["user", "grant-role", "root", "root"]);
        self.ctl(&["auth", "enable"]);
        self.credentials.push("--user=root:root".into());
    }

    /// Of the user `app`.
    pub fn change_password(&self, password: &str) {
        let path = self.directory.join("new-password");
        std::fs::write(&path, format!("{password}\n")).expect("a file");
        let mut command = self.ctl_command();
        command.args(["user", "passwd", "app", "--interactive=false"]);
        command.stdin(std::fs::File::open(path).expect("the file"));
        let output = command.output().expect("etcdctl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn new(name: &str) -> Self {
        let (client_port, peer_port) = (free_port(), free_port());
        let mut etcd = Self {
            name: name.into(),
            directory: new_directory(),
            host: "127.0.0.1".into(),
            around: Surroundings { network: elsewhere::network(), ..Surroundings::default() },
            client_port,
            peer_port,
            flags: Vec::new(),
            credentials: Vec::new(),
            scheme: "http",
            server: None,
        };
        etcd.flags = vec![format!("--initial-cluster={name}={}", etcd.peer_url())];
        etcd
    }

    /// Starts the server (again), and waits until it answers.
    pub async fn run(&mut self) {
        self.launch();
        self.wait_until_it_answers().await;
    }

    async fn wait_until_it_answers(&self) {
        until_it_answers("etcd", &self.directory.join("log"), || async {
            self.try_ctl(&["get", "anything"]).status.success()
        })
        .await;
    }

    pub fn launch(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .expect("a log file");
        let mut command = bound_command_in(&self.around, program("etcd"), None);
        let client_url = format!("{}://{}", self.scheme, self.address());
        command
            .args(["--name", &self.name, "--data-dir"])
            .arg(self.data())
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &self.peer_url()])
            .args(["--initial-advertise-peer-urls", &self.peer_url()])
            .args(["--logger", "zap", "--unsafe-no-fsync"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log);
        self.server = Some(spawn_bound_to_us(command).expect("etcd starts"));
    }

    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn peer_url(&self) -> String {
        format!("http://{}:{}", self.host, self.peer_port)
    }

    /// `host:port` for clients.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.client_port)
    }

    /// As `--authority` takes it.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    /// Ends it the hard way.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            server.wait().expect("etcd ends");
        }
    }

    pub fn is_running(&self) -> bool {
        self.server.is_some()
    }

    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").id()
    }

    pub fn signal(&self, signal: Signal) {
        signals::send(Pid::from_raw(self.pid().cast_signed()), signal);
    }

    /// `etcdctl` as somebody at a prompt would use it.
    pub fn ctl_command(&self) -> Command {
        let mut command = bound_command(program("etcdctl"), None);
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &format!("{}://{}", self.scheme, self.address())])
            .args(&self.credentials)
            .stdin(Stdio::null());
        command
    }

    pub fn try_ctl(&self, arguments: &[&str]) -> Output {
        self.ctl_command().args(arguments).output().expect("etcdctl runs")
    }

    pub fn ctl(&self, arguments: &[&str]) -> String {
        let output = self.try_ctl(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The keys of a lock with their create revisions, the oldest first.
    pub fn entries(&self, name: &str) -> Vec<(String, i64)> {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let found = self.ctl(&["get", "--prefix", &format!("{name}/"), "-w", "json"]);
        let found: Value = serde_json::from_str(&found).expect("JSON");
        let pairs = found["kvs"].as_array().cloned().unwrap_or_default();
        let mut entries: Vec<(String, i64)> = pairs
            .iter()
            .map(|pair| {
                let key = BASE64_STANDARD.decode(pair["key"].as_str().expect("a key"));
                let key = String::from_utf8(key.expect("base64")).expect("text");
                (key, pair["create_revision"].as_i64().expect("a revision"))
            })
            .collect();
        entries.sort_by_key(|(_, created)| *created);
        entries
    }

    /// How many transactions it has been asked for.
    pub async fn transactions(&self) -> u64 {
        self.calls("Txn").await
    }

    /// How often it has been asked for something, by its name in gRPC.
    pub async fn calls(&self, method: &str) -> u64 {
        let method = format!("grpc_method=\"{method}\"");
        let metrics = http::answer(http::Client::new(&self.address()).get("/metrics")).await.text();
        let counters = metrics
            .lines()
            .filter(|line| line.starts_with("grpc_server_started_total") && line.contains(&method));
        counters.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// As the server itself names its release.
    pub fn version(&self) -> String {
        let status = self.ctl(&["endpoint", "status", "-w", "json"]);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        status[0]["Status"]["version"].as_str().expect("a version").to_owned()
    }

    pub fn revision(&self) -> i64 {
        let found: Value =
            serde_json::from_str(&self.ctl(&["get", "anything", "-w", "json"])).expect("JSON");
        found["header"]["revision"].as_i64().expect("a revision")
    }

    pub fn snapshot(&self) -> PathBuf {
        self.directory.join("snapshot.db")
    }

    /// `etcdctl snapshot save`: where it is.
    pub fn save_snapshot(&self) -> PathBuf {
        let path = self.snapshot();
        self.ctl(&["snapshot", "save", path.to_str().expect("a path")]);
        path
    }

    /// Restores a snapshot in place of what was there, with the release's own program. The server must
    /// not run.
    pub fn restore(&self, snapshot: &Path) {
        assert!(self.server.is_none(), "it still runs");
        fs::remove_dir_all(self.data()).expect("the data is removed");
        // etcd 3.6 has moved it from `etcdctl` to `etcdutl`, which Debian's 3.4 does not have.
        let utl = program("etcdutl");
        let restorer = if utl.is_absolute() { utl } else { program("etcdctl") };
        let output = Command::new(restorer)
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(self.data())
            .args(["--name", &self.name, "--initial-advertise-peer-urls", &self.peer_url()])
            .args(&self.flags[..1])
            .output()
            .expect("the snapshot is restored");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Puts a new, empty cluster in its place, at the same address and with another cluster id.
    pub async fn replace(&mut self) {
        self.kill();
        fs::remove_dir_all(self.data()).expect("the data is removed");
        self.flags.push(format!("--initial-cluster-token={}", unique("another")));
        self.run().await;
    }

    /// The ids of all leases there are.
    pub fn leases(&self) -> Vec<String> {
        let listed = self.ctl(&["lease", "list"]);
        // It writes them in sixteen digits, where keys have as many as it takes.
        listed.lines().skip(1).map(|id| id.trim_start_matches('0').to_owned()).collect()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Three members.
pub struct Cluster {
    pub members: Vec<Etcd>,
}

impl Cluster {
    pub async fn start() -> Self {
        Self::of(["one", "two", "three"].map(Etcd::new).into()).await
    }

    /// Each in a network of its own: its address there, and the namespace.
    pub async fn start_at(homes: [(String, String); 3]) -> Self {
        let members =
            ["one", "two", "three"].into_iter().zip(homes).map(|(name, (host, network))| {
                let mut member = Etcd::new(name);
                member.host = host;
                member.around.network = Some(network);
                member
            });
        Self::of(members.collect()).await
    }

    async fn of(mut members: Vec<Etcd>) -> Self {
        let peers: Vec<String> =
            members.iter().map(|member| format!("{}={}", member.name, member.peer_url())).collect();
        for member in &mut members {
            member.flags = vec![format!("--initial-cluster={}", peers.join(","))];
            member.launch();
        }
        let cluster = Self { members };
        for member in &cluster.members {
            member.wait_until_it_answers().await;
        }
        cluster
    }

    pub fn authority(&self, store: &Arc<dyn Store>) -> EtcdAuthority {
        EtcdAuthority::start(options(&self.members.iter().collect::<Vec<_>>()), store)
    }

    /// The number of the member that leads.
    pub fn leader(&self) -> usize {
        self.members
            .iter()
            .position(|member| {
                let status = member.ctl(&["endpoint", "status", "-w", "json"]);
                let status: Value = serde_json::from_str(&status).expect("JSON");
                let status = &status[0]["Status"];
                status["leader"] == status["header"]["member_id"]
            })
            .expect("a leader")
    }
}

/// Signs certificates for servers and clients of a test.
pub struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl CertificateAuthority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the test's own authority");
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// The files of the authority, of a certificate for `name`, and of its key.
    pub fn files(&self, directory: &Path, name: &str) -> [PathBuf; 3] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])
            .expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let write = |kind: &str, text: String| {
            let path = directory.join(format!("{name}-{kind}.pem"));
            fs::write(&path, text).expect("the file is written");
            path
        };
        [
            write("ca", self.issuer.pem()),
            write("cert", cert.pem()),
            write("key", key.serialize_pem()),
        ]
    }
}

/// What a fencepost would use to speak to these members.
pub fn options(members: &[&Etcd]) -> EtcdOptions {
    EtcdOptions {
        members: members.iter().map(|member| member.address()).collect(),
        tls: None,
        user: None,
        prefix: String::new(),
    }
}

/// An authority as one fencepost has it.
pub fn authority(etcd: &Etcd, store: &Arc<dyn Store>) -> EtcdAuthority {
    EtcdAuthority::start(options(&[etcd]), store)
}
