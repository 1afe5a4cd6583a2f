//! `fencepost list`.

use clap::Args;
use serde_json::json;

use super::{
    Server,
    pages::{self, Wanted},
};
use crate::cli::exit::Failure;

const COLUMNS: [&str; 5] = ["key", "version", "token", "size", "content_type"];

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
        let wanted = Wanted { prefix: &self.prefix, after: self.after.clone(), limit: self.limit };
        let (rows, next) = pages::all(&self.server, "/v1/resources", "resources", wanted).await?;
        let document = json!({ "resources": rows, "next": next });
        self.server.output.rows(&COLUMNS, &rows, &document)?;
        pages::tell_of_more(next.as_ref());
        Ok(())
    }
}
