//! `GET /v1/resources?prefix=&after=&limit=`: the keys that have a value, in byte order.

use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Api, openapi,
    problem::{Kind, Problem},
    render,
};
use crate::{
    store::{Listed, Page},
    token::{self, Key, Version},
};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

/// One page of resources, by key.
#[derive(Serialize, ToSchema)]
struct Listing<'a> {
    #[schema(max_items = 1000)]
    resources: Vec<Entry<'a>>,
    /// The `after` of the next page; null on the last one.
    #[schema(required)]
    next: Option<&'a str>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ListedResource)]
struct Entry<'a> {
    #[schema(value_type = Key)]
    key: &'a str,
    version: Version,
    /// The key's mark.
    #[schema(minimum = 1, example = 33)]
    token: i64,
    #[schema(example = "text/plain")]
    content_type: &'a str,
    /// In bytes.
    #[schema(minimum = 0, example = 4)]
    size: i64,
}

/// List resources
///
/// Only keys that have a value, in the order of their bytes. Give a page's `next` as `after` to get
/// the next one.
#[utoipa::path(
    get,
    path = "/v1/resources",
    tag = "resources",
    operation_id = "listResources",
    params(openapi::PageQuery),
    responses(
        (status = 200, description = "One page", body = Listing),
        openapi::ReadProblems,
    )
)]
pub async fn list(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let page = page(uri.query().unwrap_or_default())?;
    let limit = page.limit as usize;
    // One more than asked for tells whether there is another page.
    let mut found = api.engine.list(Page { limit: page.limit + 1, ..page }).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = if more { found.last().map(|last| last.key.as_str()) } else { None };
    Ok(render::json(
        StatusCode::OK,
        &Listing { resources: found.iter().map(Entry::from).collect(), next },
    ))
}

impl<'a> From<&'a Listed> for Entry<'a> {
    fn from(listed: &'a Listed) -> Self {
        Self {
            key: &listed.key,
            version: listed.version,
            token: listed.token,
            content_type: &listed.content_type,
            size: listed.size,
        }
    }
}

pub fn page(query: &str) -> Result<Page, Problem> {
    let invalid = |detail: String| Problem::new(Kind::InvalidRequest, detail);
    let mut page = Page { prefix: String::new(), after: String::new(), limit: DEFAULT_LIMIT };
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        match &*name {
            "prefix" => page.prefix = part_of_a_key(&value)?,
            "after" => page.after = part_of_a_key(&value)?,
            "limit" => {
                page.limit = limit(&value).ok_or_else(|| {
                    invalid(format!("limit is a number from 1 to {MAX_LIMIT}, in plain digits"))
                })?;
            }
            other => {
                return Err(invalid(format!(
                    "a listing takes prefix, after and limit, and not {other:?}"
                )));
            }
        }
        if seen.contains(&name) {
            return Err(invalid(format!("{name} was given more than once")));
        }
        seen.push(name);
    }
    Ok(page)
}

fn limit(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|limit| digits && (1..=MAX_LIMIT).contains(limit))
}

/// As in a form, where `+` is a space. The usual parsers put U+FFFD where bytes are not UTF-8; but
/// that is also a character that a key may have.
fn decode(part: &str) -> Result<String, Problem> {
    let spaced = part.replace('+', " ");
    let decoded = token::decode(&spaced).map_err(|_| {
        Problem::new(Kind::InvalidRequest, "the query is not percent-encoded UTF-8")
    })?;
    Ok(decoded.into_owned())
}

/// Empty, or what could be a key.
fn part_of_a_key(value: &str) -> Result<String, Problem> {
    if !value.is_empty() {
        Key::new(value)?;
    }
    Ok(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_be_in_a_key_may_be_in_a_query() {
        for key in ["orders/42", "a+b c", "100%", "a&b=c", "\u{fffd}", "\n"] {
            let encoded: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
            let page = page(&format!("prefix={encoded}&after={encoded}&limit=7")).unwrap();
            assert_eq!((&*page.prefix, &*page.after, page.limit), (key, key, 7));
        }
    }

    #[test]
    fn a_query_that_is_not_understood_is_refused() {
        for query in ["prefix=%ff", "prefix=%zz", "prefix=%00", "%ff=", "limit=", "limit=1&limit=1"]
        {
            assert!(page(query).is_err(), "{query}");
        }
    }
}
