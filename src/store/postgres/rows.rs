//! Rows of Postgres in the words of the store.

use sqlx::{ColumnIndex, Decode, Postgres, Row, Type, postgres::PgRow};

use crate::{
    buffer,
    fence::Standing,
    store::Listed,
    token::{Mark, Version},
    write::Value,
};

/// A row as it stands, and the floor under it.
pub struct Found {
    pub standing: Standing,
    pub floor: Mark,
    /// Missing where there is none, and where it is larger than was asked for.
    pub value: Option<Value>,
    /// Whether commits wait for a standby.
    pub has_standbys: bool,
    pub size: u64,
}

/// Where the columns are that a statement selects first, if its rows are judged or read. To find each by
/// its name would take as long as all else that is done with a row.
mod place {
    pub const KEY: usize = 0;
    pub const TOKEN: usize = 1;
    pub const SEQ: usize = 2;
    pub const VERSION: usize = 3;
    pub const CREATED: usize = 4;
    pub const DIGEST: usize = 5;
    pub const PRESENT: usize = 6;
    // Those that read values, and the floor beside them.
    pub const VALUE: usize = 7;
    pub const CONTENT_TYPE: usize = 8;
    pub const FLOOR: usize = 9;
    pub const HAS_STANDBYS: usize = 10;
    // Of a single row.
    pub const SIZE: usize = 11;
}

/// One of many rows of an answer, by the places of its columns. All of them have columns of the same
/// types, so those are held against what is expected in the first one only: to do so for every value
/// would take longer than to read it.
#[derive(Clone, Copy)]
pub struct Columns<'r> {
    row: &'r PgRow,
    is_first: bool,
}

impl<'r> Columns<'r> {
    pub fn of(rows: &'r [PgRow]) -> impl Iterator<Item = Self> {
        rows.iter().enumerate().map(|(number, row)| Self { row, is_first: number == 0 })
    }

    pub fn get<T: Decode<'r, Postgres> + Type<Postgres>>(
        self,
        place: usize,
    ) -> Result<T, sqlx::Error> {
        if self.is_first { self.row.try_get(place) } else { self.row.try_get_unchecked(place) }
    }
}

/// A row that may be missing, as a left join to the floor gives it.
pub fn found(row: &PgRow) -> Result<Found, sqlx::Error> {
    let floor = Mark { token: floor_of(row)?, seq: 0 };
    let standing = match key_of(row)? {
        Some(_) => standing_of(row)?,
        None => Standing::default(),
    };
    let size = size_of(row.try_get(place::SIZE)?);
    let has_standbys = has_standbys(row)?;
    Ok(Found { standing, floor, value: value_of(row)?, has_standbys, size })
}

/// Of a value that may be missing.
pub fn size_of(length: Option<i32>) -> u64 {
    length.and_then(|length| u64::try_from(length).ok()).unwrap_or(0)
}

/// `None` where the join has found no row.
pub fn key_of(row: &PgRow) -> Result<Option<&str>, sqlx::Error> {
    row.try_get(place::KEY)
}

pub fn floor_of(row: &PgRow) -> Result<i64, sqlx::Error> {
    row.try_get(place::FLOOR)
}

pub fn has_standbys(row: &PgRow) -> Result<bool, sqlx::Error> {
    row.try_get(place::HAS_STANDBYS)
}

pub fn standing_of(row: &PgRow) -> Result<Standing, sqlx::Error> {
    let digest: Option<&[u8]> = row.try_get(place::DIGEST)?;
    Ok(Standing {
        mark: Mark { token: row.try_get(place::TOKEN)?, seq: row.try_get(place::SEQ)? },
        version: Version::from_stored(row.try_get(place::VERSION)?),
        present: row.try_get(place::PRESENT)?,
        created: row.try_get(place::CREATED)?,
        digest: digest.and_then(|digest| digest.try_into().ok()),
    })
}

pub fn value_of(row: &PgRow) -> Result<Option<Value>, sqlx::Error> {
    value_in(row, place::VALUE, place::CONTENT_TYPE)
}

/// Where a statement has them elsewhere.
pub fn value_named(row: &PgRow) -> Result<Option<Value>, sqlx::Error> {
    value_in(row, "value", "content_type")
}

fn value_in<I: ColumnIndex<PgRow>>(
    row: &PgRow,
    body: I,
    content_type: I,
) -> Result<Option<Value>, sqlx::Error> {
    Ok(value_of_parts(row.try_get(body)?, row.try_get(content_type)?))
}

/// There is a value only where both are there.
pub fn value_of_parts(body: Option<&[u8]>, content_type: Option<String>) -> Option<Value> {
    let value = |(body, content_type)| Value { body: buffer::copied(body), content_type };
    body.zip(content_type).map(value)
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
