//! `fencepost delete`.

use clap::Args;
use reqwest::Method;
use serde_json::json;

use super::{Fencing, Precondition, Server, http};
use crate::{api, cli::exit::Failure};

#[derive(Args)]
pub struct Delete {
    /// Key to delete
    key: String,

    #[command(flatten)]
    fencing: Fencing,

    #[command(flatten)]
    precondition: Precondition,

    #[command(flatten)]
    server: Server,
}

impl Delete {
    pub async fn run(self) -> Result<(), Failure> {
        let request = self.server.request(Method::DELETE, "/v1/resources/", &self.key)?;
        let request = self.precondition.add_to(self.fencing.add_to(request)?);
        let response = http::send(request).await?;
        let mark = response.headers().get(api::FENCING_MARK);
        let mark = mark.and_then(|mark| mark.to_str().ok()?.parse::<i64>().ok());
        self.server.output.object(&["key", "token"], &json!({ "key": self.key, "token": mark }))
    }
}
