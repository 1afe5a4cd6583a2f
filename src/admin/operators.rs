//! The operators' area: the page, and what it shows. It tells keys, clients and holders, so it is
//! kept apart from probes and metrics: a router of its own, which takes the guards that it needs.

use axum::{
    Router,
    middleware::{from_fn_with_state, map_response},
    routing::get,
};

use super::{Admin, check, host, page, state};
use crate::api::{self, Api};

pub fn router(admin: Admin, api: Api) -> Router {
    let rejections =
        Router::new().route("/v1/rejections", get(api::rejections::get)).with_state(api);
    Router::new()
        .route("/", get(page::get))
        .route("/page/state", get(state::get))
        .route("/v1/check", get(check::get))
        .with_state(admin.clone())
        .merge(rejections)
        .layer(from_fn_with_state(admin, host::check))
        .layer(map_response(page::guard))
}
