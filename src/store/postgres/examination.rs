//! A look at a Postgres for `fencepost check`: reads only, and goes on after a bad finding.
//!
//! `fitness.rs` decides whether to serve, and stops at the first reason not to. This one tells an
//! operator everything that it can see.

use std::time::SystemTime;

use sqlx::{Row, postgres::PgRow};

use super::{
    connection::{Connection, Connector, READ_ONLY},
    fitness::{TOO_NEW, is_too_old, unanswered, weakness},
    schema,
};
use crate::{
    finding::{Finding, Subject},
    store::{Plan, Schema, StoreError, clock_finding},
};

const FACTS: &str = "
SELECT current_setting('server_version_num')::int AS version,
       current_setting('server_version') AS version_name,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_read_only')::bool AS read_only,
       current_setting('fsync')::bool AS fsync,
       current_setting('full_page_writes')::bool AS full_pages,
       current_setting('synchronous_commit') AS commit,
       (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') AS default_commit,
       current_setting('synchronous_standby_names') AS synchronous,
       current_setting('client_min_messages') AS messages,
       current_setting('max_connections')::int8
           - current_setting('superuser_reserved_connections')::int8 AS connections,
       extract(epoch FROM clock_timestamp())::float8 AS now";

/// By itself: a service may deny it.
const STANDBYS: &str = "SELECT count(*) AS standbys FROM pg_stat_replication";

/// What the server tells about itself to those who would notice a failover.
const SERVER: &str = "SELECT system IS NOT NULL AS system, timeline IS NOT NULL AS timeline
FROM fencepost.server_here()";

/// As migrations/roles.sql grants them.
const MISSING: &str = "
SELECT needed.object, needed.privilege
FROM (VALUES ('fencepost.resources', 'SELECT'), ('fencepost.resources', 'INSERT'),
             ('fencepost.resources', 'UPDATE'), ('fencepost.floor', 'SELECT'),
             ('fencepost._sqlx_migrations', 'SELECT'), ('fencepost.migrations', 'SELECT'),
             ('fencepost.compatibility', 'SELECT'),
             ('fencepost.authority', 'SELECT'), ('fencepost.authority', 'INSERT'),
             ('fencepost.authority', 'UPDATE'), ('fencepost.locks', 'SELECT'),
             ('fencepost.rejections', 'SELECT'), ('fencepost.rejections', 'INSERT'),
             ('fencepost.tokens', 'SELECT'), ('fencepost.owning_authority', 'SELECT'),
             ('fencepost.claim_authority(text,text,text)', 'EXECUTE'),
             ('fencepost.move_authority(text,text,text,bigint,bigint,bigint)', 'EXECUTE'),
             ('fencepost.enter_queue(text,text,text,bigint,bigint,boolean)', 'EXECUTE'),
             ('fencepost.enter_queue_as(text,text,text,bigint,bigint,boolean,text)', 'EXECUTE'),
             ('fencepost.look_at_queue(text,bigint,bigint)', 'EXECUTE'),
             ('fencepost.leave_queue(text,text)', 'EXECUTE'),
             ('fencepost.renew_lock(text,bigint)', 'EXECUTE'),
             ('fencepost.release_lock(text,bigint)', 'EXECUTE'),
             ('fencepost.adopt_tokens(bigint)', 'EXECUTE'),
             ('fencepost.ms_between(timestamptz,timestamptz)', 'EXECUTE'),
             ('fencepost.sweep_locks()', 'EXECUTE'),
             ('fencepost.drop_rejections(timestamptz,bigint)', 'EXECUTE'),
             ('fencepost.lineage_here()', 'EXECUTE'), ('fencepost.read_lineage()', 'EXECUTE'),
             ('fencepost.expect_lineage(text)', 'EXECUTE'),
             ('fencepost.server_here()', 'EXECUTE'),
             ('fencepost.commit_after_standbys()', 'EXECUTE'),
             ('fencepost.identify()', 'EXECUTE'), ('fencepost.expect_incarnation(text)', 'EXECUTE'),
             ('fencepost.take_over(bigint,bigint)', 'EXECUTE'))
     AS needed(object, privilege)
WHERE NOT CASE
    WHEN needed.privilege = 'EXECUTE' THEN has_function_privilege(needed.object, needed.privilege)
    WHEN needed.object = 'fencepost.tokens'
        THEN has_sequence_privilege(needed.object, needed.privilege)
    ELSE has_table_privilege(needed.object, needed.privilege) END";

const EXCESS: &str = "
SELECT current_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
           OR has_schema_privilege('fencepost', 'CREATE')
           OR bool_or(has_table_privilege(c.oid, 'DELETE, TRUNCATE, TRIGGER')) AS excess
FROM pg_class AS c WHERE c.relnamespace = 'fencepost'::regnamespace AND c.relkind = 'r'";

pub async fn examine(connector: &Connector, plan: Plan) -> Vec<Finding> {
    let Plan { migrates, connections, keeps_rejections } = plan;
    let mut connection = match connector.connect_unidentified().await {
        Ok(connection) => connection,
        Err(error) => {
            let why = connector.why_not().await;
            return vec![why.unwrap_or_else(|| cannot_connect(&error))];
        }
    };
    let mut findings = vec![
        Finding::good(Subject::Store, "Postgres answers"),
        pooler(connection.is_pooled(), migrates),
    ];
    match facts(&mut connection).await {
        Ok((facts, asked)) => {
            let connected = count_standbys(&mut connection).await;
            match server(&facts, asked, connections, connected) {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(unexamined(Subject::Version, &error)),
            }
        }
        Err(error) => findings.push(unexamined(Subject::Version, &error)),
    }
    match schema(&mut connection).await {
        Ok(known @ (Schema::Current | Schema::Ahead)) => {
            findings.push(match known {
                Schema::Ahead => Finding::doubtful(
                    Subject::Migrations,
                    "it is a newer version's, on which this version may serve",
                    "finish the rollout of the newer version",
                ),
                _ => Finding::good(Subject::Migrations, "it is this version's"),
            });
            match guards_and_rights(&mut connection, keeps_rejections, known == Schema::Ahead).await
            {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(unexamined(Subject::Tables, &error)),
            }
            // Without the rights for it, that is what has been found.
            if let Ok(row) = sqlx::raw_sql(SERVER).fetch_one(connection.raw()).await
                && let (Ok(system), Ok(timeline)) = (row.try_get("system"), row.try_get("timeline"))
            {
                findings.push(failover(system, timeline));
            }
        }
        Ok(Schema::Behind) => match has_a_schema(&mut connection).await {
            Ok(there) => findings.push(behind(there, migrates)),
            Err(error) => findings.push(unexamined(Subject::Migrations, &error)),
        },
        Ok(Schema::TooNew) => findings.push(Finding::bad(
            Subject::Migrations,
            TOO_NEW,
            "roll this binary forward; a newer schema is never taken back",
        )),
        Err(error) => findings.push(unexamined(Subject::Migrations, &error)),
    }
    findings
}

fn cannot_connect(error: &StoreError) -> Finding {
    match error {
        StoreError::Unavailable(reason) => Finding::away(
            Subject::Store,
            format!("no answer: {reason}"),
            "see that Postgres runs, and that the host and port of --store lead to it",
        ),
        turned_away => Finding::bad(
            Subject::Store,
            turned_away.to_string(),
            "correct --store, or what Postgres allows that role to do",
        ),
    }
}

fn unexamined(subject: Subject, error: &StoreError) -> Finding {
    let says = error.to_string();
    if says.contains("permission denied") {
        let hint = "as the owner, grant the role of --store its rights, as in the script of `fencepost roles`";
        return Finding::bad(subject, format!("this role lacks rights: {says}"), hint);
    }
    Finding::bad(subject, says, "see the log of Postgres, and look again")
}

/// Whether any version of the schema is there.
async fn has_a_schema(connection: &mut Connection) -> Result<bool, StoreError> {
    let row =
        sqlx::raw_sql("SELECT to_regclass('fencepost._sqlx_migrations') IS NOT NULL AS there")
            .fetch_one(connection.raw())
            .await
            .map_err(unanswered)?;
    row.try_get("there").map_err(unanswered)
}

fn behind(there: bool, migrates: bool) -> Finding {
    let says = if there {
        "the schema is older than this version, or has migrations that are not its own"
    } else {
        "the database has not been migrated: there is no schema yet"
    };
    if migrates {
        return Finding::doubtful(
            Subject::Migrations,
            says,
            "`serve --migrate` will bring it up to date",
        );
    }
    let hint = "run `fencepost migrate` as the owner, over a direct connection";
    Finding::bad(Subject::Migrations, says, hint)
}

fn pooler(pooled: bool, migrates: bool) -> Finding {
    match (pooled, migrates) {
        (false, _) => Finding::good(Subject::Pooler, "the connection is direct"),
        (true, false) => Finding::doubtful(
            Subject::Pooler,
            "a transaction pooler stands in between, which costs round trips",
            "connect directly where you can; `migrate` must",
        ),
        (true, true) => Finding::bad(
            Subject::Pooler,
            "a transaction pooler stands in between, and --migrate cannot work through it",
            "migrate over a direct connection, and serve without --migrate",
        ),
    }
}

/// With the settings as every write has them; also the moments around the answer.
async fn facts(connection: &mut Connection) -> Result<(PgRow, [SystemTime; 2]), StoreError> {
    connection.begin().await?;
    let before = SystemTime::now();
    let facts = sqlx::raw_sql(FACTS).fetch_one(connection.raw()).await.map_err(unanswered)?;
    let after = SystemTime::now();
    connection.rollback().await?;
    Ok((facts, [before, after]))
}

/// `None` where this is not told.
async fn count_standbys(connection: &mut Connection) -> Option<i64> {
    let row = sqlx::raw_sql(STANDBYS).fetch_one(connection.raw()).await.ok()?;
    row.try_get("standbys").ok()
}

fn server(
    facts: &PgRow,
    asked: [SystemTime; 2],
    wanted: usize,
    connected: Option<i64>,
) -> Result<Vec<Finding>, StoreError> {
    let text = |name| facts.try_get::<String, _>(name).map_err(unanswered);
    let flag = |name| facts.try_get::<bool, _>(name).map_err(unanswered);
    let number = |name| facts.try_get::<i64, _>(name).map_err(unanswered);
    let version: i32 = facts.try_get("version").map_err(unanswered)?;
    let now: f64 = facts.try_get("now").map_err(unanswered)?;
    let name = format!("Postgres {}", text("version_name")?);
    Ok(vec![
        if is_too_old(version) {
            Finding::bad(
                Subject::Version,
                format!("{name} is too old"),
                "14 is the oldest that will do",
            )
        } else {
            Finding::good(Subject::Version, name)
        },
        match text("encoding")?.as_str() {
            "UTF8" => Finding::good(Subject::Encoding, "UTF8"),
            other => Finding::bad(
                Subject::Encoding,
                format!("the database is encoded in {other}, and keys are UTF-8"),
                "create a database with ENCODING 'UTF8'",
            ),
        },
        if flag("read_only")? {
            Finding::bad(Subject::Primary, READ_ONLY, "let --store lead to the primary")
        } else {
            Finding::good(Subject::Primary, "it can be written to")
        },
        connections(number("connections")?, wanted),
        sync(flag("fsync")?, flag("full_pages")?),
        commit(&text("commit")?, &text("default_commit")?, &text("messages")?),
        standbys(connected, &text("synchronous")?),
        clock_finding(now, asked),
    ])
}

fn connections(allowed: i64, wanted: usize) -> Finding {
    let says = format!("each fencepost opens up to {wanted} of the {allowed} that Postgres allows");
    if i64::try_from(wanted).is_ok_and(|wanted| wanted <= allowed) {
        return Finding::good(Subject::Connections, says);
    }
    Finding::bad(Subject::Connections, says, "lower --store-connections or raise max_connections")
}

fn sync(fsync: bool, full_pages: bool) -> Finding {
    match (fsync, full_pages) {
        (true, true) => Finding::good(Subject::Sync, "fsync and full_page_writes are on"),
        (false, _) => Finding::bad(
            Subject::Sync,
            "fsync is off: if the machine crashes, marks are lost, and with them the fence",
            "set fsync = on in postgresql.conf and reload",
        ),
        (true, false) => Finding::doubtful(
            Subject::Sync,
            "full_page_writes is off: a crash in mid-write can spoil a page of marks",
            "set full_page_writes = on, unless the file system writes whole pages",
        ),
    }
}

/// What holds on our own connections counts, whatever the server's default.
fn commit(ours: &str, default: &str, messages: &str) -> Finding {
    if messages == "error" {
        return Finding::bad(
            Subject::Commit,
            "client_min_messages is error for us: a cancelled wait for a standby would go unnoticed",
            "something resets the settings of a session; connect directly",
        );
    }
    let says = format!("synchronous_commit is {ours} for us (the server's default is {default})");
    match ours {
        "on" | "remote_apply" if matches!(default, "on" | "remote_apply") => {
            Finding::good(Subject::Commit, says)
        }
        "on" | "remote_apply" => Finding::doubtful(
            Subject::Commit,
            format!("{says}: a crash loses what others commit in this database"),
            "ALTER DATABASE or ALTER ROLE … RESET synchronous_commit, or set it to on in postgresql.conf",
        ),
        _ => Finding::bad(
            Subject::Commit,
            says,
            "something resets the settings of a session; connect directly",
        ),
    }
}

fn standbys(connected: Option<i64>, synchronous: &str) -> Finding {
    let Some(connected) = connected else {
        return Finding::doubtful(
            Subject::Standbys,
            "this Postgres does not tell this role which standbys it has",
            "find out by other means whether there are any, and whether commits wait for them",
        );
    };
    match (connected, synchronous) {
        (0, "") => Finding::good(Subject::Standbys, "none, so a failover has nothing to lose"),
        (_, "") => Finding::doubtful(
            Subject::Standbys,
            format!("{connected}, and none of them is synchronous: a failover can lose marks"),
            "set synchronous_standby_names; with --authority none, run `fencepost floor raise` \
             after every failover",
        ),
        (0, _) => Finding::doubtful(
            Subject::Standbys,
            "commits wait for a synchronous standby, and none is connected",
            "bring a standby back, or writes will end as outcome-unknown",
        ),
        (connected, _) => {
            Finding::good(Subject::Standbys, format!("{connected}, and commits wait for them"))
        }
    }
}

fn failover(tells_system: bool, tells_timeline: bool) -> Finding {
    const HINT: &str = "grant the owner of the schema EXECUTE on pg_control_system, pg_current_wal_lsn and pg_walfile_name \
                        (on Aurora: rds.logical_replication = 1); else raise the floor by hand after every failover and restore";
    match (tells_system, tells_timeline) {
        (true, true) => Finding::good(
            Subject::Failover,
            "a promoted standby and a restored backup are noticed, by cluster and timeline",
        ),
        (true, false) => Finding::doubtful(
            Subject::Failover,
            "Postgres does not tell its timeline: a promoted standby is not noticed, and a restored backup only in \
             another cluster",
            HINT,
        ),
        (false, true) => Finding::doubtful(
            Subject::Failover,
            "Postgres does not tell its cluster: a promoted standby is noticed, and a backup that was restored in another \
             cluster only if its timeline differs",
            HINT,
        ),
        (false, false) => Finding::doubtful(
            Subject::Failover,
            "Postgres tells neither its cluster nor its timeline: no failover is noticed, and a restored backup only in \
             another database",
            HINT,
        ),
    }
}

async fn guards_and_rights(
    connection: &mut Connection,
    keeps_rejections: bool,
    newer: bool,
) -> Result<Vec<Finding>, StoreError> {
    if let Some(reason) = weakness(connection, newer).await? {
        // What else is there to say about rights depends on objects that may be missing.
        return Ok(vec![Finding::bad(
            Subject::Tables,
            reason,
            "do that as the owner, and find out who undid it",
        )]);
    }
    let guards = Finding::good(
        Subject::Tables,
        "tables are logged; triggers, functions and grants are those of the schema",
    );
    let missing = missing_rights(connection, keeps_rejections).await?;
    let needed = if missing.is_empty() {
        Finding::good(Subject::Needed, "the role has every right that serving needs")
    } else {
        Finding::bad(
            Subject::Needed,
            format!("this role lacks {}", missing.join(", ")),
            "run `fencepost migrate` as fencepost_owner, or grant it as the owner of the schema",
        )
    };
    let role = sqlx::raw_sql(EXCESS).fetch_one(connection.raw()).await.map_err(unanswered)?;
    let name: String = role.try_get("role").map_err(unanswered)?;
    let excess = if role.try_get("excess").map_err(unanswered)? {
        Finding::doubtful(
            Subject::Excess,
            format!("the role {name} could delete rows, or change the tables"),
            "serve as a role that cannot (see `fencepost roles`), and keep the owner for migrations",
        )
    } else {
        Finding::good(Subject::Excess, format!("the role {name} can delete nothing"))
    };
    Ok(vec![guards, needed, excess])
}

/// Those on a table that is not used are not missed.
async fn missing_rights(
    connection: &mut Connection,
    keeps_rejections: bool,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::raw_sql(MISSING).fetch_all(connection.raw()).await.map_err(unanswered)?;
    let mut missing = Vec::new();
    for row in rows {
        let object: String = row.try_get("object").map_err(unanswered)?;
        let privilege: String = row.try_get("privilege").map_err(unanswered)?;
        if keeps_rejections || object != "fencepost.rejections" {
            missing.push(format!("{privilege} on {object}"));
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Grade::{Away, Bad, Doubtful, Good};

    #[test]
    fn what_endangers_marks_is_graded_by_how_much() {
        let grades =
            |findings: &[Finding]| -> Vec<_> { findings.iter().map(|f| f.grade).collect() };
        assert_eq!(
            grades(&[sync(true, true), sync(true, false), sync(false, true), sync(false, false)]),
            [Good, Doubtful, Bad, Bad]
        );
        assert_eq!(
            grades(&[
                commit("on", "on", "warning"),
                commit("on", "off", "notice"),
                commit("on", "local", "warning"),
                commit("remote_apply", "on", "warning"),
                commit("off", "on", "warning"),
                commit("on", "on", "error"),
            ]),
            [Good, Doubtful, Doubtful, Good, Bad, Bad]
        );
        assert_eq!(
            grades(&[
                standbys(Some(0), ""),
                standbys(Some(1), ""),
                standbys(Some(0), "*"),
                standbys(Some(1), "*"),
                standbys(None, "*"),
            ]),
            [Good, Doubtful, Doubtful, Good, Doubtful]
        );
        assert_eq!(
            grades(&[
                failover(true, true),
                failover(true, false),
                failover(false, true),
                failover(false, false)
            ]),
            [Good, Doubtful, Doubtful, Doubtful]
        );
        assert_eq!(
            grades(&[pooler(false, true), pooler(true, false), pooler(true, true)]),
            [Good, Doubtful, Bad]
        );
    }

    #[test]
    fn all_connections_that_are_wanted_must_be_allowed() {
        assert_eq!(connections(7, 7).grade, Good);
        assert_eq!(connections(6, 7).grade, Bad);
    }

    #[test]
    fn no_answer_is_something_else_than_a_refusal() {
        assert_eq!(cannot_connect(&StoreError::Unavailable("refused".into())).grade, Away);
        assert_eq!(cannot_connect(&StoreError::Unfit("no such role".into())).grade, Bad);
    }
}
