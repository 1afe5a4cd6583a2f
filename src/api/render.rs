//! Answers: JSON bodies and the headers that every resource answer carries.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Serialize;

use super::FENCING_MARK;
use crate::{fence::Standing, token::Version};

pub fn json(status: StatusCode, document: &impl Serialize) -> Response {
    // Plain structs of strings and numbers: there is nothing in them that could fail to serialize.
    let body = serde_json::to_vec(document).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// `X-Fencing-Mark`, and `ETag` where there is a value.
pub fn fencing_headers(standing: &Standing) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(FENCING_MARK, HeaderValue::from(standing.mark.token));
    if standing.present {
        headers.insert(header::ETAG, etag(standing.version));
    }
    headers
}

fn etag(version: Version) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\""))
        .expect("digits between quotes are a valid header value")
}
