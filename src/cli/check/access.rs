//! Who may come in: whether it is safe, and whether the files that say so are good.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, SystemTime},
};

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{
    auth::{
        jwt::KeySet,
        policy::{Policy, Right},
        tokens::Tokens,
    },
    finding::{Finding, Subject},
    server::tls,
    settings::{Exposure, Settings, jwt::KeysAt},
};

/// Time enough to get another one.
const SOON: Duration = Duration::from_hours(24 * 14);

pub fn examine(settings: &Settings) -> Vec<Finding> {
    let access = &settings.access;
    let mut findings = vec![exposure(settings)];
    if let Some(files) = access.files() {
        findings.push(certificate(settings, &files));
    }
    if let Some(path) = &access.tokens_file {
        findings.push(tokens(path));
    }
    if let Some(KeysAt::File(path)) = &access.jwt.jwt_keys {
        let hint = "give --jwt-keys the JWKS that the issuer publishes";
        findings.push(by(Subject::JwtKeys, path, hint, |text| {
            let keys = KeySet::parse(text)?;
            Ok(Finding::good(Subject::JwtKeys, format!("{} keys to check JWTs with", keys.len())))
        }));
    }
    if access.authenticates() {
        findings.push(policy(access.policy.as_deref(), access.ways()));
    }
    findings
}

fn exposure(settings: &Settings) -> Finding {
    let listen = settings.listen;
    match settings.access.check().and_then(|()| settings.access.exposure(listen)) {
        Ok(Exposure::Loopback) => {
            Finding::good(Subject::Exposure, format!("{listen} is reached by this machine only"))
        }
        Ok(Exposure::Guarded) => Finding::good(
            Subject::Exposure,
            format!("whoever reaches {listen} must prove who they are, over TLS"),
        ),
        Ok(Exposure::Accepted) => Finding::doubtful(
            Subject::Exposure,
            format!(
                "--insecure: whoever reaches {listen} may do everything, or see what others do"
            ),
            "set up authentication and TLS, then leave --insecure out",
        ),
        Err(reason) => {
            Finding::bad(Subject::Exposure, reason, "`serve` refuses to start like this")
        }
    }
}

fn certificate(settings: &Settings, files: &tls::TlsFiles) -> Finding {
    let subject = Subject::Certificate;
    let hint = "give --tls-cert a chain and --tls-key its key, both as PEM";
    let contents: Result<Vec<_>, _> = files
        .paths()
        .iter()
        .map(|path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display())))
        .collect();
    let good = contents.and_then(|contents| {
        tls::config(&contents, settings.access.client_certificates())?;
        let chain = tls::certificates(&contents[0])?;
        let (_, own) = X509Certificate::from_der(&chain[0]).map_err(|error| error.to_string())?;
        let end = own.validity().not_after.timestamp();
        u64::try_from(end).map_err(|_| "it ended before 1970".to_owned())
    });
    let end = match good {
        Ok(end) => SystemTime::UNIX_EPOCH + Duration::from_secs(end),
        Err(reason) => return Finding::bad(subject, reason, hint),
    };
    let day = humantime::format_rfc3339_seconds(end);
    match end.duration_since(SystemTime::now()) {
        Ok(left) if left >= SOON => Finding::good(subject, format!("good until {day}")),
        Ok(_) => Finding::doubtful(
            subject,
            format!("it ends soon, on {day}"),
            "renew it; the new files are read without a restart",
        ),
        Err(_) => Finding::bad(subject, format!("it ended on {day}"), "renew it"),
    }
}

fn tokens(path: &Path) -> Finding {
    let hint = "make its lines with `fencepost token`";
    by(Subject::BearerTokens, path, hint, |text| {
        let tokens = Tokens::parse(text)?;
        if tokens.is_empty() {
            return Ok(Finding::doubtful(
                Subject::BearerTokens,
                "the tokens file is empty: nobody can come in with one",
                hint,
            ));
        }
        let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
        if mode & 0o022 != 0 {
            return Ok(Finding::bad(
                Subject::BearerTokens,
                "others may write to the tokens file, and so let themselves in",
                format!("chmod go-w {}", path.display()),
            ));
        }
        let says = format!("{} tokens, kept as digests", tokens.len());
        Ok(Finding::good(Subject::BearerTokens, says))
    })
}

fn policy(path: Option<&Path>, ways: usize) -> Finding {
    let subject = Subject::Policy;
    let Some(path) = path else {
        return Finding::doubtful(
            subject,
            "there is none: whoever is known may read, write and lock everything",
            "write one, and name it with --policy",
        );
    };
    by(subject, path, "see docs/access.md for how it is written", |text| {
        let policy = Policy::parse(text)?;
        let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
        Ok(if policy.rules() == 0 {
            let hint = "add a rule";
            Finding::doubtful(subject, "it has no rules, so everything is forbidden", hint)
        } else if mode & 0o022 != 0 {
            let hint = format!("chmod go-w {}", path.display());
            Finding::bad(subject, "others may write to it, and so give themselves rights", hint)
        } else if let Some(number) = policy.first_by_any_way().filter(|_| ways > 1) {
            Finding::doubtful(
                subject,
                format!(
                    "rule {number} is for whoever gets that name, be it by a token, a certificate or a JWT"
                ),
                "say in each rule `by` what its identity is proved, as in docs/access.md",
            )
        } else if policy.grants_everywhere(Right::Admin) {
            Finding::good(subject, format!("{} rules", policy.rules()))
        } else {
            Finding::good(
                subject,
                format!("{} rules; none lets anybody see all rejections", policy.rules()),
            )
        })
    })
}

fn by(
    subject: Subject,
    path: &Path,
    hint: &str,
    judge: impl FnOnce(&[u8]) -> Result<Finding, String>,
) -> Finding {
    let read = std::fs::read(path).map_err(|error| error.to_string());
    read.and_then(|text| judge(&text))
        .unwrap_or_else(|error| Finding::bad(subject, format!("{}: {error}", path.display()), hint))
}
