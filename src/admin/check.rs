//! `GET /v1/check` on the admin listener: the server examines itself, for `fencepost check --url`.
//!
//! It is in the operators' area, since it tells addresses. One examination runs at a time, in a thread of its
//! own: it opens connections, and may have to wait for a store that is down.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use tokio::sync::Semaphore;

use super::Admin;
use crate::api::problem::{Kind, Problem};

/// Examines the server, and gives the report as JSON.
#[derive(Clone)]
pub struct Diagnosis {
    examine: Arc<dyn Fn() -> String + Send + Sync>,
    place: Arc<Semaphore>,
}

impl Diagnosis {
    pub fn new(examine: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { examine: Arc::new(examine), place: Arc::new(Semaphore::new(1)) }
    }
}

pub async fn get(State(admin): State<Admin>) -> Result<Response, Problem> {
    let Diagnosis { examine, place } = admin.diagnosis;
    let Ok(place) = place.try_acquire_owned() else {
        let problem = Problem::new(Kind::Overloaded, "another examination is under way");
        return Err(problem.retry_after(Duration::from_secs(1)));
    };
    // It goes on if the client hangs up, and keeps its place until it is done.
    let report = tokio::task::spawn_blocking(move || {
        let report = examine();
        drop(place);
        report
    });
    let report = report
        .await
        .map_err(|_| Problem::new(Kind::ShuttingDown, "the examination was interrupted"))?;
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], report).into_response())
}
