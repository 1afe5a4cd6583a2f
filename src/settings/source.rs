//! Where the value of a setting came from, and so which of two wins.

use clap::{ArgMatches, parser::ValueSource};

use super::file::SettingsFile;

/// In rising order: what is said closer to the run wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Default,
    File,
    Environment,
    Flag,
}

impl Source {
    /// clap takes the file's values for defaults, so the file is asked which are its own.
    pub fn of(id: &str, matches: &ArgMatches, file: Option<&SettingsFile>) -> Self {
        match matches.value_source(id) {
            Some(ValueSource::CommandLine) => Self::Flag,
            Some(ValueSource::EnvVariable) => Self::Environment,
            _ if file.is_some_and(|file| file.sets(id)) => Self::File,
            _ => Self::Default,
        }
    }
}
