//! How a client command proves who it is, and whom it trusts. No secret is an argument, where every
//! user of the machine could read it.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::{Certificate, ClientBuilder, Identity, RequestBuilder};

use crate::cli::exit::Failure;

/// Instead of a file. Not a flag.
const BEARER: &str = "FENCEPOST_BEARER";

#[derive(Args, Clone, Default)]
pub struct Credentials {
    /// File with a bearer token to present; the token itself can be in `FENCEPOST_BEARER`
    #[arg(long, env = "FENCEPOST_BEARER_FILE", value_name = "FILE", help_heading = "Access")]
    bearer_file: Option<PathBuf>,

    #[command(flatten)]
    trusted: Trusted,

    /// File with a client certificate (PEM) to present
    #[arg(
        long,
        env = "FENCEPOST_CLIENT_CERT",
        value_name = "FILE",
        requires = "client_key",
        help_heading = "Access"
    )]
    client_cert: Option<PathBuf>,

    /// File with the private key (PEM) of that certificate
    #[arg(
        long,
        env = "FENCEPOST_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert",
        help_heading = "Access"
    )]
    client_key: Option<PathBuf>,
}

/// Whom to believe that it is the server.
#[derive(Args, Clone, Default)]
pub struct Trusted {
    /// File with the certificates (PEM) to trust instead of the system's
    #[arg(long, env = "FENCEPOST_CA", value_name = "FILE", help_heading = "Access")]
    ca: Option<PathBuf>,
}

impl Trusted {
    pub fn add_to(&self, client: ClientBuilder) -> Result<ClientBuilder, Failure> {
        let Some(path) = &self.ca else { return Ok(client) };
        let trusted = Certificate::from_pem_bundle(&read("--ca", path)?).ok();
        let trusted = trusted.filter(|trusted| !trusted.is_empty());
        Ok(client.tls_certs_only(trusted.ok_or_else(|| no_pem("--ca", path))?))
    }
}

impl Credentials {
    pub fn add_to(&self, client: ClientBuilder) -> Result<ClientBuilder, Failure> {
        let client = self.trusted.add_to(client)?;
        let (Some(cert), Some(key)) = (&self.client_cert, &self.client_key) else {
            return Ok(client);
        };
        let pem =
            [read("--client-key", key)?, b"\n".to_vec(), read("--client-cert", cert)?].concat();
        Ok(client.identity(
            Identity::from_pem(&pem).map_err(|_| no_pem("--client-cert or --client-key", cert))?,
        ))
    }

    /// With the bearer token, if there is one. The file wins: it was named for this run.
    pub fn sign(&self, request: RequestBuilder) -> Result<RequestBuilder, Failure> {
        let bearer = match &self.bearer_file {
            Some(path) => Some(String::from_utf8_lossy(&read("--bearer-file", path)?).into_owned()),
            None => std::env::var(BEARER).ok(),
        };
        Ok(match bearer.as_deref().map(str::trim).filter(|bearer| !bearer.is_empty()) {
            Some(bearer) => request.bearer_auth(bearer),
            None => request,
        })
    }
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::settings(format!("{flag} {}: {error}", path.display())))
}

fn no_pem(flag: &str, path: &Path) -> Failure {
    Failure::settings(format!("{flag} {}: it is not PEM of what it should hold", path.display()))
}
