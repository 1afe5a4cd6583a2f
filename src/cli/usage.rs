//! What clap has to say of a wrong command line, made fit to be shown: it names the place that the
//! wrong value came from, and repeats no password.

use std::{ffi::OsString, path::Path};

use clap::{
    Error,
    error::{ContextKind, ContextValue},
};

use super::exit::Failure;

/// Stands for what must not be shown.
pub const MASK: &str = "***";

/// An error of the command line or the environment.
pub fn wrong_argument(error: Error, args: &[OsString]) -> Failure {
    tell(error, |flag| {
        let variable = environment_name(flag);
        // A flag may also stand by its short name.
        (!is_among(args, flag) && std::env::var_os(&variable).is_some()).then_some(variable)
    })
}

/// An error of the settings file: flags and environment have passed before.
pub fn wrong_in_file(error: Error, file: &Path) -> Failure {
    tell(error, |flag| Some(format!("{flag} in {}", file.display())))
}

/// `culprit` names the place that a flag's wrong value came from, if that is not the flag.
fn tell(mut error: Error, culprit: impl FnOnce(&str) -> Option<String>) -> Failure {
    if let Some(flag) = flag_of(&error) {
        if ["store", "authority", "etcd-password"].contains(&flag.as_str()) {
            // Where it is too wrong to be taken apart, no part of it is surely harmless.
            error.insert(ContextKind::InvalidValue, ContextValue::String(MASK.into()));
        }
        if let Some(culprit) = culprit(&flag) {
            error.insert(ContextKind::InvalidArg, ContextValue::String(culprit));
        }
    }
    mask_strays(&mut error);
    Failure::Usage(error)
}

pub fn environment_name(flag: &str) -> String {
    format!("FENCEPOST_{}", flag.replace('-', "_").to_uppercase())
}

/// The flag whose value is wrong. clap speaks of `--drain <TIME>`.
fn flag_of(error: &Error) -> Option<String> {
    error.get(ContextKind::InvalidValue)?;
    let ContextValue::String(argument) = error.get(ContextKind::InvalidArg)? else { return None };
    let name = argument.strip_prefix("--")?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
    Some(name[..end].to_owned())
}

fn is_among(args: &[OsString], flag: &str) -> bool {
    args.iter().filter_map(|arg| arg.to_str()?.strip_prefix("--")).any(|arg| {
        arg.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// A store's address may also stand where no argument is expected.
fn mask_strays(error: &mut Error) {
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand]
    {
        let Some(ContextValue::String(text)) = error.get(kind) else { continue };
        let shown = masked(text);
        if shown != *text {
            // What clap suggests would repeat it.
            error.remove(ContextKind::Suggested);
            error.insert(kind, ContextValue::String(shown));
        }
    }
}

/// The text without what may be a password: whatever stands before an `@`, or after `password=`.
pub fn masked(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + "://".len());
    if let Some(at) = text[start..].rfind('@') {
        return format!("{}{MASK}{}", &text[..start], &text[start + at..]);
    }
    match text.find("password=") {
        Some(at) => format!("{}{MASK}", &text[..at + "password=".len()]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_password_is_masked() {
        assert_eq!(masked("mysql://u:s3cret@h/d"), "mysql://***@h/d");
        assert_eq!(masked("u:s3@cret@h"), "***@h");
        assert_eq!(masked("host=h password=s3cret"), "host=h password=***");
        assert_eq!(masked("http://127.0.0.1:7420/"), "http://127.0.0.1:7420/");
    }

    #[test]
    fn every_flag_has_its_variable_by_rule() {
        let command = crate::cli::command();
        for subcommand in command.get_subcommands() {
            for argument in subcommand.get_arguments() {
                let (Some(flag), Some(variable)) = (argument.get_long(), argument.get_env()) else {
                    continue;
                };
                assert_eq!(environment_name(flag).as_str(), variable);
            }
        }
    }
}
