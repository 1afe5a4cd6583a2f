//! The command line.
//!
//! `serve.rs`, `migrate.rs`, `compact.rs`, `floor.rs`, `authority.rs`, `config.rs` and `check.rs` work on the server's own settings; the
//! commands in `client/` speak HTTP to a running server.

mod authority;
mod check;
mod client;
mod compact;
mod config;
mod demo;
mod exit;
mod floor;
mod healthcheck;
mod logging;
mod manifest;
mod migrate;
mod output;
mod run;
mod serve;
mod token;
mod tokens_in_use;
pub(crate) mod usage;

use std::{ffi::OsString, process::ExitCode};

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::{exit::Failure, tokens_in_use::TokenSettings};
use crate::{
    api,
    settings::{Settings, Source, StoreSettings, file::SettingsFile},
    store::postgres,
};

/// A fencing-aware storage proxy.
///
/// Every write carries the fencing token of the lock it was made under. The store remembers the
/// highest token each key has seen, and refuses a write with a lower one: a holder that lost its
/// lock cannot overwrite its successor.
#[derive(Parser)]
#[command(name = "fencepost", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
// Of a flag given twice the last one counts, so that a script can add its own to a given line.
#[command(args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

const EXAMPLES: &str = "\
Try it, in two terminals:
  fencepost serve                        # on an embedded SQLite file
  fencepost lock orders --ttl 1s         # token 1, for a second
  fencepost lock orders --wait 5s        # the next holder: token 2
  fencepost put --token 2 orders paid    # its write
  fencepost put --token 1 orders oops    # refused: exit code 73

See it, in one:
  fencepost demo                         # what happens to a holder that was paused

Exit codes:
  0 done   1 failed   64 usage   69 unavailable   73 stale: fenced off   75 lock held
  76 lock lost";

const ROLES_HELP: &str = "\
As a superuser, once, in the database that Fencepost is to use; then give each role a password:

  fencepost roles | psql -d app
  psql -d app -c '\\password fencepost_owner' -c '\\password fencepost_serve'

fencepost_owner owns the schema: `migrate`, `compact` and `floor raise` run as that role. fencepost_serve
serves, and can delete nothing. `fencepost migrate` gives it its rights, now and after every upgrade.";

#[derive(Subcommand)]
enum Cmd {
    /// Serve the HTTP API (also when no command is given)
    Serve(Box<serve::Serve>),
    /// Bring a database to this version's schema
    Migrate(migrate::Migrate),
    /// Print the SQL script that makes the two Postgres roles, for psql
    #[command(after_help = ROLES_HELP)]
    Roles,
    /// Collect the marks of keys that have long been absent
    Compact(compact::Compact),
    /// Show the floor under all keys, or raise it
    Floor(floor::Floor),
    /// Show which authority a store belongs to, or move it to another one
    Authority(Box<authority::Authority>),
    /// Show the settings that `serve` would use, and where each comes from
    Config(Box<config::Config>),
    /// Check whether everything that `serve` needs is there, and right
    Check(Box<check::Check>),
    #[command(flatten)]
    Client(client::Client),
    /// Run a program while holding a lock
    Run(run::Run),
    /// Start a program that does not outlive the one that started it
    #[command(hide = true)]
    RunChild(run::bound::RunChild),
    /// Tell the story of the paused holder, with real processes, in a few seconds
    Demo(demo::Demo),
    /// Play a part in the demo
    #[command(hide = true)]
    DemoWorker(demo::worker::DemoWorker),
    /// Ask a server's admin address whether it is ready; for containers without curl
    Healthcheck(healthcheck::Healthcheck),
    /// Print the sidecar for Kubernetes as YAML; for those without Helm
    Manifest(manifest::Manifest),
    /// Make a bearer token, and the line by which a server knows it
    Token(token::Token),
    /// Print the OpenAPI document of the HTTP API
    Openapi,
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}

pub fn main(args: Vec<OsString>) -> ExitCode {
    match parse(&serve_by_default(args)).and_then(Parsed::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// A command with its settings, and all that is known of where they came from.
struct Parsed {
    command: Cmd,
    matches: ArgMatches,
    file: Option<SettingsFile>,
}

/// `fencepost` and `fencepost --listen …` mean `fencepost serve …`.
fn serve_by_default(mut args: Vec<OsString>) -> Vec<OsString> {
    const OWN_FLAGS: [&str; 4] = ["-h", "--help", "-V", "--version"];
    let wants_serve = args
        .get(1)
        .and_then(|arg| arg.to_str())
        .is_none_or(|first| first.starts_with('-') && !OWN_FLAGS.contains(&first));
    if wants_serve {
        args.insert(args.len().min(1), "serve".into());
    }
    args
}

fn parse(args: &[OsString]) -> Result<Parsed, Failure> {
    let wrong = |error| usage::wrong_argument(error, args);
    let mut matches = command().try_get_matches_from(args).map_err(wrong)?;
    let file = SettingsFile::named_by(&matches, &command()).map_err(Failure::settings)?;
    if let Some(file) = &file {
        matches = file
            .apply(command())
            .try_get_matches_from(args)
            .map_err(|error| usage::wrong_in_file(error, file.path()))?;
    }
    let mut command = Cli::from_arg_matches(&matches).map_err(wrong)?.command;
    if let Some((_, chosen)) = matches.subcommand() {
        let source = |id: &str| Source::of(id, chosen, file.as_ref());
        if let Some(store) = command.store() {
            store.choose(source).map_err(Failure::settings)?;
        }
        if let Some(tokens) = command.authority() {
            tokens.choose(source).map_err(Failure::settings)?;
        }
        if let Some(settings) = command.settings() {
            settings.choose(source).map_err(Failure::settings)?;
        }
        if let Cmd::Authority(authority) = &mut command {
            authority.choose(source).map_err(Failure::settings)?;
        }
    }
    Ok(Parsed { command, matches, file })
}

impl Parsed {
    fn run(self) -> Result<(), Failure> {
        if !matches!(self.command, Cmd::Serve(_)) {
            logging::start_silently();
        }
        match self.command {
            Cmd::Serve(serve) => serve.run(),
            Cmd::Migrate(migrate) => migrate.run(),
            Cmd::Roles => output::print(postgres::roles::SCRIPT),
            Cmd::Compact(compact) => compact.run(),
            Cmd::Floor(floor) => floor.run(),
            Cmd::Authority(authority) => authority.run(),
            Cmd::Config(config) => config.run(&self.matches, self.file.as_ref()),
            Cmd::Check(check) => check.run(),
            Cmd::Client(client) => client.run(),
            Cmd::Run(run) => run.run(),
            Cmd::RunChild(child) => child.run(),
            Cmd::Demo(demo) => demo.run(),
            Cmd::DemoWorker(worker) => worker.run(),
            Cmd::Healthcheck(healthcheck) => healthcheck.run(),
            Cmd::Manifest(manifest) => manifest.run(),
            Cmd::Token(token) => token.run(),
            Cmd::Openapi => output::print(api::openapi::document_text()),
            Cmd::Completions { shell } => completions(shell),
        }
    }
}

impl Cmd {
    fn settings(&mut self) -> Option<&mut Settings> {
        match self {
            Self::Serve(serve) => Some(&mut serve.settings),
            Self::Config(config) => Some(&mut config.settings),
            Self::Check(check) => Some(&mut check.settings),
            _ => None,
        }
    }

    /// Of those that are not [`settings`](Self::settings).
    fn authority(&mut self) -> Option<&mut TokenSettings> {
        match self {
            Self::Compact(compact) => Some(&mut compact.tokens),
            Self::Floor(floor) => Some(&mut floor.tokens),
            _ => None,
        }
    }

    fn store(&mut self) -> Option<&mut StoreSettings> {
        match self {
            Self::Serve(serve) => Some(&mut serve.settings.store),
            Self::Config(config) => Some(&mut config.settings.store),
            Self::Check(check) => Some(&mut check.settings.store),
            Self::Migrate(migrate) => Some(&mut migrate.store),
            Self::Compact(compact) => Some(&mut compact.store),
            Self::Floor(floor) => Some(&mut floor.store),
            Self::Authority(authority) => Some(&mut authority.store),
            _ => None,
        }
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    // Into memory first: the generator panics if its reader stops early.
    let mut script = Vec::new();
    let command = command();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut shown =
        Command::new("fencepost").version(env!("CARGO_PKG_VERSION")).subcommands(shown.cloned());
    clap_complete::generate(shell, &mut shown, "fencepost", &mut script);
    output::write_out(&script)
}

/// What `--help` is made from; the documentation is checked against it.
pub fn command() -> Command {
    // A value may be a secret, and help should read the same everywhere.
    Cli::command().mut_subcommands(|command| command.mut_args(|arg| arg.hide_env_values(true)))
}

/// Runs the short commands. A server has a runtime of its own.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map(|runtime| runtime.block_on(work))
        .map_err(|error| Failure::failed(format!("cannot start: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_is_what_happens_by_default() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        let line = |args: Vec<OsString>| args.join(" ".as_ref()).into_string().unwrap();
        assert_eq!(line(serve_by_default(words("fencepost"))), "fencepost serve");
        assert_eq!(
            line(serve_by_default(words("fencepost --store x"))),
            "fencepost serve --store x"
        );
        assert_eq!(line(serve_by_default(words("fencepost --help"))), "fencepost --help");
        assert_eq!(line(serve_by_default(words("fencepost get k"))), "fencepost get k");
    }
}
