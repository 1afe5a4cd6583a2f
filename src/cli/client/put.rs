//! `fencepost put`.

use std::{io::Read, path::PathBuf};

use clap::Args;
use reqwest::{Method, header};

use super::{Fencing, Precondition, Server, http};
use crate::cli::exit::Failure;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    fencepost put --token 7 orders/42 paid\n  \
    fencepost put --token 7 --seq 3 orders/42 --file order.json --content-type application/json\n  \
    tar c . | fencepost put --token 7 backups/today --file -")]
pub struct Put {
    /// Key to write, such as orders/42
    key: String,

    /// The value; or use --file
    #[arg(required_unless_present = "file")]
    value: Option<String>,

    /// Read the value from a file, or from standard input if it is `-`
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,

    /// What the bytes are; given back to readers
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    #[command(flatten)]
    fencing: Fencing,

    #[command(flatten)]
    precondition: Precondition,

    #[command(flatten)]
    server: Server,
}

impl Put {
    pub async fn run(self) -> Result<(), Failure> {
        let from_file = self.file.is_some();
        let body = match (self.value, self.file) {
            (Some(value), _) => value.into_bytes(),
            (None, Some(path)) => read(&path)?,
            (None, None) => Vec::new(),
        };
        let content_type = self.content_type.unwrap_or_else(|| {
            let default =
                if from_file { "application/octet-stream" } else { "text/plain; charset=utf-8" };
            default.into()
        });
        let request = self.server.request(Method::PUT, "/v1/resources/", &self.key)?;
        let request = self.precondition.add_to(self.fencing.add_to(request));
        let request = request.header(header::CONTENT_TYPE, content_type).body(body);
        let written = http::json(http::send(request).await?).await?;
        self.server.output.object(&["key", "version", "token"], &written)
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    let read = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))
}
