//! `--authority`: where tokens come from. It may hold a password, and must never show it.

use std::{fmt, path::Path, str::FromStr};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use super::source;
use crate::cli::usage::MASK;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityUrl {
    /// Somewhere else: every token is the client's word.
    None,
    /// A lock table in the store's own database.
    Store,
    Etcd(EtcdUrl),
}

#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUrl {
    /// `etcds://`: encrypted, and the server's certificate is checked.
    pub tls: bool,
    pub user: Option<String>,
    pub password: Option<String>,
    /// `host:port` of each.
    pub members: Vec<String>,
}

/// No message repeats the text: it may hold a password.
const FORMS: &str = "write it as `store`, `etcd://HOST:PORT[,HOST:PORT]`, `etcds://USER@HOST:PORT` \
    or `none`; a password goes into --etcd-password-file, or in --authority-file into the address, with \
    @ and % written %40 and %25";

impl AuthorityUrl {
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let text = source::read_secret(path)?;
        text.trim().parse().map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl AuthorityUrl {
    pub fn has_password(&self) -> bool {
        matches!(self, Self::Etcd(url) if url.password.is_some())
    }
}

impl FromStr for AuthorityUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "store" => Ok(Self::Store),
            _ => EtcdUrl::parse(text).map(Self::Etcd).ok_or_else(|| FORMS.into()),
        }
    }
}

impl EtcdUrl {
    fn parse(text: &str) -> Option<Self> {
        let (tls, rest) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return None,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, members) = match rest.split_once('@') {
            Some((login, members)) => (Some(login), members),
            None => (None, rest),
        };
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        if !members.iter().all(|member| is_an_address(member)) {
            return None;
        }
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None => (None, None),
            Some(None) => (Some(decoded(login?)?), None),
            Some(Some((user, password))) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        if user.as_ref().is_some_and(String::is_empty) {
            return None;
        }
        Some(Self { tls, user, password, members })
    }
}

/// `host:port`, and nothing else.
fn is_an_address(member: &str) -> bool {
    let Some((host, port)) = member.rsplit_once(':') else { return false };
    let bare = Url::parse(&format!("http://{host}/")).is_ok_and(|url| {
        url.path() == "/" && url.username().is_empty() && url.port().is_none() && url.has_host()
    });
    bare && !host.contains(['/', '@', '?', '#']) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

impl fmt::Display for AuthorityUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Store => f.write_str("store"),
            Self::Etcd(url) => url.fmt(f),
        }
    }
}

/// Without secrets.
impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "etcds://" } else { "etcd://" })?;
        if let Some(user) = &self.user {
            write!(f, "{}", utf8_percent_encode(user, NON_ALPHANUMERIC))?;
            if self.password.is_some() {
                write!(f, ":{MASK}")?;
            }
            f.write_str("@")?;
        }
        f.write_str(&self.members.join(","))
    }
}

impl fmt::Debug for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd(text: &str) -> EtcdUrl {
        match text.parse() {
            Ok(AuthorityUrl::Etcd(url)) => url,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_etcd_is_named_by_its_members() {
        let url = etcd("etcd://a.example:2379,10.0.0.1:2380,[::1]:2379/");
        assert_eq!(url.members, ["a.example:2379", "10.0.0.1:2380", "[::1]:2379"]);
        assert!(!url.tls && url.user.is_none() && url.password.is_none());
        assert!(etcd("etcds://a:1").tls);
    }

    #[test]
    fn a_password_is_understood_and_never_shown() {
        let url = etcd("etcds://app:s3cret%40%3A%2F@db:2379");
        assert_eq!(
            (url.user.as_deref(), url.password.as_deref()),
            (Some("app"), Some("s3cret@:/"))
        );
        assert_eq!(format!("{url}"), "etcds://app:***@db:2379");
        assert_eq!(format!("{url:?}"), "etcds://app:***@db:2379");
        assert_eq!(format!("{}", etcd("etcd://app@db:1")), "etcd://app@db:1");
    }

    #[test]
    fn a_mistake_is_explained_without_repeating_it() {
        for mistake in [
            "",
            "etcd://",
            "etcd://h",
            "etcd://h:port",
            "etcd://h:0",
            "etcd://h:1,",
            "etcd://h:1/path",
            "etcd://:s3cret@h:1",
            "etcd://u:s3@cret@h:1",
            "etcd://u:s3cret@h:1?x=y",
            "http://u:s3cret@h:2379",
        ] {
            let error = mistake.parse::<AuthorityUrl>().unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
