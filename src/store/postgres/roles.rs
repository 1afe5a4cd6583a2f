//! The two roles: the owner of the schema, which migrates, and the one that serves.

use sqlx::Row;

use super::{connection::Connection, fitness};
use crate::store::{Rights, StoreError};

/// Makes the roles, and gives the one that serves its rights.
pub const SCRIPT: &str = include_str!("../../../migrations/roles.sql");

const OWNER: &str = "fencepost_owner";
const SERVES: &str = "fencepost_serve";

const LOOK: &str = "
SELECT current_user::text AS this_role, current_database()::text AS database,
       EXISTS (SELECT FROM pg_roles WHERE rolname = 'fencepost_serve') AS has_serving_role,
       EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = 'fencepost_owner'
               AND has_database_privilege(r.oid, current_database(), 'CREATE')) AS is_prepared,
       (SELECT pg_get_userbyid(relowner) FROM pg_class
        WHERE oid = to_regclass('fencepost.resources'))::text AS owner";

struct Roles {
    this: String,
    database: String,
    has_serving_role: bool,
    /// The script was run in this database: its owner may make the schema.
    is_prepared: bool,
    /// Of the tables, if they are there.
    owner: Option<String>,
}

async fn look(connection: &mut Connection) -> Result<Roles, StoreError> {
    let row = sqlx::raw_sql(LOOK).fetch_one(connection.raw()).await.map_err(fitness::unanswered)?;
    Ok(Roles {
        this: row.try_get("this_role").map_err(fitness::unanswered)?,
        database: row.try_get("database").map_err(fitness::unanswered)?,
        has_serving_role: row.try_get("has_serving_role").map_err(fitness::unanswered)?,
        is_prepared: row.try_get("is_prepared").map_err(fitness::unanswered)?,
        owner: row.try_get("owner").map_err(fitness::unanswered)?,
    })
}

/// What is new in the schema is also new to the role that serves, where both roles are those of the script.
pub async fn give_rights(connection: &mut Connection) -> Result<Rights, StoreError> {
    let Roles { this, has_serving_role, .. } = look(connection).await?;
    if this != OWNER {
        return Ok(Rights::NotGiven(format!(
            "this is the role {this:?}, not {OWNER:?}: if another role serves, give it its rights, as in \
             the script that `fencepost roles` prints"
        )));
    }
    if !has_serving_role {
        return Ok(Rights::NotGiven(format!("there is no role {SERVES:?}")));
    }
    sqlx::raw_sql(SCRIPT).execute(connection.raw()).await.map_err(fitness::unanswered)?;
    Ok(Rights::Given)
}

/// Why the role that serves could not use the schema after a migration by this role. `behind`: there is
/// something to migrate.
pub async fn obstacle(
    connection: &mut Connection,
    behind: bool,
) -> Result<Option<String>, StoreError> {
    let Roles { this, database, has_serving_role, is_prepared, owner } = look(connection).await?;
    if !behind {
        return Ok(None);
    }
    Ok(match owner {
        Some(owner) => (owner != this).then(|| {
            format!(
                "the schema belongs to the role {owner:?}, and what {this:?} adds to it would belong to \
                 {this:?}: migrate as {owner:?}"
            )
        }),
        // Where the script was not run in this database, the role that migrates is the one that serves.
        None if this != OWNER => (has_serving_role && is_prepared).then(|| {
            format!(
                "the schema would belong to the role {this:?}, and {SERVES:?} could not use it: migrate as \
                 {OWNER:?}. If {this:?} is to serve too, or gives rights to a role of yours, add --one-role"
            )
        }),
        None if !has_serving_role => Some(format!(
            "there is no role {SERVES:?} that could serve. As a superuser, run `fencepost roles | \
             psql -d DATABASE` first; or, if {this:?} is to serve too, add --one-role"
        )),
        None => (!is_prepared).then(|| {
            format!(
                "{OWNER:?} may not make a schema in the database {database:?}. As a superuser, run `fencepost \
                 roles | psql -d {database}` first: the script is run once in each database"
            )
        }),
    })
}
