//! `fencepost healthcheck`.

use std::time::Duration;

use clap::Args;
use reqwest::Url;

use super::{block_on, client::http, exit::Failure, output};

#[derive(Args)]
pub struct Healthcheck {
    /// Address of the server's admin listener
    #[arg(
        long,
        env = "FENCEPOST_ADMIN_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:7421",
        value_parser = http::server_url
    )]
    admin_url: Url,
}

impl Healthcheck {
    pub fn run(self) -> Result<(), Failure> {
        let url = format!("{}/readyz?verbose", self.admin_url.as_str().trim_end_matches('/'));
        block_on(async {
            let request = http::client(Duration::from_secs(5))?.get(url);
            let answer = request.send().await.map_err(http::unreachable)?;
            let ready = answer.status().is_success();
            let text = answer.text().await.map_err(http::unreachable)?;
            if ready {
                output::print(&text)
            } else {
                Err(Failure::Unavailable(text.trim_end().into()))
            }
        })?
    }
}
