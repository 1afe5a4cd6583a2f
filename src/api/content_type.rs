//! What a value's bytes are, in the words of whoever wrote them. It is kept as it was said, and sent
//! back in a header, so it must be fit for one.

use axum::http::{HeaderMap, header};

use super::{
    extract,
    named::{Name, Named},
    problem::{Kind, Problem},
};

/// Where nothing was said.
pub const BYTES: &str = "application/octet-stream";
pub const JSON: &str = "application/json";

const MAX_BYTES: usize = 256;

/// What a request says that its body is.
pub fn of_request(headers: &HeaderMap, named: Named) -> Result<String, Problem> {
    if named.has(Name::NotKept) {
        refuse_what_is_not_kept(headers)?;
    }
    match extract::only(headers, &header::CONTENT_TYPE, Kind::InvalidRequest)? {
        None | Some("") => Ok(BYTES.into()),
        Some(text) if text.len() > MAX_BYTES => {
            let detail = format!("Content-Type is longer than {MAX_BYTES} bytes");
            Err(Problem::new(Kind::InvalidRequest, detail))
        }
        Some(text) => Ok(text.into()),
    }
}

/// Only the bytes and their type are kept, so whatever else describes them would be lost.
fn refuse_what_is_not_kept(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        let detail = "Content-Encoding is not kept; send the bytes as they are to be read";
        return Err(Problem::new(Kind::UnsupportedMediaType, detail));
    }
    if headers.contains_key(header::CONTENT_RANGE) {
        let detail = "a resource is written as a whole; Content-Range is not supported";
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    Ok(())
}

/// For a body that must be JSON; `what` begins the sentence that says so.
pub fn require_json(headers: &HeaderMap, what: &str) -> Result<(), Problem> {
    let content_type =
        extract::only(headers, &header::CONTENT_TYPE, Kind::InvalidRequest)?.unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(JSON) {
        return Ok(());
    }
    Err(Problem::new(Kind::UnsupportedMediaType, format!("{what} sent as application/json")))
}

/// Whether text from elsewhere than a header could stand in one.
pub fn is_header_text(text: &str) -> bool {
    (1..=MAX_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}
