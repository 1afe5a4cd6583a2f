//! Who may come in, over what, and what they may do.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::{Args, builder::BoolishValueParser};

use super::jwt::JwtSettings;
use crate::{
    auth::{
        Gate,
        gate::SharedGate,
        policy::Policy,
        tokens::Tokens,
        watched::{Parse, Watched, Watcher},
    },
    metrics::{AccessFile, Metrics},
    server::tls::{self, ClientCertificates, Tls, TlsFiles},
};

pub const ACCESS: &str = "Access";

#[derive(Args, Clone, Debug)]
pub struct AccessSettings {
    /// File with this server's certificate (PEM), and what leads up to it; read anew when it changes
    #[arg(long, env = "FENCEPOST_TLS_CERT", value_name = "FILE", help_heading = ACCESS)]
    pub tls_cert: Option<PathBuf>,

    /// File with the private key (PEM) of that certificate
    #[arg(long, env = "FENCEPOST_TLS_KEY", value_name = "FILE", help_heading = ACCESS)]
    pub tls_key: Option<PathBuf>,

    /// File with the certificates (PEM) of those who sign clients' certificates: a client is who its
    /// SAN says. One is required if there is no other way to prove that
    #[arg(long, env = "FENCEPOST_TLS_CLIENT_CA", value_name = "FILE", help_heading = ACCESS)]
    pub tls_client_ca: Option<PathBuf>,

    /// Use that certificate for --admin-listen too
    #[arg(
        long,
        env = "FENCEPOST_ADMIN_TLS",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        help_heading = ACCESS
    )]
    pub admin_tls: bool,

    /// File with bearer tokens, as `fencepost token` makes them; read anew when it changes
    #[arg(long, env = "FENCEPOST_TOKENS_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub tokens_file: Option<PathBuf>,

    #[command(flatten)]
    pub jwt: JwtSettings,

    /// File (TOML) that says who may do what; read anew when it changes. Without it, whoever is
    /// known may do everything but see what was refused
    #[arg(long, env = "FENCEPOST_POLICY", value_name = "FILE", help_heading = ACCESS)]
    pub policy: Option<PathBuf>,

    /// Accept that anybody who can reach --listen can read, write and lock everything
    #[arg(
        long,
        env = "FENCEPOST_INSECURE",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        help_heading = ACCESS
    )]
    pub insecure: bool,
}

/// Who can reach the public address, and what stands in their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Nobody but this machine.
    Loopback,
    /// Whoever proves who they are, over TLS.
    Guarded,
    /// Something is missing, and somebody has accepted that.
    Accepted,
}

/// All that the server needs, and keeps up to date.
pub struct Opened {
    pub gate: SharedGate,
    pub tls: Option<Tls>,
    pub admin_tls: Option<Tls>,
}

impl AccessSettings {
    /// Whether there is any way to prove who one is.
    pub fn authenticates(&self) -> bool {
        self.ways() > 0
    }

    /// How many there are.
    pub fn ways(&self) -> usize {
        let ways =
            [self.tokens_file.is_some(), self.jwt.jwt_keys.is_some(), self.tls_client_ca.is_some()];
        ways.into_iter().filter(|configured| *configured).count()
    }

    /// What makes no sense together. The error says what to mend.
    pub fn check(&self) -> Result<(), String> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err("--tls-cert and --tls-key need each other".into());
        }
        if self.tls_cert.is_none() && self.tls_client_ca.is_some() {
            return Err("--tls-client-ca needs --tls-cert and --tls-key".into());
        }
        if self.tls_cert.is_none() && self.admin_tls {
            return Err("--admin-tls needs --tls-cert and --tls-key".into());
        }
        self.jwt.check()?;
        if self.policy.is_some() && !self.authenticates() {
            return Err("--policy says what whom is allowed, but nobody can prove who they are: \
                 give --tokens-file, --jwt-keys or --tls-client-ca"
                .into());
        }
        Ok(())
    }

    /// The error says why it must not be served like this.
    pub fn exposure(&self, listen: SocketAddr) -> Result<Exposure, String> {
        let mut missing = Vec::new();
        if !self.authenticates() {
            missing
                .push("a way to prove who one is (--tokens-file, --jwt-keys or --tls-client-ca)");
        }
        if self.tls_cert.is_none() {
            missing.push("TLS (--tls-cert and --tls-key)");
        }
        match (listen.ip().to_canonical().is_loopback(), missing.is_empty(), self.insecure) {
            (true, _, _) => Ok(Exposure::Loopback),
            (false, true, _) => Ok(Exposure::Guarded),
            (false, false, true) => Ok(Exposure::Accepted),
            (false, false, false) => Err(format!(
                "--listen {listen} can be reached from elsewhere, and whoever reaches it could read, \
                 write and lock everything. It needs {}. Or listen on 127.0.0.1; or say --insecure \
                 if you accept that (docs/access.md)",
                missing.join(" and ")
            )),
        }
    }

    pub fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone(),
        })
    }

    /// Whoever has another way to prove who they are needs no certificate.
    pub fn client_certificates(&self) -> ClientCertificates {
        if self.tokens_file.is_some() || self.jwt.jwt_keys.is_some() {
            ClientCertificates::Optional
        } else {
            ClientCertificates::Required
        }
    }

    /// Reads everything, and goes on looking after it. Needs a runtime around it.
    pub fn open(&self, metrics: &Arc<Metrics>) -> Result<Opened, String> {
        self.check()?;
        let tls = self.listener(self.client_certificates(), metrics)?;
        let admin_tls = if self.admin_tls {
            self.listener(ClientCertificates::Optional, metrics)?
        } else {
            None
        };
        Ok(Opened { gate: self.gate(metrics)?, tls, admin_tls })
    }

    fn listener(
        &self,
        clients: ClientCertificates,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Tls>, String> {
        let Some(files) = self.files() else { return Ok(None) };
        let parse: Parse<_> = Box::new(move |contents| tls::config(contents, clients));
        let config = watch("--tls-cert", files.paths(), parse, AccessFile::Tls, metrics)?;
        Ok(Some(Tls::new(config, metrics.clone())))
    }

    fn gate(&self, metrics: &Arc<Metrics>) -> Result<SharedGate, String> {
        if !self.authenticates() {
            return Ok(None);
        }
        let tokens = self.tokens_file.as_ref().map(|path| {
            let parse: Parse<_> = Box::new(|contents| Tokens::parse(&contents[0]));
            watch("--tokens-file", vec![path.clone()], parse, AccessFile::Tokens, metrics)
        });
        let policy = self.policy.as_ref().map(|path| {
            let parse: Parse<_> = Box::new(|contents| Policy::parse(&contents[0]));
            watch("--policy", vec![path.clone()], parse, AccessFile::Policy, metrics)
        });
        Ok(Some(Arc::new(Gate {
            tokens: tokens.transpose()?,
            jwt: self.jwt.open(metrics)?,
            certificates: self.tls_client_ca.is_some(),
            policy: policy.transpose()?,
        })))
    }
}

/// Reads files now, and again whenever they change.
pub(super) fn watch<T: Send + Sync + 'static>(
    flag: &str,
    files: Vec<PathBuf>,
    parse: Parse<T>,
    kind: AccessFile,
    metrics: &Arc<Metrics>,
) -> Result<Watched<T>, String> {
    let (contents, watcher) =
        Watcher::start(files, parse).map_err(|error| format!("{flag} {error}"))?;
    tokio::spawn(watcher.run(kind, metrics.clone()));
    Ok(contents)
}
