//! `check --url`: a running server examines itself.

use std::time::Duration;

use reqwest::{StatusCode, Url};

use super::report::Report;
use crate::cli::{
    client::{Credentials, http},
    exit::Failure,
    usage::masked,
};

/// Longer than the server takes at most.
const PATIENCE: Duration = Duration::from_mins(1);

pub async fn ask(url: &Url, credentials: &Credentials) -> Result<Report, Failure> {
    let server = url.as_str().trim_end_matches('/');
    let client = http::built(credentials.add_to(http::client(PATIENCE))?)?;
    let request = credentials.sign(client.get(format!("{server}/v1/check")))?;
    let answer = match http::send(request).await {
        Err(Failure::Problem(problem)) if problem.kind == "not-found" => {
            return Err(Failure::failed(format!(
                "{} does not examine itself there: give --url the address of --admin-listen (port 7421 \
                 unless set otherwise), from the same machine or as an operator; the server may also be older \
                 than this command",
                masked(server),
            )));
        }
        answer => answer?,
    };
    if answer.status() != StatusCode::OK {
        return Err(http::not_a_fencepost(answer.status().as_str()));
    }
    let text = answer.text().await.map_err(http::unreachable)?;
    let report: Report =
        serde_json::from_str(&text).map_err(|_| http::not_a_fencepost("no report"))?;
    Ok(report.by(&masked(server)))
}
