//! `fencepost healthcheck`.

use std::time::{Duration, Instant};

use clap::Args;
use reqwest::Url;

use super::{
    block_on,
    client::{Trusted, http},
    exit::Failure,
    output,
};
use crate::settings::Time;

/// How often a server is asked that is being waited for.
const PAUSE: Duration = Duration::from_millis(100);

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

    #[command(flatten)]
    trusted: Trusted,

    /// How long to wait for it to become ready
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Time,
}

impl Healthcheck {
    pub fn run(self) -> Result<(), Failure> {
        let began = Instant::now();
        block_on(async {
            loop {
                match self.ask().await {
                    Err(failure) if failure.passes() && began.elapsed() < self.wait.0 => {
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(failure) => return Err(failure),
                    Ok(text) => return output::print(&text),
                }
            }
        })?
    }

    async fn ask(&self) -> Result<String, Failure> {
        let url = format!("{}/readyz?verbose", self.admin_url.as_str().trim_end_matches('/'));
        let client = self.trusted.add_to(http::client(Duration::from_secs(5)))?;
        let request = http::built(client)?.get(url);
        let answer = request.send().await.map_err(http::unreachable)?;
        let ready = answer.status().is_success();
        let text = answer.text().await.map_err(http::unreachable)?;
        if ready { Ok(text) } else { Err(Failure::Unavailable(text.trim_end().into())) }
    }
}
