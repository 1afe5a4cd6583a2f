//! Rows of Postgres in the words of the store.

use sqlx::{Row, postgres::PgRow};

use crate::{
    fence::Standing,
    store::Listed,
    token::{Mark, Version},
    write::Value,
};

/// A row as it stands, and the floor under it.
pub struct Found {
    pub standing: Standing,
    pub floor: Mark,
    pub value: Option<Value>,
}

impl Found {
    /// No row.
    pub fn nothing(floor: i64) -> Self {
        let floor = Mark { token: floor, seq: 0 };
        Self { standing: Standing::default(), floor, value: None }
    }
}

/// A row that may be missing, as a left join to the floor gives it.
pub fn found(row: &PgRow) -> Result<Found, sqlx::Error> {
    let floor = Mark { token: row.try_get("floor")?, seq: 0 };
    let standing = match row.try_get::<Option<i64>, _>("token")? {
        Some(_) => standing_of(row)?,
        None => Standing::default(),
    };
    Ok(Found { standing, floor, value: value_of(row)? })
}

pub fn standing_of(row: &PgRow) -> Result<Standing, sqlx::Error> {
    let digest: Option<&[u8]> = row.try_get("digest")?;
    Ok(Standing {
        mark: Mark { token: row.try_get("token")?, seq: row.try_get("seq")? },
        version: Version::from_stored(row.try_get("version")?),
        present: row.try_get("present")?,
        created: row.try_get("created")?,
        digest: digest.and_then(|digest| digest.try_into().ok()),
    })
}

pub fn value_of(row: &PgRow) -> Result<Option<Value>, sqlx::Error> {
    let body: Option<Vec<u8>> = row.try_get("value")?;
    let content_type: Option<String> = row.try_get("content_type")?;
    Ok(body.zip(content_type).map(|(body, content_type)| Value { body: body.into(), content_type }))
}

pub fn listed(row: &PgRow) -> Result<Listed, sqlx::Error> {
    Ok(Listed {
        key: row.try_get("key")?,
        version: Version::from_stored(row.try_get("version")?),
        token: row.try_get("token")?,
        content_type: row.try_get("content_type")?,
        size: row.try_get("size")?,
    })
}
