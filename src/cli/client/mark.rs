//! `fencepost mark` and `fencepost claim`.

use clap::Args;
use reqwest::Method;

use super::{Fencing, Server, http};
use crate::cli::exit::Failure;

const PATH: &str = "/v1/marks/";
const COLUMNS: [&str; 3] = ["key", "token", "seq"];

#[derive(Args)]
pub struct Show {
    /// Key to look at
    key: String,

    #[command(flatten)]
    server: Server,
}

impl Show {
    pub async fn run(self) -> Result<(), Failure> {
        let request = self.server.request(Method::GET, PATH, &self.key)?;
        let mark = http::json(http::send(request).await?).await?;
        self.server.output.object(&COLUMNS, &mark)
    }
}

#[derive(Args)]
#[command(after_help = "From then on every older token is refused, even before the first write.")]
pub struct Claim {
    /// Key to claim
    key: String,

    #[command(flatten)]
    fencing: Fencing,

    #[command(flatten)]
    server: Server,
}

impl Claim {
    pub async fn run(self) -> Result<(), Failure> {
        let request = self.server.request(Method::PUT, PATH, &self.key)?;
        let mark = http::json(http::send(self.fencing.add_to(request)?).await?).await?;
        self.server.output.object(&COLUMNS, &mark)
    }
}
