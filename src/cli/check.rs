//! `fencepost check`: is everything that `serve` needs there, and right?
//!
//! It reads and changes nothing, so it may be run against what is in production.

mod access;
mod remote;
mod report;
mod settings;

use std::{path::Path, time::Duration};

use clap::Args;
use reqwest::Url;

use self::report::{Report, Used};
use super::{
    block_on,
    client::{Credentials, http},
    exit::Failure,
    output::Format,
};
use crate::{
    authority, engine,
    finding::{Finding, Grade, Subject},
    settings::{AuthorityUrl, Settings, StoreUrl},
    store::{OwningAuthority, Plan, Store},
};

/// Longer than all that it asks may take together.
const SELF_EXAMINATION_DEADLINE: Duration = Duration::from_secs(45);

#[derive(Args)]
#[command(long_about = "\
Check whether everything that `serve` needs is there, and right.

Takes the same settings as `serve`, looks at the store and the authority they name, and says what it
found, with a hint and a page to read for whatever is not as it should be. Nothing is changed, so it may
be run at any time.

With --url, a running server examines itself, with the settings that it has; all other settings are
then left aside. The report begins with the settings that were used.

Exit codes: 0 nothing is wrong, 1 something is, 69 something could not be reached.")]
pub struct Check {
    #[arg(
        long,
        value_name = "URL",
        value_parser = http::server_url,
        help = "Ask the running server whose admin address this is, such as http://127.0.0.1:7421, to examine itself"
    )]
    url: Option<Url>,

    #[command(flatten)]
    credentials: Credentials,

    #[command(flatten)]
    pub settings: Settings,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    output: Format,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let report = match &self.url {
            Some(url) => block_on(remote::ask(url, &self.credentials))??,
            None => block_on(examine(&self.settings, None))??,
        };
        report.print(self.output)?;
        match report.worst() {
            Grade::Good | Grade::Doubtful => Ok(()),
            Grade::Bad => Err(Failure::told(false)),
            Grade::Away => Err(Failure::told(true)),
        }
    }
}

/// What a server answers when it is asked to examine itself. It has a thread and a runtime of its own, so
/// that a store that hangs does not hold up anything else. `serving` is the store that it serves from.
pub fn diagnose(settings: &Settings, serving: &dyn Store) -> String {
    let report = block_on(async {
        tokio::time::timeout(SELF_EXAMINATION_DEADLINE, examine(settings, Some(serving))).await
    });
    match report {
        Ok(Ok(Ok(report))) => report.to_json(),
        Ok(Ok(Err(failure))) | Err(failure) => unexamined(settings, &failure.message()),
        Ok(Err(_)) => unexamined(settings, "the store or the authority did not answer in time"),
    }
}

fn unexamined(settings: &Settings, why: &str) -> String {
    let used = Used {
        of: "this server".into(),
        store: settings.store.store.to_string(),
        authority: String::new(),
        config: None,
    };
    let hint = "see the log of the server, and ask again";
    Report::new(used, vec![Finding::away(Subject::Settings, why, hint)]).to_json()
}

/// Looks at everything that these settings name.
async fn examine(settings: &Settings, serving: Option<&dyn Store>) -> Result<Report, Failure> {
    let (url, store) = settings.store.open().map_err(Failure::settings)?;
    let authority = settings.authority_url().map_err(Failure::settings)?;
    let trust = settings.trust_level().map_err(Failure::settings)?;
    let migrates = settings.migrate || matches!(url, StoreUrl::Sqlite(_));
    let for_locks = match &authority {
        AuthorityUrl::None => 0,
        // One remembers how far etcd has come.
        AuthorityUrl::Etcd(_) => 1,
        // One listens.
        AuthorityUrl::Store => store.lock_tables() + 1,
    };
    let keeps_rejections = settings.rejections.keep().is_some();
    let connections = store.writers()
        + engine::readers(settings.threads())
        + for_locks
        + usize::from(keeps_rejections)
        // One asks for a moment, every second, which server is reached.
        + usize::from(matches!(url, StoreUrl::Postgres(_)));
    let plan = Plan { migrates, connections, keeps_rejections };

    let used = Used {
        of: "this command".into(),
        store: format!("{url}{}", if settings.store.is_default { " (the default)" } else { "" }),
        authority: authority.to_string(),
        config: settings.store.config.as_ref().map(|path| path.display().to_string()),
    };
    let mut findings = settings::examine(settings, &url, &authority, trust);
    findings.extend(access::examine(settings));
    if let StoreUrl::Sqlite(path) = &url
        && settings.store.is_default
        && !path.exists()
    {
        findings.push(no_store_named(path));
        return Ok(Report::new(used, findings));
    }
    findings.extend(store.examine(plan).await);
    if let Some(serving) = serving {
        findings.extend(serving.examine_takeover().await);
    }
    match &authority {
        AuthorityUrl::None if has_its_schema(&findings) => {
            findings.extend(owner(store.as_ref(), &OwningAuthority::none()).await);
        }
        AuthorityUrl::None => {}
        AuthorityUrl::Store if !has_its_schema(&findings) => {
            findings.push(lock_table_unseen(&findings));
        }
        AuthorityUrl::Store => {
            findings.extend(owner(store.as_ref(), &OwningAuthority::store()).await);
            findings.extend(authority::store::examine(store.as_ref()).await);
        }
        AuthorityUrl::Etcd(url) => {
            let options = settings.etcd.options(url).map_err(Failure::settings)?;
            let examination = authority::etcd::examine(options, store.as_ref());
            findings.extend(Box::pin(examination).await);
        }
    }
    Ok(Report::new(used, findings))
}

/// Whether the store belongs to this authority. Nothing where it cannot be asked: that is a finding of its own.
async fn owner(store: &dyn Store, wanted: &OwningAuthority) -> Option<Finding> {
    let recorded = store.owning_authority().await.ok()?;
    Some(authority::ownership::finding(recorded.as_ref(), wanted))
}

/// `serve` would make the file. But a look at nothing says nothing about the server that is meant.
fn no_store_named(path: &Path) -> Finding {
    let place = std::env::current_dir().map_or_else(|_| path.into(), |here| here.join(path));
    Finding::bad(
        Subject::Store,
        format!("no store was named, and the default file {} does not exist", place.display()),
        "name the store that `serve` has (--store, FENCEPOST_STORE, --config), or ask a running server: \
         check --url http://127.0.0.1:7421",
    )
}

/// The lock table is part of the schema. Why it could not be looked at depends on what became of that.
fn lock_table_unseen(findings: &[Finding]) -> Finding {
    let is_bad = |subject| {
        let mut of_it = findings.iter().filter(|finding| finding.subject == subject);
        of_it.any(|finding| matches!(finding.grade, Grade::Bad | Grade::Away))
    };
    if is_bad(Subject::Store) {
        return Finding::doubtful(
            Subject::Authority,
            "not looked at: the lock table is in the store, which could not be reached",
            "see to the store first, as said there; then look again",
        );
    }
    Finding::doubtful(
        Subject::Authority,
        "not looked at: the store does not have this version's lock table, or it may not be read",
        "see to the schema first, as said there; then look again",
    )
}

fn has_its_schema(findings: &[Finding]) -> bool {
    findings
        .iter()
        .any(|finding| finding.subject == Subject::Migrations && finding.grade == Grade::Good)
}
