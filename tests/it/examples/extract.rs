//! Finds the examples: indented blocks and shell fences of the documents, the last lines of `fencepost demo`, and the
//! examples that `--help` shows.

use crate::documents::document;

/// A line that a reader would type, and what is shown as its output.
#[derive(Debug)]
pub struct Example {
    pub source: String,
    pub line: usize,
    /// Continued lines and here-documents are one.
    pub text: String,
    pub shown: Vec<String>,
}

/// Fences of other languages. A fence that is named nowhere here fails the test.
const NO_SHELL: &[&str] = &["", "yaml", "toml", "json", "sql"];

pub fn of_document(name: &str) -> Vec<Example> {
    let mut examples = Examples::new(name);
    let mut fence: Option<String> = None;
    let (mut in_block, mut after_blank) = (false, true);
    for (number, line) in document(name).lines().enumerate() {
        let number = number + 1;
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(language.to_owned()),
            };
            in_block = false;
        } else if let Some(language) = &fence {
            match language.as_str() {
                "console" => match line.strip_prefix("$ ") {
                    Some(command) => examples.command(number, command),
                    None => examples.output(number, line),
                },
                "sh" | "bash" => examples.line(number, line),
                other => assert!(NO_SHELL.contains(&other), "{name}:{number}: what is {other}?"),
            }
        } else if let Some(text) = line.strip_prefix("    ").filter(|_| in_block || after_blank) {
            in_block = true;
            examples.line(number, text);
        } else if !line.is_empty() {
            in_block = false;
        }
        after_blank = line.is_empty();
    }
    examples.found
}

/// The lines of a text that are indented by two spaces and begin with one of these words.
pub fn of_text(source: &str, text: &str, programs: &[&str]) -> Vec<Example> {
    let mut examples = Examples::new(source);
    for (number, line) in text.lines().enumerate() {
        let Some(line) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else {
            continue;
        };
        let first = line.split([' ', '=']).next().unwrap_or_default();
        if programs.contains(&first) {
            examples.line(number + 1, line);
        }
    }
    examples.found
}

/// The examples after the flags of every command's help.
pub fn of_help() -> Vec<Example> {
    let mut found = Vec::new();
    for command in fencepost::cli::command().get_subcommands() {
        let Some(after) = command.get_after_help().or(command.get_after_long_help()) else {
            continue;
        };
        let source = format!("fencepost {} --help", command.get_name());
        found.extend(of_text(
            &source,
            &after.to_string(),
            &["fencepost", "TOKEN", "tar", "kubectl"],
        ));
    }
    found
}

/// What `fencepost --help` advises to try.
pub fn of_overview() -> Vec<Example> {
    let command = fencepost::cli::command();
    let after = command.get_after_help().expect("advice").to_string();
    of_text("fencepost --help", &after, &["fencepost"])
}

struct Examples {
    source: String,
    found: Vec<Example>,
    /// What ends the here-document that is being read.
    until: Option<String>,
    continued: bool,
}

impl Examples {
    fn new(source: &str) -> Self {
        Self { source: source.into(), found: Vec::new(), until: None, continued: false }
    }

    /// A command, or what one prints: `kinds::is_output` knows.
    fn line(&mut self, number: usize, line: &str) {
        if self.until.is_none() && !self.continued && super::kinds::is_output(line) {
            self.output(number, line);
        } else {
            self.command(number, line);
        }
    }

    fn command(&mut self, number: usize, line: &str) {
        let line = line.trim_end();
        if let Some(end) = &self.until {
            let ends = line == end;
            self.add(line);
            if ends {
                self.until = None;
            }
            return;
        }
        let is_part = std::mem::replace(&mut self.continued, line.ends_with('\\'));
        if is_part {
            self.add(line);
            return;
        }
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        if let Some((_, end)) = line.split_once("<<'") {
            self.until = Some(end.trim_end_matches('\'').to_owned());
        }
        let (source, text) = (self.source.clone(), line.to_owned());
        self.found.push(Example { source, line: number, text, shown: Vec::new() });
    }

    fn add(&mut self, line: &str) {
        let last = self.found.last_mut().expect("a line before");
        last.text.push('\n');
        last.text.push_str(line);
    }

    fn output(&mut self, number: usize, line: &str) {
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let source = &self.source;
        let command = self.found.last_mut();
        let command =
            command.unwrap_or_else(|| panic!("{source}:{number}: printed by what? {line}"));
        command.shown.push(line.trim_end().to_owned());
    }
}
