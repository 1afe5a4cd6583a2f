//! Many plain writes, one statement: the fence as a condition on each row of a join.
//!
//! As for a single write, `UPDATE … WHERE` waits for a locked row and judges its newest version,
//! and a refused write costs neither a lock nor a transaction id: a zombie cannot throttle the live
//! holder. (`INSERT … ON CONFLICT DO UPDATE` alone would do both.) Rows that are not there are
//! inserted by a statement of their own, which yields to whoever inserted first.

use sqlx::{Postgres, postgres::PgArguments, query::Query};

use super::{
    batch::Batch, connection::maybe_applied, plan::Run, rows::Columns, session::PostgresSession,
};
use crate::{store::StoreError, write::Value};

/// $1 keys in byte order, then one array for each column: $2 tokens, $3 seqs or 0, $4 digests,
/// $5 values or null to delete, $6 content types, $7 how many writes the row stands for. Of $3, $4 and
/// $7 each is null where no write needs it, and then so are its elements.
///
/// Unnested side by side in a select list, they are handed on row by row. In the FROM clause Postgres
/// would first put each array into a table of its own, and the statement take a sixth longer.
macro_rules! runs {
    () => {
        "(SELECT unnest($1::text[]) AS key, unnest($2::bigint[]) AS token,
                 unnest($3::bigint[]) AS some_seq, unnest($4::bytea[]) AS digest,
                 unnest($5::bytea[]) AS value, unnest($6::text[]) AS content_type,
                 unnest($7::bigint[]) AS some_times) AS n"
    };
}

/// `created` is about the first of a run. It means something to a later replay only where there is
/// a digest, and such a run has one write.
const UPDATE_RUNS: &str = concat!(
    "
UPDATE fencepost.resources AS r SET
    token = n.token, seq = coalesce(n.some_seq, 0), digest = n.digest, value = n.value,
    content_type = n.content_type, touched_at = now(),
    version = r.version + CASE WHEN n.value IS NULL AND r.value IS NULL THEN 0
                               ELSE coalesce(n.some_times, 1) END,
    created = n.value IS NOT NULL AND r.value IS NULL
FROM ",
    runs!(),
    "
WHERE r.key = n.key
  AND n.token >= (SELECT token FROM fencepost.floor)
  AND (r.token < n.token OR (r.token = n.token
       AND CASE WHEN n.some_seq > 0 THEN r.seq < n.some_seq ELSE r.seq = 0 END))
RETURNING r.key, r.version, r.created"
);

/// The same for what most batches are: puts without a seq, each of another key. It takes Postgres a
/// twelfth less time, for what these do not need.
const UPDATE_PUTS: &str = "
UPDATE fencepost.resources AS r SET
    token = n.token, seq = 0, digest = NULL, value = n.value, content_type = n.content_type,
    touched_at = now(), version = r.version + 1, created = r.value IS NULL
FROM (SELECT unnest($1::text[]) AS key, unnest($2::bigint[]) AS token,
             unnest($3::bytea[]) AS value, unnest($4::text[]) AS content_type) AS n
WHERE r.key = n.key
  AND n.token >= (SELECT token FROM fencepost.floor)
  AND (r.token < n.token OR (r.token = n.token AND r.seq = 0))
RETURNING r.key, r.version, r.created";

/// What it does not return was there after all, or is below the floor.
const INSERT_RUNS: &str = concat!(
    "
INSERT INTO fencepost.resources AS r
    (key, token, seq, digest, value, content_type, version, created)
SELECT n.key, n.token, coalesce(n.some_seq, 0), n.digest, n.value, n.content_type,
       CASE WHEN n.value IS NULL THEN 0 ELSE coalesce(n.some_times, 1) END, n.value IS NOT NULL
FROM ",
    runs!(),
    "
WHERE n.token >= (SELECT token FROM fencepost.floor)
ORDER BY n.key COLLATE \"C\"
ON CONFLICT (key) DO NOTHING
RETURNING r.key, r.version, r.created"
);

impl PostgresSession {
    /// Answers the units of every run that was written.
    pub(super) async fn update_runs(
        &mut self,
        batch: &mut Batch<'_>,
        runs: &[Run<'_>],
    ) -> Result<(), StoreError> {
        let bound = if runs.iter().all(Run::is_one_plain_put) {
            bind_puts(runs)
        } else {
            bind(UPDATE_RUNS, runs)
        };
        self.write_runs(batch, bound, runs).await
    }

    /// The same, for rows that are not there.
    pub(super) async fn insert_runs(
        &mut self,
        batch: &mut Batch<'_>,
        runs: &[Run<'_>],
    ) -> Result<(), StoreError> {
        self.write_runs(batch, bind(INSERT_RUNS, runs), runs).await
    }

    async fn write_runs(
        &mut self,
        batch: &mut Batch<'_>,
        statement: Query<'_, Postgres, PgArguments>,
        runs: &[Run<'_>],
    ) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
        self.connection.begin_if_pooled().await?;
        batch.depart(runs.iter().flat_map(|run| run.places.iter().copied()));
        let written = statement
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(maybe_applied);
        self.connection.end_if_pooled(&written).await?;
        let written = written?;
        for row in Columns::of(&written) {
            // They come in any order; their columns in that of RETURNING.
            let key: &str = row.get(0).map_err(maybe_applied)?;
            let place = runs.binary_search_by(|run| run.key().as_str().cmp(key));
            let place = place.map_err(|_| {
                StoreError::Unknown("Postgres wrote a row that it was not given".into())
            })?;
            let version = row.get(1).map_err(maybe_applied)?;
            let created = row.get(2).map_err(maybe_applied)?;
            for (place, settled) in runs[place].accepted(version, created) {
                batch.answer(place, Ok(settled));
            }
        }
        batch.landed();
        Ok(())
    }
}

fn bind_puts<'q>(runs: &'q [Run<'_>]) -> Query<'q, Postgres, PgArguments> {
    let values = || runs.iter().map(Run::value);
    sqlx::query(UPDATE_PUTS)
        .bind(runs.iter().map(|run| run.key().as_str()).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.mark().token).collect::<Vec<_>>())
        .bind(values().map(|value| value.map(|value| &value.body[..])).collect::<Vec<_>>())
        .bind(values().map(|value| value.map(|it| it.content_type.as_str())).collect::<Vec<_>>())
}

fn bind<'q>(statement: &'static str, runs: &'q [Run<'_>]) -> Query<'q, Postgres, PgArguments> {
    let values: Vec<Option<&Value>> = runs.iter().map(Run::value).collect();
    let types = values.iter().map(|value| value.map(|value| value.content_type.as_str()));
    let digests = runs.iter().map(|run| run.digest().map(Vec::from));
    sqlx::query(statement)
        .bind(runs.iter().map(|run| run.key().as_str()).collect::<Vec<_>>())
        .bind(runs.iter().map(|run| run.mark().token).collect::<Vec<_>>())
        .bind(unless_all(&0, runs.iter().map(|run| run.mark().seq)))
        .bind(unless_all(&None, digests))
        .bind(values.iter().map(|value| value.map(|value| &value.body[..])).collect::<Vec<_>>())
        .bind(types.collect::<Vec<_>>())
        .bind(unless_all(&1, runs.iter().map(Run::times)))
}

/// A column, unless it has the usual value in every row.
fn unless_all<T: PartialEq>(usual: &T, column: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let column: Vec<T> = column.collect();
    column.iter().any(|value| value != usual).then_some(column)
}
