//! Which form of an answer a client wants: a document, or events as they happen.

use axum::http::{HeaderMap, header};

use super::problem::{Kind, Problem};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Events,
}

/// Events only if they are preferred. A problem is a problem document in any case.
pub fn form(headers: &HeaderMap) -> Result<Form, Problem> {
    let mut ranges = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        let text = value.to_str().unwrap_or_default();
        ranges.extend(text.split(',').map(str::trim).filter(|range| !range.is_empty()));
    }
    if ranges.is_empty() {
        return Ok(Form::Json);
    }
    let json = preference(&ranges, "application", "json");
    let events = preference(&ranges, "text", "event-stream");
    match (json, events) {
        (None, None) => {
            let detail = "this can be had as application/json or as text/event-stream";
            Err(Problem::new(Kind::NotAcceptable, detail))
        }
        (json, events) if events > json => Ok(Form::Events),
        _ => Ok(Form::Json),
    }
}

/// How much a media type is wanted, and how plainly that was said; `None` where it is not wanted.
fn preference(ranges: &[&str], kind: &str, subtype: &str) -> Option<(u16, u8)> {
    let matching = ranges.iter().filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let (range_kind, range_subtype) = parts.next()?.split_once('/')?;
        let is = |range: &str, exact: &str| range.eq_ignore_ascii_case(exact);
        let plainness = match (range_kind, range_subtype) {
            (k, s) if is(k, kind) && is(s, subtype) => 2,
            (k, "*") if is(k, kind) => 1,
            ("*", "*") => 0,
            _ => return None,
        };
        let weight = parts.find_map(|part| {
            part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")).map(thousandths)
        });
        Some((plainness, weight.unwrap_or(1000)))
    });
    // The plainest range decides.
    let (plainness, weight) = matching.max_by_key(|(plainness, _)| *plainness)?;
    (weight > 0).then_some((weight, plainness))
}

/// `0.5` as 500. What is no weight is taken as none having been given.
fn thousandths(weight: &str) -> u16 {
    match weight.parse::<f32>() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 1000"
        )]
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0).round() as u16,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn form_of(accept: &'static str) -> Option<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        form(&headers).ok()
    }

    #[test]
    fn events_are_for_those_who_prefer_them() {
        assert_eq!(form(&HeaderMap::new()).ok(), Some(Form::Json));
        for accept in [
            "",
            "*/*",
            "application/json",
            "application/*",
            "application/json, text/event-stream",
            "text/event-stream;q=0.5, application/json",
            "text/event-stream;q=0, */*",
            "text/event-stream; q=0.9, */*",
            "text/html, */*;q=0.1",
        ] {
            assert_eq!(form_of(accept), Some(Form::Json), "{accept}");
        }
        for accept in [
            "text/event-stream",
            "Text/Event-Stream",
            "text/event-stream, */*",
            "text/event-stream, application/json;q=0.9",
            "text/*",
            "application/json;q=0, */*",
        ] {
            assert_eq!(form_of(accept), Some(Form::Events), "{accept}");
        }
        for accept in ["text/html", "application/xml;q=1, image/*", "application/json;q=0", "json"]
        {
            assert_eq!(form_of(accept), None, "{accept}");
        }
    }
}
