//! `fencepost list`.

use std::io::{IsTerminal, Write};

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Server, http};
use crate::cli::{exit::Failure, output};

const COLUMNS: [&str; 5] = ["key", "version", "token", "size", "content_type"];
const PAGE: usize = 1000;

#[derive(Args)]
pub struct List {
    /// Only keys that start with this [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// Only keys that come after this one
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    after: String,

    /// At most this many [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    #[command(flatten)]
    server: Server,
}

impl List {
    pub async fn run(self) -> Result<(), Failure> {
        let mut rows: Vec<Value> = Vec::new();
        let mut after = self.after.clone();
        let next = loop {
            let wanted = self.limit.map_or(PAGE, |limit| (limit - rows.len()).min(PAGE));
            if wanted == 0 {
                break rows.last().map(|last| last["key"].clone());
            }
            let (page, next) = self.page(&after, wanted).await?;
            rows.extend(page);
            match next {
                Some(key) => after = key,
                None => break None,
            }
        };
        let document = json!({ "resources": rows, "next": next });
        self.server.output.rows(&COLUMNS, &rows, &document)?;
        if let Some(last) = next.as_ref().and_then(Value::as_str)
            && std::io::stderr().is_terminal()
        {
            let last = output::printable(last);
            let _ = writeln!(std::io::stderr(), "there are more; go on with --after {last:?}");
        }
        Ok(())
    }

    async fn page(
        &self,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Value>, Option<String>), Failure> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("prefix", &self.prefix)
            .append_pair("after", after)
            .append_pair("limit", &limit.to_string())
            .finish();
        let request = self.server.request(Method::GET, &format!("/v1/resources?{query}"), "")?;
        let mut page = http::json(http::send(request).await?).await?;
        let next = page["next"].as_str().map(str::to_owned);
        let rows = match page["resources"].take() {
            Value::Array(rows) => rows,
            _ => Vec::new(),
        };
        Ok((rows, next))
    }
}
