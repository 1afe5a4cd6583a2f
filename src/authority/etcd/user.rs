//! Who we are to etcd.

use std::path::PathBuf;

use super::trouble::Trouble;
use crate::settings::read_secret;

#[derive(Clone)]
pub struct User {
    pub name: String,
    pub password: Password,
}

#[derive(Clone)]
pub enum Password {
    Known(String),
    /// Read anew for every login, so that it can be changed without a restart.
    In(PathBuf),
}

impl Password {
    pub fn now(&self) -> Result<String, Trouble> {
        match self {
            Self::Known(password) => Ok(password.clone()),
            Self::In(path) => read_secret(path)
                .map_err(|error| Trouble::Away(format!("--etcd-password-file {error}"))),
        }
    }
}
