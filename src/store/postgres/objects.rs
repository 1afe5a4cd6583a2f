//! Whether the triggers and functions in the database are those of this version's schema.
//!
//! Safety relies on them: a trigger stops raw SQL that would lower a mark, and a function that runs with the owner's rights
//! must be the one that was shipped. A database keeps no record of a change that its owner made by hand, so each object is
//! compared with a fingerprint.

use std::collections::HashMap;

use sqlx::Row;

use super::{
    connection::Connection,
    fitness::{ask, unanswered},
};
use crate::store::StoreError;

/// One line for each: its fingerprint, and its name. A test keeps the list up to date.
const EXPECTED: &str = include_str!("objects.txt");

/// The same on every release of Postgres: nothing in a fingerprint depends on how Postgres writes SQL, except for the
/// condition of a trigger.
pub const OBJECTS: &str = "
SELECT format('function %s.%s(%s)', n.nspname, p.proname, oidvectortypes(p.proargtypes)) AS name,
       encode(sha256(convert_to(concat_ws('|', p.prosrc, p.prokind, p.prosecdef, p.proisstrict, p.provolatile, p.proretset,
           (SELECT tn.nspname || '.' || t.typname FROM pg_type AS t JOIN pg_namespace AS tn ON tn.oid = t.typnamespace
            WHERE t.oid = p.prorettype),
           l.lanname, array_to_string(p.proargnames, ','), array_to_string(p.proargmodes, ','),
           array_to_string(p.proconfig, ','),
           CASE WHEN p.proowner <> n.nspowner THEN 'of another owner' END), 'UTF8')), 'hex') AS fingerprint,
       true AS enabled
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_language AS l ON l.oid = p.prolang
WHERE n.nspname = 'fencepost'
UNION ALL
SELECT format('trigger %s on %s.%s', t.tgname, n.nspname, c.relname),
       encode(sha256(convert_to(concat_ws('|', t.tgtype, t.tgattr::text, encode(t.tgargs, 'escape'), t.tgdeferrable,
           t.tginitdeferred, f.proname, fn.nspname,
           substring(pg_get_triggerdef(t.oid) FROM ' WHEN (.*) EXECUTE ')), 'UTF8')), 'hex'),
       t.tgenabled = 'A'
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
     JOIN pg_proc AS f ON f.oid = t.tgfoid JOIN pg_namespace AS fn ON fn.oid = f.pronamespace
WHERE n.nspname = 'fencepost' AND NOT t.tgisinternal
ORDER BY name";

/// What is wrong with the objects, if anything. A newer version may have replaced one by a better one of the same name: then
/// it only has to be there. It may have added others, too. Any other object is refused: a trigger can change or skip what is
/// written, and a function of the same name with other arguments can be called instead.
pub async fn flaw(connection: &mut Connection, newer: bool) -> Result<Option<String>, StoreError> {
    let mut found = HashMap::new();
    for row in ask(connection, OBJECTS).await? {
        let name: String = row.try_get("name").map_err(unanswered)?;
        let fingerprint: String = row.try_get("fingerprint").map_err(unanswered)?;
        let enabled: bool = row.try_get("enabled").map_err(unanswered)?;
        found.insert(name, (fingerprint, enabled));
    }
    for (expected, name) in EXPECTED.lines().filter_map(|line| line.split_once(' ')) {
        let flaw = match found.remove(name) {
            None => "is missing",
            Some((_, false)) => "is not enabled always",
            Some((fingerprint, true)) if fingerprint != expected && !newer => {
                "is not the one that this version has shipped"
            }
            Some(_) => continue,
        };
        return Ok(Some(format!(
            "the {name} {flaw}, so raw SQL can lower marks; restore it from migrations/postgres as the schema's \
             owner, and find the cause of the change"
        )));
    }
    Ok(found.into_keys().min().filter(|_| !newer).map(|name| {
        format!(
            "the {name} is not part of the schema, and may change what is written; drop it as the schema's owner, \
             and find the cause of the change"
        )
    }))
}
