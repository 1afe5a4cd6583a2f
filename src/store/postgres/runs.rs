//! Many writes and claims, one statement: the fence as a condition on each row of a join.
//!
//! As for a single write, `UPDATE … WHERE` waits for a locked row and judges its newest version,
//! and a refused write costs neither a lock nor a transaction id: a zombie cannot throttle the live
//! holder. (`INSERT … ON CONFLICT DO UPDATE` alone would do both.) Rows that are not there are
//! inserted beside it, in key order as well, by an insert that yields to whoever inserted first.

use sqlx::{Postgres, postgres::PgArguments, query::Query};

use super::{
    batch::Batch,
    connection::maybe_applied,
    guards::{Guards, guard_holds, guards},
    newcomers::Rows,
    plan::{Run, Written},
    rows::{Columns, value_of_parts},
    session::PostgresSession,
};
use crate::{store::StoreError, write::Value};

/// $1 keys in byte order, then one array for each column: $2 tokens, $3 seqs or 0, $4 digests,
/// $5 values or null to delete or to claim, $6 content types, $7 how many writes the row stands for,
/// $8 null for a write, or for a claim, whether the value is wanted back, $9 the version that must be
/// there, below 0 for no value, $10 whether a token without a seq must be above the mark.
/// Of $3, $4 and $7 to $10 each is null where no run needs it, and then so are its elements.
/// Where runs have scopes there are three more: $11 and $12 are those of the guards, $13 which of them is whose.
///
/// Unnested side by side in a select list, they are handed on row by row. In the FROM clause Postgres
/// would first put each array into a table of its own, and the statement take a sixth longer.
macro_rules! runs {
    ($more:expr) => {
        concat!(
            "(SELECT unnest($1::text[]) AS key, unnest($2::bigint[]) AS token,
                 unnest($3::bigint[]) AS some_seq, unnest($4::bytea[]) AS digest,
                 unnest($5::bytea[]) AS value, unnest($6::text[]) AS content_type,
                 unnest($7::bigint[]) AS some_times, unnest($8::boolean[]) AS some_claim,
                 unnest($9::bigint[]) AS some_version, unnest($10::boolean[]) AS some_must_rise",
            $more,
            ")"
        )
    };
}

macro_rules! guarded_runs {
    () => {
        runs!(", unnest($13::integer[]) AS guard")
    };
}

/// `created` is about the first of a run. It means something to a later replay only where there is
/// a digest, and such a run has one write.
macro_rules! update_what_passes {
    ($runs:expr, $guard:expr) => {
        concat!(
            "
UPDATE fencepost.resources AS r SET
    token = n.token, seq = coalesce(n.some_seq, 0), digest = n.digest,
    value = CASE WHEN n.some_claim IS NULL THEN n.value ELSE r.value END,
    content_type = CASE WHEN n.some_claim IS NULL THEN n.content_type ELSE r.content_type END,
    touched_at = now(),
    version = r.version + CASE WHEN n.some_claim IS NOT NULL THEN 0
                               WHEN n.value IS NULL AND r.value IS NULL THEN 0
                               ELSE coalesce(n.some_times, 1) END,
    created = n.value IS NOT NULL AND r.value IS NULL
FROM ",
            $runs,
            "
WHERE r.key = n.key
  AND n.token >= (SELECT token FROM fencepost.floor)
  AND (r.token < n.token OR (r.token = n.token
       AND CASE WHEN n.some_seq > 0 THEN r.seq < n.some_seq
                ELSE r.seq = 0 AND n.some_must_rise IS NOT TRUE END))
  AND CASE WHEN n.some_version IS NULL THEN true
           WHEN n.some_version < 0 THEN r.value IS NULL
           ELSE r.value IS NOT NULL AND r.version = n.some_version END
  AND ",
            $guard,
            "
RETURNING r.key, r.version, r.created, r.value IS NOT NULL AS present,
          CASE WHEN n.some_claim AND octet_length(r.value) <= 65536 THEN r.value END AS value,
          CASE WHEN n.some_claim THEN r.content_type END AS content_type"
        )
    };
}

/// The same, and an insert where the statement's snapshot has no row. What it does not return was there
/// after all, or is below the floor, or was meant for a version.
macro_rules! write_what_passes {
    ($runs:expr, $guard:expr) => {
        concat!(
            "n AS ",
            $runs,
            ", updated AS (",
            update_what_passes!("n", $guard),
            "
), inserted AS (
    INSERT INTO fencepost.resources AS r
        (key, token, seq, digest, value, content_type, version, created)
    SELECT n.key, n.token, coalesce(n.some_seq, 0), n.digest, n.value, n.content_type,
           CASE WHEN n.value IS NULL THEN 0 ELSE coalesce(n.some_times, 1) END, n.value IS NOT NULL
    FROM n
    WHERE n.token >= (SELECT token FROM fencepost.floor)
      AND coalesce(n.some_version, -1) < 0
      AND ",
            $guard,
            "
      AND NOT EXISTS (SELECT FROM fencepost.resources AS there WHERE there.key = n.key)
    ORDER BY n.key COLLATE \"C\"
    ON CONFLICT (key) DO NOTHING
    RETURNING r.key, r.version, r.created, r.value IS NOT NULL AS present
)
SELECT key, version, created, present, value, content_type, false AS is_new FROM updated
UNION ALL SELECT key, version, created, present, NULL, NULL, true FROM inserted"
        )
    };
}

const UPDATE_RUNS: &str = update_what_passes!(concat!(runs!(""), " AS n"), "true");
const WRITE_RUNS: &str = concat!("WITH ", write_what_passes!(runs!(""), "true"));

/// Where runs have scopes.
const UPDATE_GUARDED: &str = concat!(
    "WITH ",
    guards!(),
    update_what_passes!(concat!(guarded_runs!(), " AS n"), guard_holds!())
);
const WRITE_GUARDED: &str =
    concat!("WITH ", guards!(), ", ", write_what_passes!(guarded_runs!(), guard_holds!()));

/// As `UPDATE_RUNS`, for what most batches are: puts without a seq, each of another key. It takes Postgres a
/// twentieth less time, for what these do not need.
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

/// What the rows of a statement tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tells {
    /// `UPDATE_PUTS`
    OfPuts,
    /// `UPDATE_RUNS`, `UPDATE_GUARDED`
    OfRuns,
    /// `WRITE_RUNS`, `WRITE_GUARDED`
    WhichAreNew,
}

impl PostgresSession {
    /// Answers the units of every run that was written. If rows are said to be there, none is inserted.
    pub(super) async fn write_runs(
        &mut self,
        batch: &mut Batch<'_>,
        runs: &[Run<'_>],
        rows: Rows,
    ) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
        let guards = Guards::of(runs);
        let (statement, tells) = match (rows, guards) {
            (Rows::PerhapsNot, None) => (bind(WRITE_RUNS, runs), Tells::WhichAreNew),
            (Rows::PerhapsNot, Some(guards)) => {
                (bind_guarded(WRITE_GUARDED, runs, guards), Tells::WhichAreNew)
            }
            (Rows::There, None) if runs.iter().all(Run::is_one_plain_put) => {
                (bind_puts(runs), Tells::OfPuts)
            }
            (Rows::There, None) => (bind(UPDATE_RUNS, runs), Tells::OfRuns),
            (Rows::There, Some(guards)) => {
                (bind_guarded(UPDATE_GUARDED, runs, guards), Tells::OfRuns)
            }
        };
        self.carry_out(batch, statement, tells, runs).await
    }

    async fn carry_out(
        &mut self,
        batch: &mut Batch<'_>,
        statement: Query<'_, Postgres, PgArguments>,
        tells: Tells,
        runs: &[Run<'_>],
    ) -> Result<(), StoreError> {
        self.connection.begin_if_pooled().await?;
        batch.depart(runs.iter().flat_map(|run| run.places.iter().copied()));
        let rows = statement
            .persistent(self.connection.keeps_statements())
            .fetch_all(self.connection.raw())
            .await
            .map_err(maybe_applied);
        self.connection.end_if_pooled(&rows).await?;
        let rows = rows?;
        let mut any_new = false;
        for row in Columns::of(&rows) {
            // They come in any order; their columns in that of the statement.
            let key: &str = row.get(0).map_err(maybe_applied)?;
            let place = runs.binary_search_by(|run| run.key().as_str().cmp(key));
            let place = place.map_err(|_| {
                StoreError::Unknown("Postgres wrote a row that it was not given".into())
            })?;
            let written = written(row, tells).map_err(maybe_applied)?;
            any_new |= tells == Tells::WhichAreNew && row.get(6).map_err(maybe_applied)?;
            for (place, settled) in runs[place].accepted(written) {
                batch.answer(place, Ok(settled));
            }
        }
        if tells == Tells::WhichAreNew {
            self.newcomers.note(any_new);
        }
        batch.landed();
        if !rows.is_empty() {
            batch.committed();
        }
        Ok(())
    }
}

fn written(row: Columns<'_>, tells: Tells) -> Result<Written, sqlx::Error> {
    let (version, created) = (row.get(1)?, row.get(2)?);
    if tells == Tells::OfPuts {
        return Ok(Written { version, created, present: true, value: None });
    }
    let value = value_of_parts(row.get(4)?, row.get(5)?);
    Ok(Written { version, created, present: row.get(3)?, value })
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
        .bind(unless_all(&None, runs.iter().map(Run::claim)))
        .bind(unless_all(&None, runs.iter().map(Run::expected)))
        .bind(unless_all(&false, runs.iter().map(Run::must_rise)))
}

fn bind_guarded<'q>(
    statement: &'static str,
    runs: &'q [Run<'_>],
    guards: Guards<'q>,
) -> Query<'q, Postgres, PgArguments> {
    bind(statement, runs).bind(guards.scopes).bind(guards.tokens).bind(guards.places)
}

/// A column, unless it has the usual value in every row.
fn unless_all<T: PartialEq>(usual: &T, column: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let column: Vec<T> = column.collect();
    column.iter().any(|value| value != usual).then_some(column)
}
