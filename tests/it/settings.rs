//! Settings: flags win over the environment, which wins over the file, which wins over defaults.

use std::{collections::BTreeMap, path::PathBuf, process::Output};

use tempfile::TempDir;

use crate::harness::fencepost::{run, run_with};

/// One run of `fencepost config`, or of another command, with settings from all sides.
#[derive(Default)]
pub struct Trial {
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    directory: Option<TempDir>,
}

impl Trial {
    fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(ToString::to_string));
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Writes a settings file, and names it with `--config`.
    fn file(mut self, text: &str) -> Self {
        let path = self.write("fencepost.toml", text);
        self.flags.extend(["--config".into(), path.display().to_string()]);
        self
    }

    fn write(&mut self, name: &str, text: &str) -> PathBuf {
        let directory = self.directory.get_or_insert_with(|| tempfile::tempdir().expect("a place"));
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        path
    }

    fn run(&self) -> Output {
        let arguments: Vec<&str> =
            std::iter::once("config").chain(self.flags.iter().map(String::as_str)).collect();
        run_with(&arguments, |command| {
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        })
    }

    /// What `fencepost config` prints.
    fn text(&self) -> String {
        let output = self.run();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn settings(&self) -> Settings {
        settings(&self.text())
    }

    /// One setting, as text.
    fn value(&self, name: &str) -> String {
        match &self.settings()[name] {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// Where `fencepost config` says that a setting comes from.
    fn origin(&self, name: &str) -> String {
        let text = self.text();
        let line = text.lines().find(|line| line.starts_with(&format!("{name} = ")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(" # ").next().expect("an origin").to_owned()
    }

    /// The message of a run that must be refused as a wrong use.
    fn refusal(&self) -> String {
        let output = self.run();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{message}");
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        message
    }
}

type Settings = BTreeMap<String, toml::Value>;

fn settings(text: &str) -> Settings {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_defaults() {
    for (name, default, [by_file, by_environment, by_flag]) in [
        ("listen", "127.0.0.1:7420", ["127.0.0.1:1", "127.0.0.1:2", "[::1]:3"]),
        ("max-body", "1MiB", ["2MiB", "3KiB", "4MB"]),
        ("drain", "10s", ["1s", "200ms", "5m"]),
        ("rule", "at-least", ["above", "at-least", "above"]),
        ("queue", "1024", ["1", "2", "3"]),
        ("migrate", "false", ["true", "false", "true"]),
        ("store", "sqlite:fencepost.db", ["sqlite:a.db", "sqlite:/b.db", "postgres://h/c"]),
        ("log", "info", ["warn", "fencepost=debug", "error,sqlx=off"]),
    ] {
        let variable = format!("FENCEPOST_{}", name.to_uppercase().replace('-', "_"));
        let flag = format!("--{name}={by_flag}");

        let trial = Trial::default();
        assert_eq!((trial.value(name), trial.origin(name)), (default.into(), "default".into()));
        let trial = trial.file(&format!("{name} = \"{by_file}\""));
        assert_eq!(trial.value(name), by_file);
        assert!(trial.origin(name).ends_with("/fencepost.toml"), "{}", trial.origin(name));
        let trial = trial.env(&variable, by_environment);
        assert_eq!((trial.value(name), trial.origin(name)), (by_environment.into(), variable));
        let trial = trial.flags(&[&flag]);
        assert_eq!((trial.value(name), trial.origin(name)), (by_flag.into(), format!("--{name}")));
    }
}

#[test]
fn of_a_flag_given_twice_the_last_one_counts() {
    let trial =
        Trial::default().flags(&["--migrate", "--queue=5", "--migrate=false", "--queue", "6"]);
    assert_eq!((trial.value("migrate"), trial.value("queue")), ("false".into(), "6".into()));
}

#[test]
fn the_environment_can_name_the_file() {
    let mut trial = Trial::default();
    let path = trial.write("elsewhere.toml", "queue = 7");
    let trial = trial.env("FENCEPOST_CONFIG", &path.display().to_string());
    assert_eq!(trial.value("queue"), "7");
}

#[test]
fn a_value_of_the_file_that_equals_the_default_still_comes_from_the_file() {
    let trial = Trial::default().file("queue = 1024");
    assert!(trial.origin("queue").ends_with("fencepost.toml"));
}

#[test]
fn a_number_may_be_written_as_a_number_or_as_text() {
    for spelling in ["13", "\"13\""] {
        let trial = Trial::default().file(&format!("store-connections = {spelling}"));
        assert_eq!(trial.settings()["store-connections"], toml::Value::Integer(13));
    }
}

#[test]
fn a_boolean_has_its_usual_spellings() {
    let migrates = |trial: Trial| trial.settings()["migrate"] == toml::Value::Boolean(true);
    assert!(migrates(Trial::default().flags(&["--migrate"])));
    assert!(migrates(Trial::default().flags(&["--migrate=true"])));
    assert!(migrates(Trial::default().env("FENCEPOST_MIGRATE", "1")));
    assert!(migrates(Trial::default().env("FENCEPOST_MIGRATE", "yes")));
    assert!(migrates(Trial::default().file("migrate = true")));
    assert!(!migrates(Trial::default().file("migrate = false")));
    assert!(!migrates(Trial::default().file("migrate = true").flags(&["--migrate=false"])));
    assert!(!migrates(Trial::default().file("migrate = true").env("FENCEPOST_MIGRATE", "0")));
}

#[test]
fn a_wrong_value_is_refused_by_the_name_of_whoever_set_it() {
    for (name, wrong) in [
        ("listen", "7420"),
        ("listen", "localhost:7420"),
        ("drain", "10"),
        ("drain", "soon"),
        ("max-body", "big"),
        ("max-body", "-1"),
        ("rule", "below"),
        ("queue", "0"),
        ("store-connections", "1001"),
        ("migrate", "perhaps"),
        ("log-format", "xml"),
        ("log", "fencepost=loud=er"),
        ("store", "fencepost.db"),
        ("store", "sqlite::memory:"),
    ] {
        let flag = format!("--{name}");
        let message = Trial::default().flags(&[&format!("{flag}={wrong}")]).refusal();
        assert!(message.contains(&flag), "{message}");

        let variable = format!("FENCEPOST_{}", name.to_uppercase().replace('-', "_"));
        let message = Trial::default().env(&variable, wrong).refusal();
        assert!(message.contains(&variable), "{message}");

        let message = Trial::default().file(&format!("{name} = \"{wrong}\"")).refusal();
        assert!(message.contains(&format!("{name} in ")), "{message}");
        assert!(message.contains("fencepost.toml"), "{message}");
    }
}

#[test]
fn a_wrong_value_of_a_short_flag_is_refused_by_the_name_of_the_flag() {
    let output = run(&["locks", "-o", "text"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("'--output <FORMAT>'"), "{message}");
}

#[test]
fn a_wrong_file_is_refused_by_its_name_and_what_is_wrong_with_it() {
    for (text, culprit) in [
        ("listn = \"127.0.0.1:1\"", "\"listn\""),
        ("max_body = \"1MiB\"", "\"max_body\""),
        ("config = \"other.toml\"", "\"config\""),
        ("listen = [\"127.0.0.1:1\"]", "listen"),
        ("[store]\nurl = \"sqlite:a\"", "store"),
        ("drain = 1979-05-27", "drain"),
        ("queue = 1\nqueue = 2", "line 2"),
        ("queue = 1\nlisten =", "line 2"),
    ] {
        let message = Trial::default().file(text).refusal();
        assert!(message.contains("fencepost.toml") && message.contains(culprit), "{message}");
    }
    let message = Trial::default().flags(&["--config", "/nowhere.toml"]).refusal();
    assert!(message.contains("/nowhere.toml"), "{message}");
}

#[test]
fn trust_needs_somebody_who_knows() {
    for trust in ["bounded", "granted"] {
        let message = Trial::default().flags(&["--authority", "none", "--trust", trust]).refusal();
        assert!(message.contains("--authority"), "{message}");
    }
}

#[test]
fn the_store_can_be_named_in_a_file_of_its_own() {
    let mut trial = Trial::default();
    let path = trial.write("store", "sqlite:from-file.db\n").display().to_string();
    let trial = trial.flags(&["--store-file", &path]);
    assert_eq!(trial.value("store-file"), path);
    assert!(!trial.settings().contains_key("store"), "{}", trial.text());

    let message = trial.flags(&["--store", "sqlite:a.db"]).refusal();
    assert!(message.contains("--store-file"), "{message}");
}

#[test]
fn a_store_and_a_store_file_follow_the_same_precedence_as_everything_else() {
    let mut trial = Trial::default();
    let path = trial.write("store", "sqlite:from-file.db").display().to_string();
    let trial = trial.env("FENCEPOST_STORE_FILE", &path);
    assert_eq!(trial.value("store-file"), path);
    let trial = trial.flags(&["--store", "sqlite:by-flag.db"]);
    assert_eq!(trial.value("store"), "sqlite:by-flag.db");
    assert!(!trial.settings().contains_key("store-file"), "{}", trial.text());
}

#[test]
fn a_store_file_that_cannot_be_used_is_refused_by_its_name() {
    let message = Trial::default().flags(&["--store-file", "/nowhere"]).refusal();
    assert!(message.contains("--store-file /nowhere"), "{message}");
    let mut trial = Trial::default();
    let path = trial.write("store", "mysql://u:s3cret@h/d").display().to_string();
    let message = trial.flags(&["--store-file", &path]).refusal();
    assert!(message.contains(&path) && !message.contains("s3cret"), "{message}");
}

#[test]
fn a_tls_file_of_the_store_that_cannot_be_read_is_refused_by_its_name() {
    for name in ["sslrootcert", "sslcert", "sslkey"] {
        let store = format!("postgres://u@127.0.0.1:1/d?sslmode=verify-full&{name}=/nowhere.pem");
        for command in ["check", "serve"] {
            let output = run(&[command, "--store", &store]);
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(64), "{message}");
            assert!(message.contains(name) && message.contains("/nowhere.pem"), "{message}");
        }
    }
}

#[test]
fn what_config_prints_is_a_file_that_sets_the_same() {
    let first = Trial::default()
        .file("queue = 5\nlog = \"warn\"\nstore-connections = \"13\"")
        .env("FENCEPOST_MIGRATE", "1")
        .flags(&["--drain", "90s", "--listen=[::]:80", "--store", "sqlite:/tmp/a \"b\".db"]);
    let printed = first.text();
    let second = Trial::default().file(&printed);
    assert_eq!(settings(&printed), second.settings());
    assert!(second.text().lines().all(|line| !line.ends_with("# default")), "{}", second.text());
}

#[test]
fn the_example_file_sets_every_default() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/fencepost.example.toml");
    let example = std::fs::read_to_string(example).expect("the example");
    assert_eq!(settings(&example), Trial::default().settings());
    Trial::default().file(&example).text();
}
