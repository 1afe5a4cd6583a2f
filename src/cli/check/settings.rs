//! What can be told from the settings alone.

use std::net::IpAddr;

use url::Url;

use crate::{
    finding::{Finding, Subject},
    settings::{AuthorityUrl, Settings, StoreUrl, TrustLevel},
};

pub fn examine(
    settings: &Settings,
    store: &StoreUrl,
    authority: &AuthorityUrl,
    trust: TrustLevel,
) -> Vec<Finding> {
    let says = format!("the store is {store}, the authority {authority}");
    let mut findings = vec![Finding::good(Subject::Settings, says)];
    if let StoreUrl::Postgres(url) = store {
        if store.has_password() || settings.store.store_password_file.is_some() {
            // As an argument it would have been refused.
            let says = "it is kept out of the process list";
            findings.push(Finding::good(Subject::Password, says));
        }
        findings.push(encryption(url));
    }
    findings.push(believed(trust, authority));
    findings
}

fn encryption(url: &Url) -> Finding {
    let parameter =
        |wanted: &str| url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let host = parameter("host").unwrap_or_else(|| url.host_str().unwrap_or_default().into());
    if stays_here(&host) {
        return Finding::good(Subject::Encryption, "the connection does not leave this machine");
    }
    match parameter("sslmode").as_deref() {
        Some("verify-full" | "verify-ca") => {
            Finding::good(Subject::Encryption, "encrypted, and the server's certificate is checked")
        }
        mode => Finding::doubtful(
            Subject::Encryption,
            format!(
                "sslmode is {}: whoever sits in between can read and change everything",
                mode.unwrap_or("prefer")
            ),
            "add ?sslmode=verify-full to --store",
        ),
    }
}

fn stays_here(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    // A path is that of a socket; so is no host at all.
    host.is_empty()
        || host.starts_with('/')
        || host.starts_with("%2F")
        || host == "localhost"
        || address.is_ok_and(|address| address.is_loopback())
}

fn believed(trust: TrustLevel, authority: &AuthorityUrl) -> Finding {
    match trust {
        TrustLevel::Bounded => {
            Finding::good(Subject::Trust, "bounded: a token that was never issued is refused")
        }
        TrustLevel::Granted => Finding::good(
            Subject::Trust,
            "granted: only the token of the lock's holder is believed",
        ),
        TrustLevel::Open => Finding::doubtful(
            Subject::Trust,
            "open: any token is believed, so one client can lock out all others with a huge one",
            if *authority == AuthorityUrl::None {
                "let --authority name the lock service, if it is etcd or the store"
            } else {
                "leave --trust out, or set it to bounded"
            },
        ),
    }
}
