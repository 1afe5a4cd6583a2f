//! How to be let in by an etcd, and where the locks are in it.

use std::path::{Path, PathBuf};

use clap::Args;
use etcd_client::{Certificate, Identity, TlsOptions};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::{
    authority_url::{AuthorityUrl, EtcdUrl},
    source::{self, Secret, Source},
};
use crate::{
    authority::etcd::{EtcdOptions, Password, User, claimed_by},
    store::OwningAuthority,
};

const ETCD: &str = "etcd";

#[derive(Args, Clone, Debug)]
pub struct EtcdSettings {
    /// What every key starts with: a lock is then at PREFIX/NAME. Without one, `etcdctl lock NAME`
    /// and the lock NAME are the same
    #[arg(long, env = "FENCEPOST_ETCD_PREFIX", value_name = "PREFIX", help_heading = ETCD)]
    pub etcd_prefix: Option<String>,

    /// File with the certificates (PEM) to trust instead of the system's; implies TLS
    #[arg(long, env = "FENCEPOST_ETCD_CA", value_name = "FILE", help_heading = ETCD)]
    pub etcd_ca: Option<PathBuf>,

    /// File with a client certificate (PEM), and what leads up to it; implies TLS
    #[arg(long, env = "FENCEPOST_ETCD_CERT", value_name = "FILE", help_heading = ETCD)]
    pub etcd_cert: Option<PathBuf>,

    /// File with the private key (PEM) of that certificate; implies TLS
    #[arg(long, env = "FENCEPOST_ETCD_KEY", value_name = "FILE", help_heading = ETCD)]
    pub etcd_key: Option<PathBuf>,

    /// User to be known as, if --authority names none
    #[arg(long, env = "FENCEPOST_ETCD_USER", value_name = "USER", help_heading = ETCD)]
    pub etcd_user: Option<String>,

    /// That user's password. Not as an argument, which everybody can read: in the environment
    #[arg(long, env = "FENCEPOST_ETCD_PASSWORD", value_name = "PASSWORD", help_heading = ETCD)]
    pub etcd_password: Option<Secret>,

    /// File that holds the value of --etcd-password, to keep it out of the process list. It is read
    /// anew for every login, so that it can be changed without a restart
    #[arg(long, env = "FENCEPOST_ETCD_PASSWORD_FILE", value_name = "FILE", help_heading = ETCD)]
    pub etcd_password_file: Option<PathBuf>,
}

impl EtcdSettings {
    /// The authority that a store must belong to, as far as it is known without asking it.
    pub fn owning_authority(&self, url: &AuthorityUrl) -> OwningAuthority {
        match url {
            AuthorityUrl::None => OwningAuthority::none(),
            AuthorityUrl::Store => OwningAuthority::store(),
            AuthorityUrl::Etcd(_) => claimed_by(self.etcd_prefix.as_deref().unwrap_or_default()),
        }
    }

    pub fn choose(&mut self, source: impl Fn(&str) -> Source) -> Result<(), String> {
        source::choose("etcd_password", &mut self.etcd_password_file, &source)?;
        source::refuse_as_argument("etcd-password", source("etcd_password"))
    }

    /// Everything that is needed to connect. The error says what to mend.
    pub fn options(&self, url: &EtcdUrl) -> Result<EtcdOptions, String> {
        Ok(EtcdOptions {
            members: url.members.clone(),
            tls: self.tls(url)?,
            user: self.user(url)?,
            prefix: self.etcd_prefix.clone().unwrap_or_default(),
        })
    }

    fn user(&self, url: &EtcdUrl) -> Result<Option<User>, String> {
        let only_one = |flag: &str| format!("give it either in --authority or as {flag}, not both");
        let user = match (&url.user, &self.etcd_user) {
            (Some(_), Some(_)) => return Err(only_one("--etcd-user")),
            (user, other) => user.as_ref().or(other.as_ref()),
        };
        let given = match &self.etcd_password_file {
            Some(path) => {
                source::read_secret(path)
                    .map_err(|error| format!("--etcd-password-file {error}"))?;
                Some(Password::In(path.clone()))
            }
            None => self.etcd_password.as_ref().map(|secret| Password::Known(secret.0.clone())),
        };
        let password = match (&url.password, given) {
            (Some(_), Some(_)) => return Err(only_one("--etcd-password-file")),
            (password, given) => password.clone().map(Password::Known).or(given),
        };
        match (user, password) {
            (Some(name), Some(password)) => Ok(Some(User { name: name.clone(), password })),
            (None, None) => Ok(None),
            (Some(_), None) => Err("the user of etcd needs a password: --etcd-password-file, or \
                     FENCEPOST_ETCD_PASSWORD in the environment"
                .into()),
            (None, Some(_)) => Err("a password for etcd needs a user: --etcd-user".into()),
        }
    }

    fn tls(&self, url: &EtcdUrl) -> Result<Option<TlsOptions>, String> {
        if !url.tls && [&self.etcd_ca, &self.etcd_cert, &self.etcd_key].iter().all(|f| f.is_none())
        {
            return Ok(None);
        }
        let mut tls = TlsOptions::new();
        tls = match &self.etcd_ca {
            None => tls.with_native_roots(),
            Some(path) => {
                tls.ca_certificate(Certificate::from_pem(certificates("--etcd-ca", path)?))
            }
        };
        match (&self.etcd_cert, &self.etcd_key) {
            (None, None) => {}
            (Some(cert), Some(key)) => {
                let cert = certificates("--etcd-cert", cert)?;
                tls = tls.identity(Identity::from_pem(cert, private_key(key)?));
            }
            _ => return Err("--etcd-cert and --etcd-key need each other".into()),
        }
        Ok(Some(tls))
    }
}

/// A file of certificates, which is what it says it is.
fn certificates(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    let pem = read(flag, path)?;
    let sound = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match sound {
        Ok(certificates) if !certificates.is_empty() => Ok(pem),
        _ => Err(format!("{flag} {}: it holds no certificate in PEM form", path.display())),
    }
}

fn private_key(path: &Path) -> Result<Vec<u8>, String> {
    let pem = read("--etcd-key", path)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(pem),
        Err(_) => {
            Err(format!("--etcd-key {}: it holds no private key in PEM form", path.display()))
        }
    }
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{flag} {}: {error}", path.display()))
}
