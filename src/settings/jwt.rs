//! Whose JWTs are believed.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use clap::Args;
use url::Url;

use super::access::{ACCESS, watch};
use crate::{
    auth::{
        jwt::{Jwt, KeySet, Keys, keys::Published},
        watched::Parse,
    },
    metrics::{AccessFile, Metrics},
};

#[derive(Args, Clone, Debug)]
pub struct JwtSettings {
    /// Where the keys are that JWTs are signed with: a JWKS, as a file or at an `https://` address
    #[arg(long, env = "FENCEPOST_JWT_KEYS", value_name = "FILE|URL", help_heading = ACCESS)]
    pub jwt_keys: Option<KeysAt>,

    /// Who must have issued a JWT: its `iss`
    #[arg(long, env = "FENCEPOST_JWT_ISSUER", value_name = "URL", help_heading = ACCESS)]
    pub jwt_issuer: Option<String>,

    /// For whom a JWT must have been issued: one of its `aud`
    #[arg(long, env = "FENCEPOST_JWT_AUDIENCE", value_name = "NAME", help_heading = ACCESS)]
    pub jwt_audience: Option<String>,

    /// File with the certificates (PEM) to trust instead of the system's when asking for those keys
    #[arg(long, env = "FENCEPOST_JWT_KEYS_CA", value_name = "FILE", help_heading = ACCESS)]
    pub jwt_keys_ca: Option<PathBuf>,

    /// File with a bearer token to ask for those keys with; Kubernetes wants one
    #[arg(long, env = "FENCEPOST_JWT_KEYS_TOKEN_FILE", value_name = "FILE", help_heading = ACCESS)]
    pub jwt_keys_token_file: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysAt {
    File(PathBuf),
    Url(Url),
}

impl FromStr for KeysAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        let here = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
        match url.scheme() {
            "https" => Ok(Self::Url(url)),
            "http" if here => Ok(Self::Url(url)),
            _ => Err("write it as https://…, or as the name of a file: over anything else, \
                      anybody on the way could put keys of their own there"
                .into()),
        }
    }
}

impl JwtSettings {
    pub fn check(&self) -> Result<(), String> {
        let given = [
            self.jwt_keys.is_some(),
            self.jwt_issuer.as_ref().is_some_and(|text| !text.is_empty()),
            self.jwt_audience.as_ref().is_some_and(|text| !text.is_empty()),
        ];
        if given.contains(&true) && given.contains(&false) {
            return Err("--jwt-keys, --jwt-issuer and --jwt-audience need each other: a JWT that \
                 was issued by or for somebody else proves nothing here"
                .into());
        }
        let for_a_url = self.jwt_keys_ca.is_some() || self.jwt_keys_token_file.is_some();
        if for_a_url && !matches!(self.jwt_keys, Some(KeysAt::Url(_))) {
            return Err("--jwt-keys-ca and --jwt-keys-token-file are for a --jwt-keys that is an \
                 address"
                .into());
        }
        Ok(())
    }

    /// Needs a runtime around it.
    pub fn open(&self, metrics: &Arc<Metrics>) -> Result<Option<Jwt>, String> {
        let (Some(at), Some(issuer), Some(audience)) =
            (&self.jwt_keys, &self.jwt_issuer, &self.jwt_audience)
        else {
            return Ok(None);
        };
        let keys = match at {
            KeysAt::File(path) => {
                let parse: Parse<_> = Box::new(|contents| KeySet::parse(&contents[0]));
                let files = vec![path.clone()];
                Keys::File(watch("--jwt-keys", files, parse, AccessFile::Jwks, metrics)?)
            }
            KeysAt::Url(url) => {
                let token_file = self.jwt_keys_token_file.clone();
                let published =
                    Published::new(url.clone(), self.client()?, token_file, metrics.clone())?;
                let published = Arc::new(published);
                tokio::spawn(published.clone().keep());
                Keys::Url(published)
            }
        };
        Ok(Some(Jwt::new(issuer.clone(), audience.clone(), keys)))
    }

    fn client(&self) -> Result<reqwest::ClientBuilder, String> {
        // Fails if it is already there, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder();
        let Some(path) = &self.jwt_keys_ca else { return Ok(client) };
        let told =
            |error: &dyn std::fmt::Display| format!("--jwt-keys-ca {}: {error}", path.display());
        let pem = std::fs::read(path).map_err(|error| told(&error))?;
        let trusted = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| told(&error))?;
        Ok(client.tls_certs_only(trusted))
    }
}
