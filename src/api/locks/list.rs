//! `GET /v1/locks?prefix=&after=&limit=`: the locks that are held, in byte order.

use axum::{
    extract::{Request, State},
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::HolderNow;
use crate::{
    api::{Api, listing, openapi, problem::Problem, weighed::ListingRoom},
    store::Page,
    token::Key,
};

/// One page of the locks that are held, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = Locks)]
struct Held<'a> {
    #[schema(max_items = 1000)]
    locks: Vec<Entry<'a>>,
    /// The `after` of the next page; null on the last one.
    #[schema(required, value_type = Option<String>)]
    next: Option<&'a Key>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HeldLock)]
struct Entry<'a> {
    name: &'a Key,
    #[serde(flatten)]
    #[schema(inline)]
    holder: HolderNow,
}

/// List the locks that are held
///
/// In the order of their names' bytes. Give a page's `next` as `after` to get the next one.
#[utoipa::path(
    get,
    path = "/v1/locks",
    tag = "locks",
    operation_id = "listLocks",
    params(openapi::PageQuery),
    responses(
        (status = 200, description = "One page", body = Held),
        openapi::LockProblems,
    )
)]
pub async fn get(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let page = listing::page(request.uri().query().unwrap_or_default())?;
    let access = api.access(request.extensions());
    let locks = api.guarded.locks(access.list(&page.prefix)?)?;
    let limit = page.limit as usize;
    let room = ListingRoom::new(&api.limits, access.identity(), limit)?;
    // One more than asked for tells whether there is another page.
    let mut found = locks.list(Page { limit: page.limit + 1, ..page }).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = if more { found.last().map(|last| &last.name) } else { None };
    let locks = found.iter().map(|holder| Entry { name: &holder.name, holder: holder.into() });
    Ok(room.json(&Held { locks: locks.collect(), next })?)
}
