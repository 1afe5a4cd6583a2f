//! Whether the triggers, functions and grants in the database are those of this version's schema.
//!
//! Safety relies on them: a trigger stops raw SQL that would lower a mark, and a function that runs with the owner's rights
//! must be the one that was shipped. A database keeps no record of a change that its owner made by hand, so each object is
//! compared with a fingerprint. Objects that this version does not know are left alone.

use std::collections::HashMap;

use sqlx::Row;

use super::{connection::Connection, fitness::unanswered};
use crate::store::StoreError;

/// One line for each: its fingerprint, and its name. A test keeps the list up to date.
const EXPECTED: &str = include_str!("objects.txt");

/// The same on every release of Postgres: nothing in a fingerprint depends on how Postgres writes SQL, except for the
/// condition of a trigger.
pub const OBJECTS: &str = "
SELECT format('function %s.%s(%s)', n.nspname, p.proname, oidvectortypes(p.proargtypes)) AS name,
       md5(concat_ws('|', p.prosrc, p.prosecdef, p.provolatile, p.proretset, p.prorettype::regtype, l.lanname,
                     array_to_string(p.proconfig, ','),
                     CASE WHEN p.proowner <> n.nspowner THEN 'of another owner' END)) AS fingerprint,
       true AS enabled
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_language AS l ON l.oid = p.prolang
WHERE n.nspname = 'fencepost'
UNION ALL
SELECT format('trigger %s on %s.%s', t.tgname, n.nspname, c.relname),
       md5(concat_ws('|', t.tgtype, f.proname, fn.nspname,
                     substring(pg_get_triggerdef(t.oid) FROM ' WHEN (.*) EXECUTE '))),
       t.tgenabled = 'A'
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
     JOIN pg_proc AS f ON f.oid = t.tgfoid JOIN pg_namespace AS fn ON fn.oid = f.pronamespace
WHERE n.nspname = 'fencepost' AND NOT t.tgisinternal
ORDER BY name";

/// Rights that nobody but the owner may have, and rights that everyone has.
const EXCESSIVE_GRANTS: &str = "
SELECT format('%s on %s.%s is granted to %s: take it away with REVOKE', g.privilege_type, n.nspname, c.relname,
              CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END) AS reason
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace, aclexplode(c.relacl) AS g
WHERE n.nspname = 'fencepost' AND g.grantee <> c.relowner
      AND (g.grantee = 0 OR g.privilege_type IN ('DELETE', 'TRUNCATE', 'TRIGGER'))
UNION ALL
SELECT format('%s on the schema %s is granted to PUBLIC: take it away with REVOKE', g.privilege_type, n.nspname)
FROM pg_namespace AS n, aclexplode(n.nspacl) AS g
WHERE n.nspname = 'fencepost' AND g.grantee = 0
UNION ALL
SELECT format('EXECUTE on %s.%s is granted to PUBLIC: take it away with REVOKE', n.nspname, p.proname)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace,
     aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS g
WHERE n.nspname = 'fencepost' AND p.prosecdef AND g.grantee = 0
LIMIT 1";

/// What is wrong with the objects, if anything. A newer version may have replaced one by a better one of the same name: then
/// it only has to be there.
pub async fn flaw(connection: &mut Connection, newer: bool) -> Result<Option<String>, StoreError> {
    let rows = sqlx::raw_sql(OBJECTS).fetch_all(connection.raw()).await.map_err(unanswered)?;
    let mut found = HashMap::new();
    for row in rows {
        let name: String = row.try_get("name").map_err(unanswered)?;
        let fingerprint: String = row.try_get("fingerprint").map_err(unanswered)?;
        let enabled: bool = row.try_get("enabled").map_err(unanswered)?;
        found.insert(name, (fingerprint, enabled));
    }
    for (expected, name) in EXPECTED.lines().filter_map(|line| line.split_once(' ')) {
        let flaw = match found.get(name) {
            None => "is missing",
            Some((_, false)) => "is not enabled always",
            Some((fingerprint, true)) if fingerprint != expected && !newer => {
                "is not the one that this version has shipped"
            }
            Some(_) => continue,
        };
        return Ok(Some(format!(
            "the {name} {flaw}, so marks are not protected from raw SQL; find out who changed it, and \
             restore it from migrations/postgres as the schema's owner"
        )));
    }
    let excessive = sqlx::raw_sql(EXCESSIVE_GRANTS)
        .fetch_optional(connection.raw())
        .await
        .map_err(unanswered)?;
    excessive.map(|row| row.try_get("reason").map_err(unanswered)).transpose()
}
