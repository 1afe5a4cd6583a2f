//! `fencepost rejections`.

mod follow;
mod row;

use clap::Args;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::{Server, http};
use crate::cli::{exit::Failure, output};

const PATH: &str = "/v1/rejections";

#[derive(Args)]
#[command(after_help = "\
The newest are at the bottom. LAG is how far the token was behind the mark; OVERTAKEN_BY, the owner \
of the grant that has the mark's token, where the server knows it. In a pipe, or with -o json: one \
line of JSON for each.

With --follow: the same, and then each as it happens. If the server goes away, that is said on \
standard error, and it is tried again.

Examples:
  fencepost rejections --since 5m
  fencepost rejections --key orders/42 --reason stale-token --follow
  fencepost rejections -o json | jq -r .client | sort | uniq -c")]
pub struct Rejections {
    /// Go on with each as it happens
    #[arg(short, long)]
    follow: bool,

    /// Only writes of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// Only those refused for this reason, such as `stale-token`
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,

    /// Only those from this moment on (`2026-01-31T12:00:00Z`), or that long ago (`5m`)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,

    /// How many at most, 1000 being the most; with --follow, to begin with
    #[arg(long, value_name = "N", default_value = "100")]
    limit: String,

    #[command(flatten)]
    server: Server,
}

impl Rejections {
    pub async fn run(self) -> Result<(), Failure> {
        if self.follow {
            return self.follow().await;
        }
        let rows = self.list(self.since.as_deref()).await?;
        if self.server.output.is_table() {
            let rows: Vec<Value> = rows.iter().map(row::of_table).collect();
            return self.server.output.rows(&row::COLUMNS, &rows, &Value::Null);
        }
        for row in rows {
            if !output::print_more(&format!("{row}\n"))? {
                break;
            }
        }
        Ok(())
    }

    /// The oldest first: on a terminal one looks at the bottom.
    async fn list(&self, since: Option<&str>) -> Result<Vec<Value>, Failure> {
        let mut listing = http::json(http::send(self.request(since)?).await?).await?;
        let Value::Array(mut rows) = listing["rejections"].take() else {
            return Err(http::not_a_fencepost("something other than rejections"));
        };
        rows.reverse();
        Ok(rows)
    }

    /// As it is: the server is the one to judge what is valid.
    fn request(&self, since: Option<&str>) -> Result<RequestBuilder, Failure> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &self.limit);
        let given =
            [("key", self.key.as_deref()), ("reason", self.reason.as_deref()), ("since", since)];
        for (name, value) in given {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        self.server.request(Method::GET, &format!("{PATH}?{}", query.finish()), "")
    }
}
