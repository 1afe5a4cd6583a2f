//! `fencepost put`.

use std::{
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
};

use clap::Args;
use reqwest::{Method, header};

use super::{Fencing, Precondition, Server, http};
use crate::cli::exit::Failure;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    fencepost put --token 7 orders/42 paid\n  \
    fencepost put --token 7 --seq 3 orders/42 --file order.json --content-type application/json\n  \
    tar c . | fencepost put --token 7 backups/today\n\n\
    Without VALUE and --file, the value is read from standard input, unless that is a terminal or empty: an \
    empty value is written only by `put KEY ''` or `--file -`.")]
pub struct Put {
    /// Key to write, such as orders/42
    key: String,

    /// The value [default: standard input]
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
        let from_file = self.value.is_none();
        let body = match (self.value, self.file) {
            (Some(value), _) => value.into_bytes(),
            (None, Some(path)) => read(&path)?,
            (None, None) => piped()?,
        };
        let content_type = self.content_type.unwrap_or_else(|| {
            let default =
                if from_file { "application/octet-stream" } else { "text/plain; charset=utf-8" };
            default.into()
        });
        let request = self.server.request(Method::PUT, "/v1/resources/", &self.key)?;
        let request = self.precondition.add_to(self.fencing.add_to(request)?);
        let request = request.header(header::CONTENT_TYPE, content_type).body(body);
        let written = http::json(http::send(request).await?).await?;
        self.server.output.object(&["key", "version", "token"], &written)
    }
}

/// The value where the command names none. Under cron or systemd, standard input is `/dev/null`, and where a
/// program before the pipe has failed, nothing comes through it: neither is meant to empty the resource.
fn piped() -> Result<Vec<u8>, Failure> {
    let missing = |why: &str| {
        Failure::settings(format!(
            "no value: {why}; give VALUE, --file, or pipe it in (an empty value is '' or --file -)"
        ))
    };
    if std::io::stdin().is_terminal() {
        return Err(missing("standard input is a terminal"));
    }
    let bytes = read(Path::new("-"))?;
    if bytes.is_empty() {
        return Err(missing("standard input is empty"));
    }
    Ok(bytes)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display())))
}
