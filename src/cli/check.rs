//! `fencepost check`: is everything that `serve` needs there, and right?
//!
//! It reads and changes nothing, so it may be run against what is in production.

mod access;
mod report;
mod settings;

use clap::Args;

use self::report::Report;
use super::{block_on, exit::Failure, output::Format};
use crate::{
    authority, engine,
    finding::{Finding, Grade, Subject},
    settings::{AuthorityUrl, Settings, StoreUrl},
    store::Plan,
};

#[derive(Args)]
#[command(long_about = "\
Check whether everything that `serve` needs is there, and right.

Takes the same settings as `serve`, looks at the store and the authority they name, and says what it
found, with a hint and a page to read for whatever is not as it should be. Nothing is changed, so it may
be run at any time.

Exit codes: 0 nothing is wrong, 1 something is, 69 something could not be reached.")]
pub struct Check {
    #[command(flatten)]
    pub settings: Settings,

    #[arg(short, long, value_name = "FORMAT", default_value = "auto", help = "How to print")]
    output: Format,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let findings = block_on(self.examine())??;
        let report = Report::new(findings);
        report.print(self.output)?;
        match report.worst() {
            Grade::Good | Grade::Doubtful => Ok(()),
            Grade::Bad => Err(Failure::told(false)),
            Grade::Away => Err(Failure::told(true)),
        }
    }

    async fn examine(&self) -> Result<Vec<Finding>, Failure> {
        let (url, store) = self.settings.store.open().map_err(Failure::settings)?;
        let authority = self.settings.authority_url().map_err(Failure::settings)?;
        let trust = self.settings.trust_level().map_err(Failure::settings)?;
        let migrates = self.settings.migrate || matches!(url, StoreUrl::Sqlite(_));
        let for_locks = match &authority {
            AuthorityUrl::None => 0,
            // One remembers how far etcd has come.
            AuthorityUrl::Etcd(_) => 1,
            // One listens.
            AuthorityUrl::Store => store.lock_tables() + 1,
        };
        let keeps_rejections = self.settings.rejections.keep().is_some();
        let connections = store.writers()
            + engine::readers(self.settings.threads())
            + for_locks
            + usize::from(keeps_rejections);
        let plan = Plan { migrates, connections, keeps_rejections };

        let mut findings = settings::examine(&self.settings, &url, &authority, trust);
        findings.extend(access::examine(&self.settings));
        findings.extend(store.examine(plan).await);
        match &authority {
            AuthorityUrl::None => {}
            AuthorityUrl::Store if !has_its_schema(&findings) => {
                findings.push(Finding::doubtful(
                    Subject::Authority,
                    "not looked at: there is no lock table in the store yet",
                    "it comes with the schema: `serve` or `fencepost migrate` makes it; then look again",
                ));
            }
            AuthorityUrl::Store => findings.extend(authority::store::examine(store.as_ref()).await),
            AuthorityUrl::Etcd(url) => {
                let options = self.settings.etcd.options(url).map_err(Failure::settings)?;
                let examination = authority::etcd::examine(options, store.as_ref());
                findings.extend(Box::pin(examination).await);
            }
        }
        Ok(findings)
    }
}

fn has_its_schema(findings: &[Finding]) -> bool {
    findings
        .iter()
        .any(|finding| finding.subject == Subject::Migrations && finding.grade == Grade::Good)
}
