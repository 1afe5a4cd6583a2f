//! The servers of one round: Postgres and perhaps its standby, whoever grants locks, two fenceposts,
//! and on every way between them a proxy that can spoil it.

use tempfile::TempDir;

use crate::{
    client::{Client, Orders},
    history::{self, Takeover},
    it::harness::{
        chaos_proxy::ChaosProxy,
        etcd::{Cluster, Etcd},
        fencepost::{self, Fencepost},
        postgres::{self, Postgres},
    },
    plan::{Authority, Plan, Standby},
    work::Terms,
};

/// A crash of a server is not one of the machine, so nothing needs to be synced to survive it.
const SETTINGS: [&str; 1] = ["fsync=off"];

const FENCEPOSTS: usize = 2;
const CLIENTS: usize = 4;

pub struct Stage {
    pub plan: Plan,
    pub postgres: Postgres,
    pub standby: Option<Follower>,
    pub locks: Locks,
    pub posts: Vec<Post>,
    pub clients: Vec<Client>,
    pub takeovers: Vec<Takeover>,
    database: String,
    directory: TempDir,
}

/// A standby, and the link by which it follows.
pub struct Follower {
    pub server: Postgres,
    pub link: ChaosProxy,
}

pub enum Locks {
    Members(Vec<Etcd>),
    Table,
}

/// A fencepost, and every way to and from it.
pub struct Post {
    pub server: Option<Fencepost>,
    pub front: ChaosProxy,
    pub to_store: ChaosProxy,
    pub to_members: Vec<ChaosProxy>,
    store: String,
}

impl Stage {
    pub async fn set(plan: Plan) -> Self {
        let postgres = Postgres::start(&SETTINGS).await;
        let url = postgres.database("").await;
        let database = postgres::name_of(&url).to_owned();
        let migrated = fencepost::run_discreetly(&["migrate", "--store", &url]);
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
        let locks = match plan.authority {
            Authority::Cluster => Locks::Members(Cluster::start().await.members),
            Authority::Etcd => Locks::Members(vec![Etcd::start(&[]).await]),
            Authority::Table => Locks::Table,
        };
        let standby = match plan.standby {
            Standby::None => None,
            kind => Some(Follower::of(&postgres, kind).await),
        };
        let mut posts = Vec::new();
        for _ in 0..FENCEPOSTS {
            posts.push(Post::new(&postgres, &url, &locks).await);
        }
        let mut stage = Self {
            plan,
            postgres,
            standby,
            locks,
            posts,
            clients: Vec::new(),
            takeovers: Vec::new(),
            database,
            directory: tempfile::tempdir().expect("a directory"),
        };
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
            self.clients.push(Client::start(&Orders {
                history: self.directory.path().join(&name),
                seed: self.plan.seed ^ ((number as u64 + 1) << 32),
                addresses: self.addresses(),
                name,
                terms,
            }));
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

    pub fn url(&self) -> String {
        self.postgres.url(&self.database)
    }

    /// The primary dies, and its standby takes over. There is no other after it.
    pub async fn fail_over(&mut self) {
        let Some(Follower { server, link: _link }) = self.standby.take() else { return };
        let from = history::now();
        self.postgres.stop("immediate").await;
        server.promote().await;
        for post in &self.posts {
            post.to_store.retarget(server.port());
        }
        let till = history::now();
        self.postgres = server;
        let lossy = self.plan.standby == Standby::Asynchronous;
        self.takeovers.push(Takeover { from, till, lossy, floor: 0 });
    }

    /// The floor that the takeovers have led to.
    pub async fn learn_floor(&mut self) {
        let floor = postgres::fetch(&self.url(), "SELECT token FROM fencepost.floor").await;
        for takeover in &mut self.takeovers {
            takeover.floor = floor;
        }
    }
}

impl Follower {
    async fn of(primary: &Postgres, kind: Standby) -> Self {
        let link = ChaosProxy::before(primary.port()).await;
        let server = Postgres::standby(link.port(), &SETTINGS).await;
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
    async fn new(postgres: &Postgres, url: &str, locks: &Locks) -> Self {
        let to_store = ChaosProxy::before(postgres.port()).await;
        let mut to_members = Vec::new();
        if let Locks::Members(members) = locks {
            for member in members {
                let port = member.address().rsplit(':').next().and_then(|port| port.parse().ok());
                to_members.push(ChaosProxy::before(port.expect("a port")).await);
            }
        }
        let store = to_store.reroute(url, postgres.port());
        // Where it leads to is known once the fencepost has started.
        let front = ChaosProxy::before(0).await;
        Self { server: None, front, to_store, to_members, store }
    }

    fn start(&mut self) {
        let ports = self.to_members.iter().map(|link| format!("127.0.0.1:{}", link.port()));
        let authority = match ports.collect::<Vec<_>>().join(",") {
            members if members.is_empty() => "store".to_owned(),
            members => format!("etcd://{members}"),
        };
        let flags = ["--authority", authority.as_str()];
        let server = Fencepost::start_as_it_is(&self.store, &flags);
        let port = server.address.rsplit(':').next().and_then(|port| port.parse().ok());
        self.front.retarget(port.expect("a port"));
        self.server = Some(server);
    }
}
