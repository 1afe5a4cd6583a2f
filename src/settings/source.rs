//! Where the value of a setting came from, and so which of two wins; and what must not be shown.

use std::{
    convert::Infallible,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{ArgMatches, parser::ValueSource};

use super::file::SettingsFile;
use crate::cli::usage::environment_name;

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

/// `--store` and `--store-file` say the same thing in two ways. As everywhere, a flag wins over the
/// environment, which wins over the file; said twice in one place, neither is to be trusted.
pub fn choose(
    id: &str,
    file: &mut Option<PathBuf>,
    source: impl Fn(&str) -> Source,
) -> Result<(), String> {
    if file.is_none() {
        return Ok(());
    }
    let (direct, by_file) = (source(id), source(&format!("{id}_file")));
    if direct == by_file {
        let flag = id.replace('_', "-");
        return Err(format!("give either --{flag} or --{flag}-file, not both"));
    }
    if direct > by_file {
        *file = None;
    }
    Ok(())
}

/// Every user of the machine can read a process's arguments, and so can whoever collects its metrics.
pub fn refuse_as_argument(flag: &str, from: Source) -> Result<(), String> {
    if from != Source::Flag {
        return Ok(());
    }
    let variable = environment_name(flag);
    Err(format!(
        "--{flag} has a password in it, and arguments can be read by every user of the machine; give \
         it by --{flag}-file or in the environment, as {variable}"
    ))
}

/// What a file holds, but for the line break that editors put at its end.
pub fn read_secret(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::cli::usage::MASK)
    }
}
