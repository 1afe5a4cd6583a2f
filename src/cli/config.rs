//! `fencepost config`: the settings in force, as a TOML file that would set them.

use std::fmt::Write;

use clap::{Arg, ArgMatches, Args};

use super::{exit::Failure, output, usage};
use crate::settings::{AuthorityUrl, Settings, Source, StoreUrl, file::SettingsFile};

#[derive(Args)]
#[command(after_help = "\
Takes the same flags as `serve`. What it prints is a settings file that sets the same, except that
passwords are not shown:

  fencepost config > fencepost.toml
  fencepost serve --config fencepost.toml")]
pub struct Config {
    #[command(flatten)]
    pub settings: Settings,
}

impl Config {
    pub fn run(self, matches: &ArgMatches, file: Option<&SettingsFile>) -> Result<(), Failure> {
        // What cannot be opened is no setting that `serve` could use.
        let (url, _) = self.settings.store.open().map_err(Failure::settings)?;
        self.settings.trust_level().map_err(Failure::settings)?;
        self.settings.access.check().map_err(Failure::settings)?;
        let authority = self.settings.authority_url().map_err(Failure::settings)?;
        if let AuthorityUrl::Etcd(url) = &authority {
            self.settings.etcd.options(url).map_err(Failure::settings)?;
        }
        let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
        let listing = Listing { matches, file, authority, settings: &self.settings, url };
        let command = super::command();
        let arguments =
            command.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
        let mut text = String::new();
        for argument in arguments.filter(|arg| arg.get_id() != "config") {
            text += &listing.entry(argument);
        }
        output::print(&text)
    }
}

struct Listing<'a> {
    matches: &'a ArgMatches,
    file: Option<&'a SettingsFile>,
    settings: &'a Settings,
    url: StoreUrl,
    authority: AuthorityUrl,
}

impl Listing<'_> {
    fn entry(&self, argument: &Arg) -> String {
        let Some(name) = argument.get_long() else { return String::new() };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let mut entry = format!("# {help}\n");
        let _ = match self.value(argument.get_id().as_str()) {
            Some(value) => writeln!(entry, "{name} = {value} # {}", self.origin(argument, name)),
            None => writeln!(entry, "# {name} ="),
        };
        entry + "\n"
    }

    /// As TOML; `None` where the setting is not in force.
    fn value(&self, id: &str) -> Option<toml::Value> {
        // What may be a secret is shown without it, and what does not count not at all.
        let by_file = match id {
            "store" | "store_file" => self.settings.store.store_file.is_some(),
            "authority" | "authority_file" => self.settings.authority.authority_file.is_some(),
            "etcd_password" | "etcd_password_file" => {
                self.settings.etcd.etcd_password_file.is_some()
            }
            _ => id.ends_with("_file"),
        };
        if by_file != id.ends_with("_file") {
            return None;
        }
        match id {
            "store" => return Some(self.url.to_string().into()),
            "authority" => return Some(self.authority.to_string().into()),
            "etcd_password" => {
                return self.settings.etcd.etcd_password.as_ref().map(|_| usage::MASK.into());
            }
            _ => {}
        }
        if let Ok(Some(flag)) = self.matches.try_get_one::<bool>(id) {
            return Some((*flag).into());
        }
        let raw = self.matches.get_raw(id)?.next()?.to_string_lossy();
        Some(raw.parse::<i64>().map_or_else(|_| (&*raw).into(), toml::Value::Integer))
    }

    fn origin(&self, argument: &Arg, name: &str) -> String {
        match Source::of(argument.get_id().as_str(), self.matches, self.file) {
            Source::Flag => format!("--{name}"),
            Source::Environment => usage::environment_name(name),
            Source::File => {
                self.file.map(|file| file.path().display().to_string()).unwrap_or_default()
            }
            Source::Default => "default".into(),
        }
    }
}
