//! A primary and a standby, as production has them.

use super::{
    Surroundings,
    chaos_proxy::ChaosProxy,
    elsewhere, eventually,
    postgres::{self, Postgres, execute, fetch},
};

/// A primary, a standby that follows it, and the way to whichever of them serves.
pub struct Pair {
    pub primary: Postgres,
    pub standby: Postgres,
    pub replication: ChaosProxy,
    pub way: ChaosProxy,
    pub url: String,
    pub database: String,
}

impl Pair {
    pub async fn start() -> Self {
        let around = Surroundings { network: elsewhere::network(), ..Surroundings::default() };
        Self::start_in(&around, &["fsync=off"]).await
    }

    /// Both with these settings.
    pub async fn start_in(around: &Surroundings, settings: &[&str]) -> Self {
        let primary = Postgres::start_with(around, settings).await;
        let url = primary.database("").await;
        let replication = ChaosProxy::before(primary.port()).await;
        let standby = Postgres::standby_in(around, replication.port(), settings).await;
        let way = ChaosProxy::before(primary.port()).await;
        let url_by_way = way.reroute(&url, primary.port());
        let database = postgres::name_of(&url).to_owned();
        Self { primary, standby, replication, way, url: url_by_way, database }
    }

    pub async fn synchronously(self) -> Self {
        let url = self.primary.url("postgres");
        execute(&url, "ALTER SYSTEM SET synchronous_standby_names = 'standby'").await;
        execute(&url, "SELECT pg_reload_conf()").await;
        eventually("it is synchronous", || async {
            let sql = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')";
            fetch(&url, sql).await
        })
        .await;
        self
    }

    /// Until the standby has heard of everything so far.
    pub async fn wait_until_replicated(&self) {
        let written: String =
            fetch(&self.primary.url("postgres"), "SELECT pg_current_wal_flush_lsn()::text").await;
        let heard = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn");
        eventually("the standby has caught up", || async {
            fetch(&self.standby.url("postgres"), &heard).await
        })
        .await;
    }

    pub async fn fail_over(&mut self) {
        self.primary.stop("immediate").await;
        self.standby.promote().await;
        self.way.retarget(self.standby.port());
    }

    pub async fn floor(&self) -> i64 {
        let url = self.standby.url(&self.database);
        fetch(&url, "SELECT token FROM fencepost.floor").await
    }

    /// Until a commit of a fencepost waits for the standby, which it cancels.
    pub async fn cancel_a_wait(&self) {
        let url = self.primary.url("postgres");
        eventually("a commit waits for the standby", || async {
            let sql = "SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity
                       WHERE wait_event = 'SyncRep' AND application_name = 'fencepost'";
            fetch(&url, sql).await
        })
        .await;
    }
}
