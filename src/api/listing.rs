//! `GET /v1/resources?prefix=&after=&limit=`: the keys that have a value, in byte order.

use axum::{
    extract::{Request, State},
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Api, openapi, problem::Problem, query, weighed::ListingRoom};
use crate::{
    store::{Listed, Page},
    token::{Key, Version},
};

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
pub async fn list(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let page = page(request.uri().query().unwrap_or_default())?;
    let access = api.access(request.extensions());
    let permit = access.list(&page.prefix)?;
    let limit = page.limit as usize;
    let room = ListingRoom::new(&api.limits, access.identity(), limit)?;
    // One more than asked for tells whether there is another page.
    let mut found = api.guarded.engine(permit).list(Page { limit: page.limit + 1, ..page }).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = if more { found.last().map(|last| last.key.as_str()) } else { None };
    Ok(room.json(&Listing { resources: found.iter().map(Entry::from).collect(), next })?)
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
    let mut page =
        Page { prefix: String::new(), after: String::new(), limit: query::DEFAULT_LIMIT };
    for (name, value) in query::members(query)? {
        match &*name {
            "prefix" => page.prefix = part_of_a_key(&value)?,
            "after" => page.after = part_of_a_key(&value)?,
            "limit" => page.limit = query::limit(&value)?,
            other => {
                return Err(query::invalid(format!(
                    "a listing takes prefix, after and limit, and not {other:?}"
                )));
            }
        }
    }
    Ok(page)
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
