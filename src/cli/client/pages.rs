//! Listings come in pages; whoever asks for a list wants all of it.

use std::io::{IsTerminal, Write};

use reqwest::Method;
use serde_json::Value;

use super::{Server, http};
use crate::cli::{exit::Failure, output};

const PAGE: usize = 1000;

pub struct Wanted<'a> {
    pub prefix: &'a str,
    pub after: String,
    pub limit: Option<usize>,
}

/// The rows that stand in `member` of each page, and where to go on if there are more than wanted.
pub async fn all(
    server: &Server,
    path: &str,
    member: &str,
    mut wanted: Wanted<'_>,
) -> Result<(Vec<Value>, Option<Value>), Failure> {
    let mut rows: Vec<Value> = Vec::new();
    loop {
        let count = wanted.limit.map_or(PAGE, |limit| (limit - rows.len()).min(PAGE));
        if count == 0 {
            let last = rows.last().map(|last| name_of(last).clone());
            return Ok((rows, last));
        }
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("prefix", wanted.prefix)
            .append_pair("after", &wanted.after)
            .append_pair("limit", &count.to_string())
            .finish();
        let request = server.request(Method::GET, &format!("{path}?{query}"), "")?;
        let mut page = http::json(http::send(request).await?).await?;
        if let Value::Array(found) = page[member].take() {
            rows.extend(found);
        }
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut wanted.after),
            None => return Ok((rows, None)),
        }
    }
}

/// Resources have keys, locks have names.
fn name_of(row: &Value) -> &Value {
    row.get("key").unwrap_or(&row["name"])
}

/// A person sees a table and nothing of the document around it.
pub fn tell_of_more(next: Option<&Value>) {
    if let Some(last) = next.and_then(Value::as_str)
        && std::io::stderr().is_terminal()
    {
        let last = output::printable(last);
        let _ = writeln!(std::io::stderr(), "there are more; go on with --after {last:?}");
    }
}
