//! Queries, read strictly: what is not understood is refused, and never ignored.

use super::problem::{Kind, Problem};
use crate::token;

pub const DEFAULT_LIMIT: u32 = 100;
pub const MAX_LIMIT: u32 = 1000;

/// The members of a query by their names, each at most once.
pub fn members(query: &str) -> Result<Vec<(String, String)>, Problem> {
    let mut members: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if members.iter().any(|(known, _)| *known == name) {
            return Err(invalid(format!("{name:?} was given more than once")));
        }
        members.push((name, value));
    }
    Ok(members)
}

/// How many to list at most.
pub fn limit(text: &str) -> Result<u32, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let limit = text.parse().ok().filter(|limit| digits && (1..=MAX_LIMIT).contains(limit));
    limit
        .ok_or_else(|| invalid(format!("limit is a number from 1 to {MAX_LIMIT}, in plain digits")))
}

pub fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidRequest, detail)
}

/// As in a form, where `+` is a space. The usual parsers put U+FFFD where bytes are not UTF-8; but
/// that is also a character that a key may have.
fn decode(part: &str) -> Result<String, Problem> {
    let spaced = part.replace('+', " ");
    let decoded =
        token::decode(&spaced).map_err(|_| invalid("the query is not percent-encoded UTF-8"))?;
    Ok(decoded.into_owned())
}
