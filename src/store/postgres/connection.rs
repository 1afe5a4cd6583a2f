//! A connection on which every setting that safety relies on is pinned, and what its errors mean.
//!
//! On a direct connection the settings are sent at start-up and last for the session. A transaction
//! pooler (pgbouncer) refuses or forgets them, since it lends out a server connection for one
//! transaction at a time. That is noticed, and then every statement runs in a transaction that sets
//! them again, and no prepared statement is expected to outlive it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, PgConnection,
    postgres::{PgConnectOptions, PgDatabaseError, PgListener, PgPoolOptions, PgRow, PgSeverity},
};

use super::{
    notices,
    server_identity::{KnownServers, OpenedOn, ServerIdentity, deposed, unknown_since_deposed},
    session::DEADLINE,
    succession::{IDENTIFY, identified},
};
use crate::{
    settings::read_secret,
    store::{DiskTrouble, Lineage, StoreError, text_of},
};

/// How long Postgres may take to accept a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// How long a session that has rested waits at most to learn which server a new connection reaches. After
/// that it is used, and the look that follows every use (`watch_for_takeover`) is not cut short.
const LOOK_DEADLINE: Duration = Duration::from_secs(1);

/// Each with its reason:
/// - one statement under READ COMMITTED waits for a locked row and then judges its newest version;
///   stricter levels would fail instead, and a database's default may be one of them;
/// - a row that stays locked must not keep a writer for ever;
/// - a fencepost that freezes inside a transaction must not keep its rows locked;
/// - a statement whose client is gone must not commit later;
/// - a peer that vanished without a word must be noticed;
/// - a warning must be sent, whatever the role's own settings: that is how a cancelled wait for a standby is known;
/// - and a name of our own, which nobody else sets, tells whether they have all arrived.
const PINNED: [(&str, &str); 9] = [
    // Nothing of ours goes by its short name, and nobody's function in `public` is taken for another.
    ("search_path", "pg_catalog,pg_temp"),
    ("client_min_messages", "warning"),
    ("default_transaction_isolation", "read committed"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("client_connection_check_interval", "2s"),
    ("tcp_keepalives_idle", "30"),
    ("tcp_keepalives_interval", "10"),
    ("tcp_keepalives_count", "3"),
    ("fencepost.pinned", "yes"),
];

/// How long a connection waits for somebody else's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as a client is asked to wait.
    Long,
    /// Longer than any fencepost needs between a lock and its commit, and no longer: others wait.
    Short,
}

/// When Postgres plans a prepared statement.
#[derive(Clone, Copy, Debug)]
enum Plans {
    /// The first time. How many keys a batch has makes no difference to how they are found.
    Once,
    /// As often as it thinks that the values matter. Those of a listing do: its prefix bounds the scan.
    ByValues,
}

/// Batches take their keys in byte order, which keeps two of them from waiting for each other. So a
/// join must go by that order, however small the table is. What is switched off counts as very
/// expensive where it cannot be avoided (the floor has no index), and that must not start a compiler.
const KEY_ORDER: [(&str, &str); 6] = [
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
    // It would take rows in the order in which they lie, and a tenth longer. Where a table is new, nobody has counted
    // its rows yet, and Postgres would choose it.
    ("enable_bitmapscan", "off"),
    // Rows that are beside the floor, of which there is one, are looked at once: no need to keep them.
    ("enable_material", "off"),
    ("jit", "off"),
];

/// Left to itself, Postgres would go on planning small batches, each for longer than it takes to run.
const ONE_PLAN: [(&str, &str); 1] = [("plan_cache_mode", "force_generic_plan")];

const ARE_PINNED: &str = "SELECT current_setting('fencepost.pinned', true) IS NOT NULL AS pinned";

/// An answer must survive a crash, of a standby too where there is one. Said even where it is so
/// already: a reload of the server's settings must not change it under us. What is stronger than
/// `on` stays as the operator chose it. And a wait for a standby that is cancelled must be heard of.
const PIN_COMMIT: &str = "SELECT set_config('synchronous_commit', \
     CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' \
     END, false), set_config('client_min_messages', 'warning', false)";

/// The same settings, for one transaction. What is left is how long it waits for a lock.
const BEGIN_POOLED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; \
     SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_material = off; SET LOCAL jit = off; \
     SET LOCAL search_path = pg_catalog, pg_temp; \
     SET LOCAL idle_in_transaction_session_timeout = '10s'; \
     SET LOCAL client_connection_check_interval = '2s'; \
     SET LOCAL client_min_messages = warning; \
     SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
     WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";

const HAS_STANDBYS: &str =
    "SELECT current_setting('synchronous_standby_names') <> '' AS has_standbys";

const COMMIT_AFTER_STANDBYS: &str = "SELECT fencepost.commit_after_standbys()";

/// For a question that waits for nothing.
const STANDBYS_DEADLINE: Duration = Duration::from_secs(5);

pub const READ_ONLY: &str =
    "this Postgres only reads (a standby, or default_transaction_read_only); connect to a primary";

/// Opens connections to one database, and remembers whether a pooler stands in front of it, and which
/// servers they have reached.
pub struct Connector {
    options: PgConnectOptions,
    password_file: Option<PathBuf>,
    pooled: AtomicBool,
    servers: Arc<KnownServers>,
    /// Whether the last look failed. Only the first failure in a row is logged.
    look_fails: AtomicBool,
}

pub struct Connection {
    inner: PgConnection,
    pooled: bool,
    patience: Patience,
    /// The server that it was opened on. Behind a pooler every transaction must still reach it.
    server: Option<Server>,
}

struct Server {
    identity: ServerIdentity,
    lineage: Lineage,
    opened_on: OpenedOn,
}

impl Patience {
    /// For a statement that lets itself be told how long to wait.
    pub fn lock_timeout(self) -> &'static str {
        match self {
            Self::Long => "5s",
            Self::Short => "100ms",
        }
    }
}

impl Connector {
    pub fn new(options: PgConnectOptions) -> Self {
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("fencepost"),
        };
        Self {
            options,
            password_file: None,
            pooled: AtomicBool::new(false),
            servers: Arc::default(),
            look_fails: AtomicBool::new(false),
        }
    }

    pub fn with_password_file(self, password_file: Option<PathBuf>) -> Self {
        Self { password_file, ..self }
    }

    fn options(&self) -> Result<PgConnectOptions, StoreError> {
        let options = self.options.clone();
        let Some(path) = &self.password_file else { return Ok(options) };
        let password = read_secret(path)
            .map_err(|error| StoreError::Unavailable(format!("--store-password-file {error}")))?;
        Ok(options.password(&password))
    }

    /// The address and the password, and none of the pinned settings.
    pub fn plain_options(&self) -> Result<PgConnectOptions, StoreError> {
        self.options()
    }

    pub async fn connect(&self) -> Result<Connection, StoreError> {
        self.connect_with(Patience::Long, Plans::ByValues).await
    }

    /// For questions about a database that may have no schema yet. Nothing is served by it.
    pub async fn connect_unidentified(&self) -> Result<Connection, StoreError> {
        in_time(self.connect_unidentified_now()).await
    }

    async fn connect_unidentified_now(&self) -> Result<Connection, StoreError> {
        self.connect_either_way(Patience::Long, Plans::ByValues).await
    }

    /// The same, unless this process has used the database before: then the server must be one that it would use.
    pub async fn connect_to_ask(&self) -> Result<Connection, StoreError> {
        if self.servers.are_known() {
            self.connect().await
        } else {
            self.connect_unidentified().await
        }
    }

    /// Why a server that a new connection reaches would not be used. Another one may have taken over from it.
    pub async fn why_refused(&self) -> Option<StoreError> {
        let identity = in_time(async {
            let mut connection = self.connect_unidentified_now().await?;
            Ok(connection.ask_identity().await?.0)
        });
        self.servers.why_refused(&identity.await.ok()?)
    }

    pub fn servers(&self) -> &KnownServers {
        &self.servers
    }

    /// Finds out which server a new connection reaches. If another has taken over, that is enough for every
    /// session on the old one to be given up.
    pub async fn look(&self) {
        let look = async {
            let looked = self.connect().await;
            let failed_before = self.look_fails.swap(looked.is_err(), Ordering::Relaxed);
            match looked {
                Ok(connection) => connection.close().await,
                Err(error) if !failed_before => {
                    tracing::warn!(%error, "cannot tell which database server new connections reach");
                }
                Err(_) => {}
            }
        };
        self.servers.unless_just_looked(Box::pin(look)).await;
    }

    /// The same, for a caller that has a request to serve.
    pub async fn look_in_time(&self) {
        if tokio::time::timeout(LOOK_DEADLINE, self.look()).await.is_err() {
            tracing::info!("could not tell in time which database server new connections reach");
        }
    }

    /// For what is asked of keys that come together, and for nothing else.
    pub async fn connect_for_batches(&self, patience: Patience) -> Result<Connection, StoreError> {
        self.connect_with(patience, Plans::Once).await
    }

    async fn connect_with(
        &self,
        patience: Patience,
        plans: Plans,
    ) -> Result<Connection, StoreError> {
        in_time(async {
            let mut connection = self.connect_either_way(patience, plans).await?;
            connection.identify(&self.servers).await?;
            Ok(connection)
        })
        .await
    }

    async fn connect_either_way(
        &self,
        patience: Patience,
        plans: Plans,
    ) -> Result<Connection, StoreError> {
        if !self.pooled.load(Ordering::Relaxed) {
            if let Some(direct) = self.connect_directly(patience, plans).await? {
                return Ok(direct);
            }
            tracing::info!("a transaction pooler stands in front of Postgres");
            self.pooled.store(true, Ordering::Relaxed);
        }
        let options = self.options()?.extra_float_digits(None).statement_cache_capacity(0);
        let inner = options.connect().await.map_err(refused_connection)?;
        Ok(Connection { inner, pooled: true, patience, server: None })
    }

    /// A connection that can be spoken to at any time. `None` behind a pooler: there it could not.
    pub async fn listen(&self) -> Result<Option<(PgListener, OpenedOn)>, StoreError> {
        in_time(self.listen_directly()).await
    }

    async fn listen_directly(&self) -> Result<Option<(PgListener, OpenedOn)>, StoreError> {
        if self.pooled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // `sqlx` listens only on a connection from a pool: it has one place.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_with(self.pinned(Patience::Long, Plans::ByValues)?)
            .await;
        let pool = pool.map_err(refused_connection)?;
        let mut listener =
            PgListener::connect_with(&pool).await.map_err(StoreError::unavailable)?;
        let pinned: bool = sqlx::query_scalar(ARE_PINNED)
            .fetch_one(&mut listener)
            .await
            .map_err(StoreError::unavailable)?;
        if !pinned {
            return Ok(None);
        }
        let row = sqlx::query(IDENTIFY).fetch_one(&mut listener).await.map_err(not_applied)?;
        let (identity, _) = identified(&row)?;
        Ok(Some((listener, self.servers.admit(&identity)?)))
    }

    /// `None` where the settings were refused, or accepted and not applied: that is a pooler.
    async fn connect_directly(
        &self,
        patience: Patience,
        plans: Plans,
    ) -> Result<Option<Connection>, StoreError> {
        let mut inner = match self.pinned(patience, plans)?.connect().await {
            Ok(inner) => inner,
            Err(error) if refuses_startup_parameters(&error) => return Ok(None),
            Err(error) => return Err(refused_connection(error)),
        };
        let settings = sqlx::raw_sql(ARE_PINNED)
            .fetch_one(&mut inner)
            .await
            .map_err(StoreError::unavailable)?;
        let pinned: bool =
            sqlx::Row::try_get(&settings, "pinned").map_err(StoreError::unavailable)?;
        if !pinned {
            return Ok(None);
        }
        sqlx::raw_sql(PIN_COMMIT).execute(&mut inner).await.map_err(StoreError::unavailable)?;
        Ok(Some(Connection { inner, pooled: false, patience, server: None }))
    }

    fn pinned(&self, patience: Patience, plans: Plans) -> Result<PgConnectOptions, StoreError> {
        let lock_timeout = [("lock_timeout", patience.lock_timeout())];
        let options = self.options()?.options(PINNED).options(KEY_ORDER).options(lock_timeout);
        Ok(match plans {
            Plans::ByValues => options,
            Plans::Once => options.options(ONE_PLAN),
        })
    }
}

impl Connection {
    pub fn raw(&mut self) -> &mut PgConnection {
        &mut self.inner
    }

    /// Gives back what its buffers have grown to.
    pub fn shrink(&mut self) {
        sqlx::Connection::shrink_buffers(&mut self.inner);
    }

    /// Takes leave of the server. A connection that is merely dropped ends too, but without a word.
    async fn close(self) {
        let _ = sqlx::Connection::close(self.inner).await;
    }

    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Whether a prepared statement will still be there next time.
    pub fn keeps_statements(&self) -> bool {
        !self.pooled
    }

    pub fn patience(&self) -> Patience {
        self.patience
    }

    pub async fn begin(&mut self) -> Result<(), StoreError> {
        self.check_server()?;
        // If this fails, the connection may be left inside a transaction: it is given up.
        sqlx::raw_sql(AssertSqlSafe(self.beginning()))
            .execute(&mut self.inner)
            .await
            .map_err(StoreError::unavailable)?;
        Ok(())
    }

    /// Begins, and runs `first` without another round trip; what its last statement says. If
    /// `first` fails, there is a transaction to roll back.
    pub async fn begin_with(&mut self, first: &'static str) -> Result<Option<PgRow>, StoreError> {
        self.check_server()?;
        let mut rows = sqlx::raw_sql(AssertSqlSafe(format!("{}; {first}", self.beginning())))
            .fetch_all(&mut self.inner)
            .await
            .map_err(not_applied)?;
        Ok(rows.pop())
    }

    fn beginning(&self) -> String {
        if !self.pooled {
            return "BEGIN".into();
        }
        let beginning =
            format!("{BEGIN_POOLED}; SET LOCAL lock_timeout = '{}'", self.patience.lock_timeout());
        // A pooler may lead to another server any time. A direct connection ends with its server.
        match &self.server {
            Some(Server { identity, .. }) => {
                let here = identity.as_str();
                format!("{beginning}; SELECT fencepost.expect_incarnation('{here}')")
            }
            None => beginning,
        }
    }

    /// Behind a pooler even a single statement needs a transaction, to have its settings.
    pub async fn begin_if_pooled(&mut self) -> Result<(), StoreError> {
        if self.pooled { self.begin().await } else { self.check_server() }
    }

    /// Asks the server who it is, and enters it as one that this process has reached.
    async fn identify(&mut self, servers: &Arc<KnownServers>) -> Result<(), StoreError> {
        let (identity, lineage) = self.ask_identity().await?;
        let opened_on = servers.admit(&identity)?;
        self.server = Some(Server { identity, lineage, opened_on });
        Ok(())
    }

    async fn ask_identity(&mut self) -> Result<(ServerIdentity, Lineage), StoreError> {
        self.begin_if_pooled().await?;
        let row = sqlx::raw_sql(IDENTIFY).fetch_one(&mut self.inner).await.map_err(not_applied);
        self.end_if_pooled(&row).await?;
        identified(&row?)
    }

    /// Who the server is, and whether it was entered as the one that is written to.
    pub async fn lineage(&mut self) -> Result<Lineage, StoreError> {
        if let Some(Server { lineage, .. }) = &self.server
            && lineage.entered
        {
            self.check_server()?;
            return Ok(lineage.clone());
        }
        let (identity, lineage) = self.ask_identity().await?;
        match &self.server {
            Some(server) if server.identity == identity => self.unless_deposed(Ok(lineage)),
            _ => Err(deposed()),
        }
    }

    pub fn is_deposed(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.opened_on.is_deposed())
    }

    /// Before anything is sent: an error if another server has taken over.
    fn check_server(&self) -> Result<(), StoreError> {
        self.server.as_ref().map_or(Ok(()), |server| server.opened_on.check())
    }

    /// For an answer that changed nothing: from a server that has been left, it may be old.
    pub fn unless_deposed<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.is_ok() && self.is_deposed() { Err(deposed()) } else { answer }
    }

    /// For a change: made on a server that has been left, it may be lost.
    pub fn unknown_if_deposed<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.is_ok() && self.is_deposed() { Err(unknown_since_deposed()) } else { answer }
    }

    /// For a change that Postgres reports as committed, having sent a warning meanwhile (`notices.rs`). Where commits
    /// wait for a standby, that wait may have been cancelled: the commit is on this server, and perhaps nowhere else.
    pub async fn unless_only_here<T>(
        &mut self,
        answer: Result<T, StoreError>,
        warned: bool,
    ) -> Result<T, StoreError> {
        if answer.is_ok() && warned && self.may_wait_for_standbys().await {
            return Err(only_here());
        }
        answer
    }

    /// Whether commits wait for a standby, or that cannot be found out.
    pub async fn may_wait_for_standbys(&mut self) -> bool {
        let asked = async {
            self.begin_if_pooled().await?;
            let row =
                sqlx::raw_sql(HAS_STANDBYS).fetch_one(&mut self.inner).await.map_err(not_applied);
            self.end_if_pooled(&row).await?;
            sqlx::Row::try_get::<bool, _>(&row?, "has_standbys").map_err(not_applied)
        };
        !matches!(tokio::time::timeout(STANDBYS_DEADLINE, asked).await, Ok(Ok(false)))
    }

    /// Where commits wait for a standby, waits until it has everything that this server has committed so far, by
    /// whomever. For an answer that rests on what another session has committed, and need not have waited for.
    pub async fn wait_for_standbys(&mut self) -> Result<(), StoreError> {
        let (waited, warned) = notices::listening(self.commit_after_standbys()).await;
        self.unless_only_here(waited, warned).await
    }

    async fn commit_after_standbys(&mut self) -> Result<(), StoreError> {
        self.begin_if_pooled().await?;
        let committed = sqlx::raw_sql(COMMIT_AFTER_STANDBYS)
            .execute(&mut self.inner)
            .await
            .map_err(maybe_applied)
            .map(drop);
        self.end_if_pooled(&committed).await?;
        committed
    }

    pub async fn commit(&mut self) -> Result<(), StoreError> {
        // Without a COMMIT, what was done so far is undone with the connection.
        self.check_server()?;
        sqlx::raw_sql("COMMIT").execute(&mut self.inner).await.map_err(maybe_applied)?;
        Ok(())
    }

    /// The same, for a command. A commit that waits for a standby waits for as long as that is down.
    pub async fn commit_in_time(&mut self) -> Result<(), StoreError> {
        let late = "Postgres did not answer the COMMIT in time; a synchronous standby may be down";
        tokio::time::timeout(DEADLINE, self.commit())
            .await
            .unwrap_or_else(|_| Err(StoreError::Unknown(late.into())))
    }

    /// Ends what `begin_if_pooled` began. A transaction that failed is rolled back, or the
    /// connection would be of no further use.
    pub async fn end_if_pooled<T>(
        &mut self,
        work: &Result<T, StoreError>,
    ) -> Result<(), StoreError> {
        match work {
            _ if !self.pooled => Ok(()),
            Ok(_) => self.commit().await,
            Err(error) if error.ends_the_session() => Ok(()),
            Err(_) => self.rollback().await,
        }
    }

    pub async fn rollback(&mut self) -> Result<(), StoreError> {
        sqlx::raw_sql("ROLLBACK")
            .execute(&mut self.inner)
            .await
            .map_err(StoreError::unavailable)?;
        Ok(())
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(CONNECT_DEADLINE, work)
        .await
        .map_err(|_| StoreError::Unavailable("Postgres did not answer in time".into()))?
}

/// The meaning of an error before anything could have been committed.
pub fn not_applied(error: sqlx::Error) -> StoreError {
    match answer(&error) {
        Some(answer) if !ends_the_connection(answer) => match answer.code() {
            "55P03" => StoreError::Busy,
            "40001" | "40P01" => StoreError::Conflict,
            "53100" => StoreError::Disk(DiskTrouble::Full, text_of(&error)),
            // `fencepost.expect_authority` raises it.
            "FP001" => StoreError::OtherAuthority(answer.message().to_owned()),
            // A primary that was demoted. Another connection may lead to the new one.
            "25006" => StoreError::Unfit(READ_ONLY.into()),
            // A prepared statement that no longer fits the schema: a new connection has new ones.
            "0A000" | "26000" => StoreError::Unfit(text_of(&error)),
            _ => StoreError::Failed(text_of(&error)),
        },
        _ => StoreError::unavailable(error),
    }
}

/// The meaning of an error of a statement that commits. Postgres answers with an error only if it
/// has rolled back, unless it was told to end the connection: that can also cut short the wait
/// for a standby, after the commit. And a lost connection proves nothing at all.
pub fn maybe_applied(error: sqlx::Error) -> StoreError {
    match not_applied(error) {
        StoreError::Unavailable(reason) => StoreError::Unknown(reason),
        definite => definite,
    }
}

/// A commit whose wait for a standby was cancelled.
pub fn only_here() -> StoreError {
    StoreError::Unknown("the wait for a standby was cancelled".into())
}

fn refused_connection(error: sqlx::Error) -> StoreError {
    let Some(answer) = answer(&error) else { return StoreError::unavailable(error) };
    let said = answer.message();
    match answer.code() {
        // No such role, password or database, or no right to it: trying again will not help.
        "28000" | "28P01" | "3D000" | "42501" => StoreError::Unfit(format!(
            "Postgres turned us away: {said}; mend the user, password or database in --store"
        )),
        // A pooler that does not even take what the address itself asks for. It has this code for all
        // that it says itself; for a Postgres that is down, too.
        "08P01" if refuses_startup_parameters(&error) => StoreError::Unfit(format!(
            "the pooler in front of Postgres turned us away: {said}; leave `options` out of --store"
        )),
        // A setting that it does not know, or cannot have.
        "42704" | "22023" => StoreError::Unfit(format!(
            "this Postgres is too old, or built without what is needed; 14 is the oldest that \
             will do: {said}"
        )),
        _ => StoreError::unavailable(error),
    }
}

fn refuses_startup_parameters(error: &sqlx::Error) -> bool {
    answer(error).is_some_and(|answer| {
        answer.code() == "08P01" && answer.message().contains("startup parameter")
    })
}

/// Whether Postgres refused it because the role lacks a right. Its text may be in any language.
pub fn is_denied(error: &sqlx::Error) -> bool {
    answer(error).is_some_and(|answer| answer.code() == "42501")
}

/// What Postgres said, if it was Postgres that said it.
fn answer(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

fn ends_the_connection(answer: &PgDatabaseError) -> bool {
    matches!(answer.severity(), PgSeverity::Fatal | PgSeverity::Panic)
        || answer.code().starts_with("08")
}
