//! The findings of a check, for a person or for a program.

use std::{fmt::Write, io::IsTerminal};

use serde::{Deserialize, Serialize};

use crate::{
    cli::{
        exit::Failure,
        output::{self, Format},
    },
    finding::{Finding, Grade},
};

/// As it is printed for programs, and sent by a server that was asked.
#[derive(Serialize, Deserialize)]
pub struct Report {
    version: String,
    settings: Used,
    /// Whether nothing is wrong. Warnings are not.
    ok: bool,
    groups: Vec<Group>,
}

/// Which settings were looked at. Without secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Used {
    /// Whose settings they are.
    pub of: String,
    pub store: String,
    pub authority: String,
    pub config: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Group {
    name: String,
    checks: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    status: Grade,
    detail: String,
    hint: Option<String>,
    docs: String,
}

impl Report {
    pub fn new(settings: Used, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.subject);
        let mut groups: Vec<Group> = Vec::new();
        for finding in findings {
            let place = finding.subject.place();
            let entry = Entry {
                name: place.name.into(),
                status: finding.grade,
                detail: finding.says,
                hint: finding.hint,
                docs: place.docs.into(),
            };
            match groups.last_mut() {
                Some(group) if group.name == place.group => group.checks.push(entry),
                _ => groups.push(Group { name: place.group.into(), checks: vec![entry] }),
            }
        }
        let mut report =
            Self { version: env!("CARGO_PKG_VERSION").into(), settings, ok: false, groups };
        report.ok = matches!(report.worst(), Grade::Good | Grade::Doubtful);
        report
    }

    /// Names the server that was asked.
    #[must_use]
    pub fn by(mut self, server: &str) -> Self {
        self.settings.of = format!("the running server at {server}");
        self
    }

    /// What could not be reached outweighs the rest: the others may be only its consequences.
    pub fn worst(&self) -> Grade {
        [Grade::Away, Grade::Bad, Grade::Doubtful]
            .into_iter()
            .find(|grade| self.count(&[*grade]) > 0)
            .unwrap_or(Grade::Good)
    }

    fn count(&self, wanted: &[Grade]) -> usize {
        let checks = self.groups.iter().flat_map(|group| &group.checks);
        checks.filter(|check| wanted.contains(&check.status)).count()
    }

    pub fn print(&self, format: Format) -> Result<(), Failure> {
        if format.is_table() {
            return output::print(&self.for_people(&std::io::stdout()));
        }
        output::print(&format!("{}\n", self.to_json()))
    }

    pub fn to_json(&self) -> String {
        // Plain strings: there is nothing in them that could fail to serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn for_people(&self, stream: &impl IsTerminal) -> String {
        let [bold, dim, plain] =
            ["\x1b[1m", "\x1b[2m", "\x1b[0m"].map(|code| output::colour(stream, code));
        let mut text = String::new();
        let Used { of, store, authority, config } = &self.settings;
        let _ = writeln!(text, "settings of {of}");
        let config = config.as_deref().unwrap_or("none");
        for (name, value) in
            [("store", store.as_str()), ("authority", authority), ("config file", config)]
        {
            let _ = writeln!(text, "  {name:<13}   {}", output::printable(value));
        }
        let _ = writeln!(text);
        for group in &self.groups {
            let _ = writeln!(text, "{bold}{}{plain}", group.name);
            for check in &group.checks {
                let (sign, colour) = sign(check.status);
                let colour = output::colour(stream, colour);
                let detail = output::printable(&check.detail).replace('\n', " ");
                let _ = writeln!(text, "  {colour}{sign}{plain} {:<13} {detail}", check.name);
                if let Some(hint) = &check.hint {
                    let hint = output::printable(hint);
                    let _ = writeln!(text, "{:18}{dim}→{plain} {hint}", "");
                    let _ = writeln!(text, "{:18}{dim}  {}{plain}", "", check.docs);
                }
            }
        }
        let _ = writeln!(
            text,
            "\n{} ok, {} warnings, {} failed",
            self.count(&[Grade::Good]),
            self.count(&[Grade::Doubtful]),
            self.count(&[Grade::Bad, Grade::Away]),
        );
        text
    }
}

fn sign(grade: Grade) -> (char, &'static str) {
    match grade {
        Grade::Good => ('✓', "\x1b[32m"),
        Grade::Doubtful => ('!', "\x1b[33m"),
        Grade::Bad | Grade::Away => ('✗', "\x1b[31m"),
    }
}
