//! The rights on the schema: those that the role that serves needs, and those that no role but the owner may have.
//!
//! There is one list, the same as in migrations/roles.sql. The role that serves may have any name, and a role that only
//! reads tables is allowed: so no other role than the owner may have more than this list, or `SELECT`.

use sqlx::{Row, postgres::PgRow};

use super::{
    connection::Connection,
    fitness::{ask, unanswered},
};
use crate::store::StoreError;

/// Two tables for a query. `rights`: what roles.sql grants. `to_serve` is false for what only the previous release, `check` or
/// `fencepost authority move` uses. `own`: the tables and sequences of this version's schema.
macro_rules! with_rights {
    ($query:literal) => {
        concat!(
            "
WITH rights(object, privilege, to_serve) AS (VALUES
    ('fencepost.resources', 'SELECT', true),
    ('fencepost.resources', 'INSERT', true),
    ('fencepost.resources', 'UPDATE', true),
    ('fencepost.authority', 'SELECT', true),
    ('fencepost.authority', 'INSERT', true),
    ('fencepost.authority', 'UPDATE', true),
    ('fencepost.rejections', 'SELECT', true),
    ('fencepost.rejections', 'INSERT', true),
    ('fencepost._sqlx_migrations', 'SELECT', true),
    ('fencepost.migrations', 'SELECT', true),
    ('fencepost.compatibility', 'SELECT', true),
    ('fencepost.floor', 'SELECT', true),
    ('fencepost.locks', 'SELECT', true),
    ('fencepost.owning_authority', 'SELECT', true),
    ('fencepost.tokens', 'SELECT', true),
    ('fencepost.enter_queue(text, text, text, bigint, bigint, boolean)', 'EXECUTE', true),
    ('fencepost.enter_queue_as(text, text, text, bigint, bigint, boolean, text)', 'EXECUTE', true),
    ('fencepost.look_at_queue(text, bigint, bigint)', 'EXECUTE', true),
    ('fencepost.leave_queue(text, text)', 'EXECUTE', true),
    ('fencepost.renew_lock(text, bigint)', 'EXECUTE', true),
    ('fencepost.release_lock(text, bigint)', 'EXECUTE', true),
    ('fencepost.adopt_tokens(bigint)', 'EXECUTE', true),
    ('fencepost.ms_between(timestamp with time zone, timestamp with time zone)', 'EXECUTE', true),
    ('fencepost.sweep_locks()', 'EXECUTE', true),
    ('fencepost.drop_rejections(timestamp with time zone, bigint)', 'EXECUTE', true),
    ('fencepost.take_over(bigint, bigint)', 'EXECUTE', true),
    ('fencepost.identify()', 'EXECUTE', true),
    ('fencepost.expect_incarnation(text)', 'EXECUTE', true),
    ('fencepost.commit_after_standbys()', 'EXECUTE', true),
    ('fencepost.claim_authority(text, text, text)', 'EXECUTE', true),
    ('fencepost.claim_instance(text, text, bigint, bigint)', 'EXECUTE', true),
    ('fencepost.move_authority(text, text, text, text, bigint, bigint, bigint)', 'EXECUTE', false),
    ('fencepost.server_here()', 'EXECUTE', false),
    ('fencepost.lineage_here()', 'EXECUTE', false),
    ('fencepost.read_lineage()', 'EXECUTE', false),
    ('fencepost.expect_lineage(text)', 'EXECUTE', false)),
own AS (
    SELECT c.oid, c.relname, c.relkind, c.relowner, c.relacl, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
           n.nspowner, 'fencepost.' || c.relname AS object
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'fencepost'
      AND c.relname IN ('resources', 'authority', 'rejections', '_sqlx_migrations', 'migrations', 'compatibility', 'floor',
                        'locks', 'owning_authority', 'tokens', 'lineage', 'incarnation', 'lock_buckets'))
",
            $query
        )
    };
}
pub(super) use with_rights;

/// The cure of a right that is missing.
pub const HOW_TO_GRANT: &str =
    "run `fencepost migrate` as fencepost_owner, or grant it as the owner of the schema";

/// A test holds the list of tables and sequences to the migrations.
pub const OWN: &str = with_rights!("SELECT relname::text FROM own ORDER BY 1");

const MISSING: &str = with_rights!(
    "
SELECT object, privilege, to_serve, current_user::text AS role FROM rights
WHERE NOT CASE
    WHEN privilege = 'EXECUTE' THEN has_function_privilege(object, privilege)
    WHEN object = 'fencepost.tokens' THEN has_sequence_privilege(object, privilege)
    ELSE has_table_privilege(object, privilege) END"
);

/// `always`: on the schema of a newer version too. That version may have given other rights.
const EXCESSIVE: &str = with_rights!(
    "
, grants AS (
    SELECT g.*, c.relowner AS owner, c.object AS object, 'fencepost.' || quote_ident(c.relname) AS name,
           g.privilege_type = 'SELECT' AS reads
    FROM own AS c, aclexplode(c.relacl) AS g
    UNION ALL
    SELECT g.*, c.relowner, c.object, format('%I of fencepost.%I', a.attname, c.relname), g.privilege_type = 'SELECT'
    FROM own AS c JOIN pg_attribute AS a ON a.attrelid = c.oid, aclexplode(a.attacl) AS g
    UNION ALL
    SELECT g.*, p.proowner, f.name, f.name, false
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace,
         format('%s.%s(%s)', n.nspname, p.proname, oidvectortypes(p.proargtypes)) AS f(name),
         aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS g
    WHERE n.nspname = 'fencepost' AND p.prosecdef
    UNION ALL
    SELECT g.*, n.nspowner, 'schema', 'the schema fencepost', g.privilege_type = 'USAGE'
    FROM pg_namespace AS n, aclexplode(n.nspacl) AS g
    WHERE n.nspname = 'fencepost')
SELECT format('%s on %s is granted to %s%s, and the script of `fencepost roles` does not grant that: '
              'as the owner of the schema, take it away with REVOKE',
              g.privilege_type, g.name, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
              CASE WHEN g.is_grantable THEN ' with the grant option' ELSE '' END) AS reason,
       g.grantee = 0 OR g.privilege_type IN ('DELETE', 'TRUNCATE', 'TRIGGER', 'CREATE') AS always
FROM grants AS g
WHERE g.grantee <> g.owner
  AND (g.grantee = 0
       OR NOT g.reads
          AND (g.is_grantable
               OR NOT EXISTS (SELECT FROM rights AS r WHERE r.object = g.object AND r.privilege = g.privilege_type)))
UNION ALL
SELECT format('%s belongs to the role %s, and the schema to %s: run ALTER TABLE %s OWNER TO %s',
              c.object, c.relowner::regrole, c.nspowner::regrole, c.object, c.nspowner::regrole), true
FROM own AS c WHERE c.relowner <> c.nspowner
ORDER BY always DESC, reason"
);

/// The rights that a role has without a grant to itself count, too.
const EXCESS: &str = with_rights!(
    "
SELECT current_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
           OR has_schema_privilege('fencepost', 'CREATE')
           OR has_sequence_privilege('fencepost.tokens', 'USAGE, UPDATE')
           OR EXISTS (SELECT FROM own AS c,
                           (VALUES ('INSERT'), ('UPDATE'), ('DELETE'), ('TRUNCATE'), ('REFERENCES'), ('TRIGGER')) AS p(privilege)
                      WHERE c.relkind = 'r' AND has_table_privilege(c.oid, p.privilege)
                        AND (c.object, p.privilege) NOT IN (SELECT object, privilege FROM rights)) AS excess"
);

/// A grant or an owner by which more could be done than roles.sql allows, if there is one. `newer`: a newer version has
/// made the schema.
pub async fn excessive(
    connection: &mut Connection,
    newer: bool,
) -> Result<Option<String>, StoreError> {
    for row in ask(connection, EXCESSIVE).await? {
        if !newer || row.try_get("always").map_err(unanswered)? {
            return row.try_get("reason").map_err(unanswered).map(Some);
        }
    }
    Ok(None)
}

/// Whether the role of this connection could do more than it needs for serving; its name.
pub async fn has_excess(connection: &mut Connection) -> Result<(String, bool), StoreError> {
    let rows = ask(connection, EXCESS).await?;
    let get = |row: &PgRow| Ok((row.try_get("role")?, row.try_get("excess")?));
    let row = rows.first().ok_or(sqlx::Error::RowNotFound);
    row.and_then(get).map_err(unanswered)
}

/// What the role of a connection lacks.
#[derive(Default)]
pub struct Missing {
    pub role: String,
    /// Of all that roles.sql grants.
    pub rights: Vec<String>,
    /// Of these, the ones without which it cannot serve.
    pub to_serve: Vec<String>,
}

/// Rights on a table that is not used are not missed.
pub async fn missing(
    connection: &mut Connection,
    keeps_rejections: bool,
) -> Result<Missing, StoreError> {
    let mut missing = Missing::default();
    for row in ask(connection, MISSING).await? {
        let object: String = row.try_get("object").map_err(unanswered)?;
        let privilege: String = row.try_get("privilege").map_err(unanswered)?;
        missing.role = row.try_get("role").map_err(unanswered)?;
        if !keeps_rejections && object == "fencepost.rejections" {
            continue;
        }
        let right = format!("{privilege} on {object}");
        if row.try_get("to_serve").map_err(unanswered)? {
            missing.to_serve.push(right.clone());
        }
        missing.rights.push(right);
    }
    Ok(missing)
}
