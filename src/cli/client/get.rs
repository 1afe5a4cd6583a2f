//! `fencepost get`.

use std::io::IsTerminal;

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use reqwest::{Method, header};
use serde_json::json;

use super::{Server, http, scope::Scope};
use crate::{
    api,
    cli::{
        exit::Failure,
        output::{self, Format},
    },
};

#[derive(Args)]
#[command(
    after_help = "Prints the bytes as they were written; -o json adds version, token and type. \
    With --token it is a fenced read: it claims the key first, so that no older holder can write \
    between this read and your next write. A read without a token protects nothing."
)]
pub struct Get {
    /// Key to read, such as orders/42
    key: String,

    #[command(flatten)]
    server: Server,

    /// Claim the key with this fencing token, then read
    #[arg(long, env = "FENCEPOST_TOKEN", value_name = "TOKEN")]
    token: Option<String>,

    #[command(flatten)]
    scope: Scope,
}

impl Get {
    pub async fn run(self) -> Result<(), Failure> {
        let request = self.server.request(Method::GET, "/v1/resources/", &self.key)?;
        if self.token.is_none() && self.scope.is_given() {
            return Err(Failure::settings("--scope is for a fenced read: give --token as well"));
        }
        let scope = self.scope.under(self.token.as_deref())?.as_deref().map(http::encoded);
        let request = http::add(request, api::FENCING_TOKEN, self.token);
        let response = http::send(http::add(request, api::FENCING_SCOPE, scope)).await?;
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().ok()?.to_owned())
        };
        let content_type = header(header::CONTENT_TYPE.as_str());
        let version = header(header::ETAG.as_str())
            .and_then(|etag| etag.trim_matches('"').parse::<i64>().ok());
        let mark = header(api::FENCING_MARK.as_str()).and_then(|mark| mark.parse::<i64>().ok());
        if mark.is_none() {
            return Err(http::not_a_fencepost("a page"));
        }
        let body = response.bytes().await.map_err(http::unreachable)?;
        if self.server.output != Format::Json {
            return show(&body, content_type.as_deref());
        }
        let mut document = json!({
            "key": self.key, "version": version, "token": mark, "content_type": content_type,
        });
        match std::str::from_utf8(&body) {
            Ok(text) => document["value"] = json!(text),
            Err(_) => document["value_base64"] = json!(BASE64_STANDARD.encode(&body)),
        }
        output::print(&format!("{document}\n"))
    }
}

/// The bytes as they are, except on a terminal, where a stranger's control characters could do
/// harm.
fn show(body: &[u8], content_type: Option<&str>) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return output::write_out(body);
    }
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(Failure::failed(format!(
            "the value is {} bytes of {}, and no text; send it to a file, or use -o json",
            body.len(),
            content_type.unwrap_or("an unknown type"),
        )));
    };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    output::print(&format!("{}{end}", output::printable(text)))
}
