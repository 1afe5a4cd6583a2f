//! The members of an etcd cluster, and which of them to ask.
//!
//! One connection to each, and one member that is asked first. A request that gets no answer goes
//! on to the next member, until its patience is over: whatever is asked here may be asked twice. So
//! a lost member or a new election costs time, and no error. Nothing waits without a deadline.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use etcd_client::{Client, ConnectOptions, Error, TlsOptions};
use tokio::time::{Instant, sleep, timeout};

use super::{trouble::Trouble, user::User};

/// How long a request may take, over all members: longer than an election.
pub const PATIENCE: Duration = Duration::from_secs(5);

const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// A member that is silent for longer than this is taken for lost. etcd's default lets a client ask
/// for a sign of life every five seconds, and drops one that asks more often.
const SIGN_OF_LIFE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

pub struct Members {
    all: Vec<Member>,
    /// Which one to ask first: the last one that answered.
    preferred: AtomicUsize,
    /// Whether etcd answers. Nobody knows before it was asked.
    up: Mutex<Option<bool>>,
}

struct Member {
    /// `https://host:port`
    url: String,
    user: Option<User>,
    options: ConnectOptions,
    client: Mutex<Option<Client>>,
}

impl Members {
    /// `addresses` as `host:port`. Connects when it is first needed.
    pub fn new(addresses: &[String], tls: Option<TlsOptions>, user: Option<User>) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_DEADLINE)
            .with_keep_alive(SIGN_OF_LIFE.0, SIGN_OF_LIFE.1)
            .with_keep_alive_while_idle(false)
            // A member without a leader says so at once, and ends its watches.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(tls) = tls {
            options = options.with_tls(tls);
        }
        let member = |address: &String| Member {
            url: format!("{scheme}://{address}"),
            user: user.clone(),
            options: options.clone(),
            client: Mutex::new(None),
        };
        Self {
            all: addresses.iter().map(member).collect(),
            preferred: AtomicUsize::new(0),
            up: Mutex::new(None),
        }
    }

    /// Whether the last request that mattered was answered.
    pub fn is_up(&self) -> bool {
        *self.up.lock().expect("no panic while it is held") == Some(true)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Where a member is.
    pub fn url(&self, number: usize) -> &str {
        &self.all[number].url
    }

    /// A client that speaks to this member only.
    pub async fn client_of(&self, number: usize) -> Result<Client, Trouble> {
        self.all[number].client().await
    }

    /// A client for each member, that speaks to that one only.
    pub async fn each(&self) -> Vec<Result<Client, Trouble>> {
        futures_util::future::join_all(self.all.iter().map(Member::client)).await
    }

    /// Asks until somebody answers, or `patience` is over. While nobody has answered for long, each
    /// member is asked once, so that an outage is not made worse by those who wait for it to end.
    pub async fn ask<T, E: Into<Trouble>, Asked>(
        &self,
        patience: Duration,
        question: impl Fn(Client) -> Asked,
    ) -> Result<T, Trouble>
    where
        Asked: Future<Output = Result<T, E>>,
    {
        let deadline = Instant::now() + patience;
        let each = (patience / 3).clamp(Duration::from_millis(300), Duration::from_secs(2));
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(20))
            .with_max_delay(Duration::from_millis(400))
            .without_max_times()
            .with_jitter()
            .build();
        let hopeful = self.is_up();
        let mut asked = 0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let chosen = self.preferred.load(Ordering::Relaxed);
            let member = &self.all[chosen % self.all.len()];
            let silent = || Err(Trouble::Away(format!("{} did not answer in time", member.url)));
            let answer = timeout(each.min(left), member.ask(&question)).await;
            match answer.unwrap_or_else(|_| silent()) {
                Err(Trouble::Away(reason)) => {
                    asked += 1;
                    self.prefer_another_than(chosen);
                    let tried_all = asked % self.all.len() == 0;
                    if Instant::now() >= deadline || (tried_all && !hopeful) {
                        self.set_up(false, &reason);
                        return Err(Trouble::Away(reason));
                    }
                    if tried_all {
                        let pause = pauses.next().unwrap_or_default();
                        sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
                    }
                }
                answer => {
                    if !matches!(answer, Err(Trouble::Stranger(_) | Trouble::Refused(_))) {
                        self.set_up(true, "");
                    }
                    return answer;
                }
            }
        }
    }

    fn prefer_another_than(&self, silent: usize) {
        // Of several who notice at once, one changes it.
        let _ = self.preferred.compare_exchange(
            silent,
            silent.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    fn set_up(&self, up: bool, reason: &str) {
        let before = self.up.lock().expect("no panic while it is held").replace(up);
        if before == Some(up) {
            return;
        }
        if up {
            tracing::info!("etcd answers");
        } else {
            tracing::warn!(reason, "etcd does not answer");
        }
    }
}

impl Member {
    async fn ask<T, E: Into<Trouble>, Asked>(
        &self,
        question: impl Fn(Client) -> Asked,
    ) -> Result<T, Trouble>
    where
        Asked: Future<Output = Result<T, E>>,
    {
        // Who has no name cannot introduce itself.
        let mut introduced = self.user.is_none();
        loop {
            let answer = question(self.client().await?).await.map_err(Into::into);
            if !matches!(answer, Err(Trouble::Stranger(_))) {
                return answer;
            }
            // It does not know us any more: its users have changed, or a password. Nothing was done, so we say
            // who we are, and ask again: else a waiter would lose its place.
            self.keep(None);
            if std::mem::replace(&mut introduced, true) {
                return answer;
            }
        }
    }

    async fn client(&self) -> Result<Client, Trouble> {
        if let Some(client) = &*self.client.lock().expect("no panic while it is held") {
            return Ok(client.clone());
        }
        let client = match &self.user {
            None => Client::connect([&self.url], Some(self.options.clone())).await?,
            Some(user) => {
                let password = user.password.now()?;
                let options = self.options.clone().with_user(&user.name, password);
                match Client::connect([&self.url], Some(options)).await {
                    // Nobody has to say who they are here. As etcd's own clients do.
                    Err(Error::GRpcStatus(status))
                        if status.message().contains("authentication is not enabled") =>
                    {
                        Client::connect([&self.url], Some(self.options.clone())).await?
                    }
                    connected => connected?,
                }
            }
        };
        self.keep(Some(client.clone()));
        Ok(client)
    }

    fn keep(&self, client: Option<Client>) {
        *self.client.lock().expect("no panic while it is held") = client;
    }
}
