//! How a command ends when it does not end well.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use crate::{cli::output, store::StoreError};

/// Exit codes after sysexits.h, so that scripts can tell the cases apart.
const FAILED: u8 = 1;
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const STALE: u8 = 73;
const HELD: u8 = 75;
pub const LOST: u8 = 76;

#[derive(Debug)]
pub enum Failure {
    /// 64: the command line. Also `--help` and `--version`, which are not failures.
    Usage(clap::Error),
    /// 64: a setting, wherever it came from.
    Settings(String),
    /// 1
    Failed(String),
    /// 69: a server or a database that does not answer.
    Unavailable(String),
    /// A problem that a server answered with.
    Problem(Problem),
    /// One that has been told already, in the log, by what was printed or by the program that was
    /// run, with its exit code.
    Told(u8),
}

/// What a client command needs to know of an answer that is not a success.
#[derive(Debug)]
pub struct Problem {
    pub kind: String,
    pub title: String,
    pub detail: String,
    /// The whole document, for programs.
    pub document: String,
}

impl Failure {
    pub fn settings(message: impl Into<String>) -> Self {
        Self::Settings(message.into())
    }

    /// Whatever is wrong has been printed; `away`: something could not be reached.
    pub fn told(away: bool) -> Self {
        Self::Told(if away { UNAVAILABLE } else { FAILED })
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Whether the same may succeed after a while.
    pub fn passes(&self) -> bool {
        self.code() == UNAVAILABLE
    }

    /// In one line, as a part of what somebody else has to say.
    pub fn message(&self) -> String {
        match self {
            Self::Settings(message) | Self::Failed(message) | Self::Unavailable(message) => {
                message.clone()
            }
            Self::Problem(problem) => problem.detail.clone(),
            Self::Usage(error) => error.to_string(),
            Self::Told(code) => format!("exit code {code}"),
        }
    }

    /// Tells it in the log: whoever collects that should not have to look elsewhere for the reason
    /// why a server ended.
    #[must_use]
    pub fn logged(self) -> Self {
        let code = self.code();
        match self {
            Self::Settings(message) | Self::Failed(message) | Self::Unavailable(message)
                if tracing::enabled!(tracing::Level::ERROR) =>
            {
                tracing::error!("{message}");
                Self::Told(code)
            }
            other => other,
        }
    }

    pub fn report(self) -> ExitCode {
        let code = self.code();
        match self {
            Self::Usage(error) => {
                let _ = error.print();
            }
            Self::Settings(message) | Self::Failed(message) | Self::Unavailable(message) => {
                say(&message);
            }
            Self::Problem(problem) if std::io::stderr().is_terminal() => {
                say(&format!("{}\n  {}", problem.title, problem.detail));
            }
            Self::Problem(problem) => {
                let _ = writeln!(std::io::stderr(), "{}", problem.document);
            }
            Self::Told(_) => {}
        }
        ExitCode::from(code)
    }

    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(error) if error.use_stderr() => USAGE,
            Self::Usage(_) => 0,
            Self::Settings(_) => USAGE,
            Self::Failed(_) => FAILED,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Told(code) => *code,
            Self::Problem(problem) => match problem.kind.as_str() {
                "stale-token" | "out-of-order" => STALE,
                "lock-held" => HELD,
                "lock-lost" => LOST,
                "overloaded"
                | "store-unavailable"
                | "store-full"
                | "authority-unavailable"
                | "authority-mismatch"
                | "shutting-down"
                | "outcome-unknown" => UNAVAILABLE,
                // The server has looked at what the command line said, and it will not do.
                "invalid-token" | "invalid-seq" | "invalid-key" | "invalid-request"
                | "token-required" => USAGE,
                _ => FAILED,
            },
        }
    }
}

/// An error message for people, on standard error.
pub fn say(message: &str) {
    let red = output::colour(&std::io::stderr(), "\x1b[1;31m");
    let plain = output::colour(&std::io::stderr(), "\x1b[0m");
    let _ = writeln!(std::io::stderr(), "{red}error:{plain} {}", output::printable(message));
}

impl Failure {
    /// Of a change that can be made again. `look` is the command that shows whether it was made.
    pub fn of_change(error: StoreError, look: &str) -> Self {
        match error {
            StoreError::Unknown(reason) => Self::Unavailable(format!(
                "the outcome is unknown: {reason}; run `{look}` to see whether the change was made, and repeat \
                 the command: only if it succeeds, the synchronous standbys have the change"
            )),
            known => known.into(),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::Unknown(_) => {
                Self::Unavailable(error.to_string())
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}
