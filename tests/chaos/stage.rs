//! The servers of one round: a store and perhaps its standby, whoever grants locks, the fenceposts, on
//! every way between them a proxy that can spoil it, and for each a clock and a disk of its own.

use tempfile::TempDir;

use crate::{
    client::{Client, Orders},
    clock::Clock,
    history::{self, Takeover},
    it::harness::{
        chaos_proxy::ChaosProxy,
        disk::Disk,
        etcd::{Cluster, Etcd},
        fencepost::{self, Fencepost},
        postgres::{self, Postgres},
    },
    network::Host,
    plan::{Authority, Plan, Standby, Store},
    work::Terms,
};

/// A crash of a server is not one of the machine, so nothing needs to be synced to survive it.
const SETTINGS: [&str; 1] = ["fsync=off"];

const CLIENTS: usize = 4;

/// For a database with a few dozen keys.
const DISK_MIB: usize = 256;

pub struct Stage {
    pub plan: Plan,
    /// `None`: a file of SQLite.
    pub postgres: Option<Postgres>,
    pub standby: Option<Follower>,
    pub locks: Locks,
    pub posts: Vec<Post>,
    pub clients: Vec<Client>,
    pub takeovers: Vec<Takeover>,
    /// Where the store is.
    pub disk: Disk,
    /// What Postgres goes by.
    pub clock: Clock,
    database: String,
    directory: TempDir,
}

/// A standby, and the link by which it follows.
pub struct Follower {
    pub server: Postgres,
    pub link: ChaosProxy,
}

pub enum Locks {
    Members(Vec<Etcd>, Vec<Host>),
    Table,
}

/// A fencepost, and every way to and from it.
pub struct Post {
    pub server: Option<Fencepost>,
    pub front: ChaosProxy,
    pub to_store: Option<ChaosProxy>,
    pub to_members: Vec<ChaosProxy>,
    pub clock: Clock,
    store: String,
}

impl Stage {
    pub async fn set(plan: Plan) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // Postgres, which is somebody else, reads the time there.
        world_readable(&directory);
        let disk = Disk::new(DISK_MIB);
        let clock = Clock::new(directory.path().join("clock"));
        let (postgres, url) = match plan.store {
            Store::Postgres(_) => {
                let place = disk.path().to_owned();
                let postgres = Postgres::start_in(&clock.surroundings(), place, &SETTINGS).await;
                let url = postgres.database("").await;
                let migrated = fencepost::run_discreetly(&["migrate", "--store", &url]);
                assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
                (Some(postgres), url)
            }
            Store::Sqlite => (None, format!("sqlite:{}", disk.path().join("store.db").display())),
        };
        let standby = match (&postgres, plan.standby()) {
            (None, _) | (_, Standby::None) => None,
            (Some(primary), kind) => Some(Follower::of(primary, &clock, kind).await),
        };
        let mut stage = Self {
            plan,
            standby,
            locks: Locks::of(plan.authority).await,
            posts: Vec::new(),
            clients: Vec::new(),
            takeovers: Vec::new(),
            disk,
            clock,
            database: postgres::name_of(&url).to_owned(),
            directory,
            postgres,
        };
        let fenceposts = if stage.postgres.is_some() { 2 } else { 1 };
        for number in 0..fenceposts {
            let clock = Clock::new(stage.directory.path().join(format!("clock-of-{number}")));
            let post = Post::new(&stage, &url, clock).await;
            stage.posts.push(post);
        }
        stage.start_posts();
        stage.wait_until_ready().await;
        stage
    }

    pub fn addresses(&self) -> Vec<String> {
        self.posts.iter().map(|post| format!("127.0.0.1:{}", post.front.port())).collect()
    }

    pub fn start_clients(&mut self, terms: Terms) {
        for number in 0..CLIENTS {
            let name = format!("c{number}");
            let clock = Clock::new(self.directory.path().join(format!("clock-of-{name}")));
            let orders = Orders {
                history: self.directory.path().join(&name),
                seed: self.plan.seed ^ ((number as u64 + 1) << 32),
                addresses: self.addresses(),
                name,
                terms,
            };
            self.clients.push(Client::start(&orders, clock));
        }
    }

    /// Starts those that do not run.
    pub fn start_posts(&mut self) {
        for post in self.posts.iter_mut().filter(|post| post.server.is_none()) {
            post.start();
        }
    }

    pub async fn wait_until_ready(&self) {
        for post in self.posts.iter().filter_map(|post| post.server.as_ref()) {
            post.wait_until_ready().await;
        }
    }

    /// Of the database, where it is one that can be asked.
    pub fn url(&self) -> Option<String> {
        Some(self.postgres.as_ref()?.url(&self.database))
    }

    /// The primary dies, and its standby takes over. There is no other after it.
    pub async fn fail_over(&mut self) {
        let Some(Follower { server, link: _link }) = self.standby.take() else { return };
        let Some(mut primary) = self.postgres.take() else { return };
        let from = history::now();
        primary.stop("immediate").await;
        server.promote().await;
        for link in self.posts.iter().filter_map(|post| post.to_store.as_ref()) {
            link.retarget(server.port());
        }
        let till = history::now();
        self.postgres = Some(server);
        let lossy = self.plan.standby() == Standby::Asynchronous;
        self.takeovers.push(Takeover { from, till, lossy, floor: 0 });
    }

    /// The floor that the takeovers have led to.
    pub async fn learn_floor(&mut self) {
        let Some(url) = self.url() else { return };
        let floor = postgres::fetch(&url, "SELECT token FROM fencepost.floor").await;
        for takeover in &mut self.takeovers {
            takeover.floor = floor;
        }
    }
}

fn world_readable(directory: &TempDir) {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), all).expect("permissions");
}

impl Locks {
    async fn of(authority: Authority) -> Self {
        match authority {
            Authority::Cluster => {
                let hosts = [Host::new(1).await, Host::new(2).await, Host::new(3).await];
                let home = |host: &Host| (host.address.to_string(), host.namespace.clone());
                let cluster = Cluster::start_at(hosts.each_ref().map(home)).await;
                Self::Members(cluster.members, hosts.into())
            }
            Authority::Etcd => Self::Members(vec![Etcd::start(&[]).await], Vec::new()),
            Authority::Table => Self::Table,
        }
    }
}

impl Follower {
    async fn of(primary: &Postgres, clock: &Clock, kind: Standby) -> Self {
        let link = ChaosProxy::before(primary.port()).await;
        let server = Postgres::standby_in(&clock.surroundings(), link.port(), &SETTINGS).await;
        if kind == Standby::Synchronous {
            let url = primary.url("postgres");
            let name = "ALTER SYSTEM SET synchronous_standby_names = 'standby'";
            postgres::execute(&url, name).await;
            postgres::execute(&url, "SELECT pg_reload_conf()").await;
        }
        let follower = Self { server, link };
        follower.wait_until_it_follows(primary).await;
        follower
    }

    pub async fn wait_until_it_follows(&self, primary: &Postgres) {
        let url = primary.url("postgres");
        crate::it::harness::eventually("the standby follows", || async {
            let sql = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')";
            postgres::fetch(&url, sql).await
        })
        .await;
    }
}

impl Post {
    async fn new(stage: &Stage, url: &str, clock: Clock) -> Self {
        let mut to_members = Vec::new();
        if let Locks::Members(members, _) = &stage.locks {
            for member in members {
                let address = member.address().parse().expect("an address");
                to_members.push(ChaosProxy::towards(address).await);
            }
        }
        let (to_store, store) = match &stage.postgres {
            None => (None, url.to_owned()),
            Some(postgres) => {
                let link = ChaosProxy::before(postgres.port()).await;
                let store = link.reroute(url, postgres.port());
                (Some(link), store)
            }
        };
        // Where it leads to is known once the fencepost has started.
        let front = ChaosProxy::before(0).await;
        Self { server: None, front, to_store, to_members, clock, store }
    }

    fn start(&mut self) {
        let ports = self.to_members.iter().map(|link| format!("127.0.0.1:{}", link.port()));
        let authority = match ports.collect::<Vec<_>>().join(",") {
            members if members.is_empty() => "store".to_owned(),
            members => format!("etcd://{members}"),
        };
        let flags = ["--authority", authority.as_str(), "--drain", "3s"];
        let server = Fencepost::start_in(&self.clock.surroundings(), &self.store, &flags);
        let port = server.address.rsplit(':').next().and_then(|port| port.parse().ok());
        self.front.retarget(port.expect("a port"));
        self.server = Some(server);
    }
}
