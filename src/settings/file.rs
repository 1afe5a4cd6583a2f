//! The settings file: its values become the defaults that flags and environment override.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Command};

/// Settings that make no sense inside the file that they name.
const NOT_IN_FILE: [&str; 3] = ["config", "help", "version"];

/// A file whose settings are known by name. clap has yet to judge their values.
pub struct SettingsFile {
    path: PathBuf,
    /// By the name that clap has for them.
    values: BTreeMap<String, String>,
}

impl SettingsFile {
    /// The file that a command line or the environment names, if the chosen command takes one.
    pub fn named_by(matches: &ArgMatches, command: &Command) -> Result<Option<Self>, String> {
        let Some((_, chosen)) = matches.subcommand() else { return Ok(None) };
        let path = chosen.try_get_one::<PathBuf>("config").ok().flatten();
        path.map(|path| Self::read(path, command)).transpose()
    }

    fn read(path: &Path, command: &Command) -> Result<Self, String> {
        let context = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| context(&error))?;
        let values = understood(&text, &known_settings(command));
        Ok(Self { path: path.to_owned(), values: values.map_err(|error| context(&error))? })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn sets(&self, id: &str) -> bool {
        self.values.contains_key(id)
    }

    /// The command line, with the file's values as defaults. The file may hold any setting of
    /// `serve`; another command takes those that it has too.
    pub fn apply(&self, command: Command) -> Command {
        command.mut_subcommands(|subcommand| {
            if !takes_a_file(&subcommand) {
                return subcommand;
            }
            subcommand.mut_args(|arg| match self.values.get(arg.get_id().as_str()) {
                Some(value) => arg.default_value(value.clone()),
                None => arg,
            })
        })
    }
}

/// The settings in a file's text, by the name that clap has for them.
fn understood(text: &str, known: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut values = BTreeMap::new();
    for (name, value) in parse(text)? {
        if !known.contains(&name) {
            return Err(format!(
                "unknown setting {name:?}; `fencepost config` lists those there are"
            ));
        }
        let value = scalar(&value)
            .ok_or_else(|| format!("{name} must be a string, a number or a boolean"))?;
        values.insert(name.replace('-', "_"), value);
    }
    Ok(values)
}

/// A syntax error is told without the line it is in, which may hold a password.
fn parse(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("line {line}: {}", error.message())
    })
}

fn known_settings(command: &Command) -> Vec<String> {
    command
        .find_subcommand("serve")
        .into_iter()
        .flat_map(Command::get_arguments)
        .filter_map(Arg::get_long)
        .filter(|name| !NOT_IN_FILE.contains(name))
        .map(str::to_owned)
        .collect()
}

/// A client's --rule has nothing to do with the server's.
fn takes_a_file(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == "config")
}

fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Datetime(_) | toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_syntax_error_names_the_line_and_does_not_show_it() {
        let error = parse("queue = 5\nstore = \"postgres://u:s3cret@h/d\n").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
