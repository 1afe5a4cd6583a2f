//! The address of a database, which may hold a password and must never show it.

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use url::Url;

use super::source;

#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Sqlite(PathBuf),
    Postgres(Url),
}

impl StoreUrl {
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let text = source::read_secret(path)?;
        text.trim().parse().map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl StoreUrl {
    pub fn has_password(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(url) => {
                let is_one = |(name, _): (Cow<'_, str>, Cow<'_, str>)| name.contains("password");
                url.password().is_some() || url.query_pairs().any(is_one)
            }
        }
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // No message repeats the text: it may hold a password.
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path == ":memory:" {
                return Err(
                    "sqlite: needs the path of a file; a store must outlive its process".into()
                );
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let url =
                Url::parse(text).map_err(|error| format!("not a valid Postgres URL: {error}"))?;
            if looks_misread(&url) {
                return Err(
                    "not a valid Postgres URL: in a password, # ? / and @ are written %23 \
                            %3F %2F and %40"
                        .into(),
                );
            }
            if let Some(name) = unknown_parameter(&url) {
                return Err(format!(
                    "not a valid Postgres URL: the parameter {name:?} is not known here; leave it \
                     out, or see whether it is misspelt"
                ));
            }
            return Ok(Self::Postgres(url));
        }
        Err("a store is sqlite:PATH or postgres://USER@HOST/DATABASE; a password goes into \
             --store-password-file"
            .into())
    }
}

/// A password with a bare `#`, `?` or `/` ends the host's part of the URL too early, and what
/// follows would be shown as if it were none.
fn looks_misread(url: &Url) -> bool {
    url.fragment().is_some()
        || url.path().contains('@')
        || url.query().is_some_and(|query| query.contains('@'))
}

/// The driver ignores what it does not know. `sslmod=verify-full` would connect to anybody.
fn unknown_parameter(url: &Url) -> Option<String> {
    const KNOWN: [&str; 12] = [
        "application_name",
        "dbname",
        "host",
        "hostaddr",
        "options",
        "password",
        "port",
        "sslcert",
        "sslkey",
        "sslmode",
        "sslrootcert",
        "user",
    ];
    let known = |name: &str| KNOWN.contains(&name) || name.starts_with("options[");
    url.query_pairs().find(|(name, _)| !known(name)).map(|(name, _)| name.into_owned())
}

/// Without secrets.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => redacted(url).fmt(f),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn redacted(url: &Url) -> Url {
    const MASK: &str = "***";
    let mut shown = url.clone();
    if url.password().is_some() {
        // Fails only for URLs that cannot have one.
        let _ = shown.set_password(Some(MASK));
    }
    if url.query().is_some() {
        let parameters: Vec<_> = url
            .query_pairs()
            .map(|(name, value)| {
                let secret = name.contains("password");
                (name, if secret { MASK.into() } else { value })
            })
            .collect();
        shown.query_pairs_mut().clear().extend_pairs(parameters);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for secret in [
            "postgres://app:s3cret@db.example/orders",
            "postgresql://app:s3cret@db.example:5432/orders?sslmode=verify-full",
            "postgres://db.example/orders?user=app&password=s3cret",
        ] {
            let url: StoreUrl = secret.parse().unwrap();
            for shown in [format!("{url}"), format!("{url:?}")] {
                assert!(!shown.contains("s3cret") && shown.contains("db.example"), "{shown}");
            }
        }
    }

    #[test]
    fn a_parameter_that_would_be_ignored_is_refused() {
        let error = "postgres://db.example/d?sslmod=verify-full".parse::<StoreUrl>().unwrap_err();
        assert!(error.contains("sslmod"), "{error}");
        "postgres://db.example/d?sslmode=verify-full&options[a.b]=c".parse::<StoreUrl>().unwrap();
    }

    #[test]
    fn a_mistake_is_explained_without_repeating_it() {
        for mistake in [
            "mysql://u:s3cret@h/d",
            "postgres://u:s3cret@:x/d",
            "postgres://u:1#s3cret@h/d",
            "postgres://u:1?s3cret@h/d",
            "postgres://u:1/s3cret@h/d",
            "sqlite:",
            "sqlite::memory:",
        ] {
            let error = mistake.parse::<StoreUrl>().unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
