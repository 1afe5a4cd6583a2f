//! The lock table in Postgres. Each change of a queue is one call of a function in the database
//! (`migrations/postgres/0002_locks.sql`), which takes the queue before it reads: one round trip, and
//! nobody holds a lock over one. They run with the rights of their owner: whoever serves may only read
//! the table.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{
    Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{
    connection::{Connection, maybe_applied, not_applied},
    fitness, notices,
    session::{DEADLINE, PING_DEADLINE, surely, within},
};
use crate::{
    auth::Identity,
    authority::{Holder, LockState},
    store::{
        Page, StoreError, first_key_after_prefix,
        lock_table::{
            Changed, Entered, Entry, LockTable, Place, from_millis, other_authority, stored_key,
            stored_token, to_millis, waiting_lease,
        },
    },
    token::{Key, Token},
};

/// A database that has been in use for long has many marks to look through, once.
const ADOPTION_DEADLINE: Duration = Duration::from_mins(10);

const ENTER: &str = "SELECT * FROM fencepost.enter_queue($1, $2, $3, $4, $5, $6)";
const ENTER_AS: &str = "SELECT * FROM fencepost.enter_queue_as($1, $2, $3, $4, $5, $6, $7)";
const LOOK: &str = "SELECT * FROM fencepost.look_at_queue($1, $2, $3)";
const LEAVE: &str = "SELECT * FROM fencepost.leave_queue($1, $2)";
const RENEW: &str = "SELECT * FROM fencepost.renew_lock($1, $2)";
const RELEASE: &str = "SELECT * FROM fencepost.release_lock($1, $2)";
const ADOPT: &str = "SELECT fencepost.adopt_tokens($1)";

/// $1 name.
const INSPECT: &str = "
SELECT name, token, owner, identity, count(*) OVER () AS live,
       least(ttl_ms, fencepost.ms_between(clock_timestamp(), expires_at)) AS remaining
FROM fencepost.locks WHERE name = $1 AND expires_at > clock_timestamp() ORDER BY token LIMIT 1";

/// $1 after, $2 prefix, $3 end of the prefix or null, $4 limit.
const LIST: &str = "
SELECT DISTINCT ON (name) name, token, owner,
       least(ttl_ms, fencepost.ms_between(clock_timestamp(), expires_at)) AS remaining
FROM fencepost.locks
WHERE name > $1 AND name >= $2 AND ($3 IS NULL OR name < $3) AND expires_at > clock_timestamp()
ORDER BY name, token LIMIT $4";

/// $1 leases.
const FIRST_AMONG: &str = "
SELECT own.lease FROM fencepost.locks AS own
WHERE own.lease = ANY ($1) AND NOT EXISTS (
    SELECT FROM fencepost.locks AS other
    WHERE other.name = own.name AND other.token < own.token AND other.expires_at > clock_timestamp())";

const SWEEP: &str = "SELECT fencepost.sweep_locks()";

/// NULL where the store belongs to another authority: then others issue tokens, and these say nothing.
const NEWEST: &str = "
SELECT CASE WHEN NOT EXISTS (SELECT FROM fencepost.owning_authority WHERE kind <> 'store')
       THEN CASE WHEN is_called THEN last_value ELSE 0 END END AS newest
FROM fencepost.tokens";

type Statement = Query<'static, Postgres, PgArguments>;

pub struct PostgresLockTable {
    connection: Connection,
}

impl PostgresLockTable {
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// What changes a queue, or a sequence: one row.
    async fn call(&mut self, deadline: Duration, call: Statement) -> Result<PgRow, StoreError> {
        let calling = within(deadline, async {
            self.connection.begin_if_pooled().await?;
            let keep = self.connection.keeps_statements();
            let called =
                call.persistent(keep).fetch_one(self.connection.raw()).await.map_err(maybe_applied);
            self.connection.end_if_pooled(&called).await?;
            called
        });
        let (called, warned) = notices::listening(calling).await;
        let called = self.connection.unless_only_here(called, warned).await;
        self.connection.unknown_if_deposed(called)
    }

    async fn ask(&mut self, question: Statement) -> Result<Vec<PgRow>, StoreError> {
        let asked = within(DEADLINE, async {
            self.connection.begin_if_pooled().await?;
            let keep = self.connection.keeps_statements();
            let rows = question
                .persistent(keep)
                .fetch_all(self.connection.raw())
                .await
                .map_err(not_applied);
            self.connection.end_if_pooled(&rows).await?;
            rows
        });
        let answer = asked.await.map_err(surely);
        self.connection.unless_deposed(answer)
    }
}

#[async_trait]
impl LockTable for PostgresLockTable {
    async fn adopt(&mut self, known: i64) -> Result<(), StoreError> {
        self.call(ADOPTION_DEADLINE, sqlx::query(ADOPT).bind(known)).await?;
        Ok(())
    }

    async fn enter(&mut self, entry: &Entry) -> Result<Changed<Entered>, StoreError> {
        let lease = waiting_lease(entry.ttl);
        let statement = if entry.identity.is_some() { ENTER_AS } else { ENTER };
        let mut call = sqlx::query(statement)
            .bind(entry.name.to_string())
            .bind(entry.lease.clone())
            .bind(entry.owner.clone())
            .bind(to_millis(entry.ttl))
            .bind(to_millis(lease))
            .bind(entry.stays);
        if let Some(identity) = &entry.identity {
            call = call.bind(identity.to_string());
        }
        let row = self.call(DEADLINE, call).await?;
        let outcome = match (get::<Option<i64>>(&row, "issued")?, first(&row, &entry.name)?) {
            (Some(token), _) => {
                Entered::In { token: stored_token(token)?, place: place(&row, lease)? }
            }
            (None, Some(holder)) => Entered::TurnedAway { holder },
            (None, None) => return Err(StoreError::unavailable("neither entered nor turned away")),
        };
        changed(&row, outcome)
    }

    async fn look(
        &mut self,
        name: &Key,
        token: Token,
    ) -> Result<Changed<Option<Place>>, StoreError> {
        let call = sqlx::query(LOOK)
            .bind(name.to_string())
            .bind(token.get())
            .bind(to_millis(waiting_lease(Duration::MAX)));
        let row = self.call(DEADLINE, call).await?;
        let outcome = match get::<Option<i64>>(&row, "own_ttl_ms")? {
            Some(ttl) => Some(place(&row, waiting_lease(from_millis(ttl)))?),
            None => None,
        };
        changed(&row, outcome)
    }

    async fn leave(
        &mut self,
        name: &Key,
        lease: &str,
    ) -> Result<Changed<Option<Holder>>, StoreError> {
        let call = sqlx::query(LEAVE).bind(name.to_string()).bind(lease.to_owned());
        let row = self.call(DEADLINE, call).await?;
        changed(&row, first(&row, name)?)
    }

    async fn renew(
        &mut self,
        name: &Key,
        token: Token,
    ) -> Result<Changed<Option<Duration>>, StoreError> {
        let call = sqlx::query(RENEW).bind(name.to_string()).bind(token.get());
        let row = self.call(DEADLINE, call).await?;
        changed(&row, get::<Option<i64>>(&row, "own_ttl_ms")?.map(from_millis))
    }

    async fn release(&mut self, name: &Key, token: Token) -> Result<Changed<bool>, StoreError> {
        let call = sqlx::query(RELEASE).bind(name.to_string()).bind(token.get());
        let row = self.call(DEADLINE, call).await?;
        changed(&row, get(&row, "released")?)
    }

    async fn inspect(&mut self, name: &Key) -> Result<LockState, StoreError> {
        let rows = self.ask(sqlx::query(INSPECT).bind(name.to_string())).await?;
        let Some(row) = rows.first() else { return Ok(LockState::default()) };
        let live: i64 = get(row, "live")?;
        let identity: Option<&str> = get(row, "identity")?;
        Ok(LockState {
            holder: Some(holder(row)?),
            granted_to: identity.and_then(Identity::checked),
            waiters: live.unsigned_abs() - 1,
        })
    }

    async fn list(&mut self, page: &Page) -> Result<Vec<Holder>, StoreError> {
        let question = sqlx::query(LIST)
            .bind(page.after.clone())
            .bind(page.prefix.clone())
            .bind(first_key_after_prefix(&page.prefix))
            .bind(i64::from(page.limit));
        self.ask(question).await?.iter().map(holder).collect()
    }

    async fn first_among(&mut self, leases: &[String]) -> Result<Vec<String>, StoreError> {
        let rows = self.ask(sqlx::query(FIRST_AMONG).bind(leases.to_vec())).await?;
        rows.iter().map(|row| get(row, "lease")).collect()
    }

    async fn sweep(&mut self) -> Result<(), StoreError> {
        self.ask(sqlx::query(SWEEP)).await?;
        Ok(())
    }

    async fn newest(&mut self) -> Result<i64, StoreError> {
        let rows = self.ask(sqlx::query(NEWEST)).await?;
        let row = rows.first().ok_or_else(|| StoreError::unavailable("no sequence"))?;
        get::<Option<i64>>(row, "newest")?.ok_or_else(other_authority)
    }

    async fn ping(&mut self) -> Result<(), StoreError> {
        let alive =
            within(PING_DEADLINE, fitness::ping(&mut self.connection)).await.map_err(surely);
        self.connection.unless_deposed(alive)
    }

    fn is_deposed(&self) -> bool {
        self.connection.is_deposed()
    }
}

/// Postgres tells those who watch by itself.
fn changed<T>(row: &PgRow, outcome: T) -> Result<Changed<T>, StoreError> {
    Ok(Changed { outcome, next: get(row, "next_lease")?, events: Vec::new() })
}

fn place(row: &PgRow, lease: Duration) -> Result<Place, StoreError> {
    if get(row, "holds")? {
        return Ok(Place::Holds);
    }
    Ok(Place::Waits { lease, ahead: from_millis(get(row, "ahead_ms")?) })
}

fn first(row: &PgRow, name: &Key) -> Result<Option<Holder>, StoreError> {
    let Some(token) = get::<Option<i64>>(row, "first_token")? else { return Ok(None) };
    Ok(Some(Holder {
        name: name.clone(),
        token: stored_token(token)?,
        owner: get(row, "first_owner")?,
        remaining: from_millis(get(row, "first_ms")?),
    }))
}

fn holder(row: &PgRow) -> Result<Holder, StoreError> {
    Ok(Holder {
        name: stored_key(get(row, "name")?)?,
        token: stored_token(get(row, "token")?)?,
        owner: get(row, "owner")?,
        remaining: from_millis(get(row, "remaining")?),
    })
}

/// A row that cannot be read has been committed all the same.
fn get<'r, T>(row: &'r PgRow, column: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    row.try_get(column).map_err(StoreError::unknown)
}
