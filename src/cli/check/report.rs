//! The findings of a check, for a person or for a program.

use std::{fmt::Write, io::IsTerminal};

use serde::Serialize;

use crate::{
    cli::{
        exit::Failure,
        output::{self, Format},
    },
    finding::{Finding, Grade},
};

pub struct Report {
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    /// Whether nothing is wrong. Warnings are not.
    ok: bool,
    groups: Vec<Group<'a>>,
}

#[derive(Serialize)]
struct Group<'a> {
    name: &'static str,
    checks: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'static str,
    status: Grade,
    detail: &'a str,
    hint: Option<&'a str>,
    docs: &'static str,
}

impl Report {
    pub fn new(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.subject);
        Self { findings }
    }

    /// What could not be reached outweighs the rest: the others may be only its consequences.
    pub fn worst(&self) -> Grade {
        let has = |grade| self.findings.iter().any(|finding| finding.grade == grade);
        [Grade::Away, Grade::Bad, Grade::Doubtful]
            .into_iter()
            .find(|grade| has(*grade))
            .unwrap_or(Grade::Good)
    }

    pub fn print(&self, format: Format) -> Result<(), Failure> {
        if format.is_table() {
            return output::print(&self.for_people(&std::io::stdout()));
        }
        // Plain strings: there is nothing in them that could fail to serialize.
        let document = serde_json::to_string(&self.document()).unwrap_or_default();
        output::print(&format!("{document}\n"))
    }

    fn document(&self) -> Document<'_> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for finding in &self.findings {
            let place = finding.subject.place();
            let entry = Entry {
                name: place.name,
                status: finding.grade,
                detail: &finding.says,
                hint: finding.hint.as_deref(),
                docs: place.docs,
            };
            match groups.last_mut() {
                Some(group) if group.name == place.group => group.checks.push(entry),
                _ => groups.push(Group { name: place.group, checks: vec![entry] }),
            }
        }
        let ok = matches!(self.worst(), Grade::Good | Grade::Doubtful);
        Document { version: env!("CARGO_PKG_VERSION"), ok, groups }
    }

    fn for_people(&self, stream: &impl IsTerminal) -> String {
        let [bold, dim, plain] =
            ["\x1b[1m", "\x1b[2m", "\x1b[0m"].map(|code| output::colour(stream, code));
        let mut text = String::new();
        for group in self.document().groups {
            let _ = writeln!(text, "{bold}{}{plain}", group.name);
            for check in group.checks {
                let (sign, colour) = sign(check.status);
                let colour = output::colour(stream, colour);
                let detail = output::printable(check.detail).replace('\n', " ");
                let _ = writeln!(text, "  {colour}{sign}{plain} {:<13} {detail}", check.name);
                if let Some(hint) = check.hint {
                    let _ = writeln!(text, "{:18}{dim}→{plain} {hint}", "");
                    let _ = writeln!(text, "{:18}{dim}  {}{plain}", "", check.docs);
                }
            }
        }
        let count = |wanted: &[Grade]| {
            self.findings.iter().filter(|finding| wanted.contains(&finding.grade)).count()
        };
        let _ = writeln!(
            text,
            "\n{} in order, {} to look at, {} wrong",
            count(&[Grade::Good]),
            count(&[Grade::Doubtful]),
            count(&[Grade::Bad, Grade::Away]),
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
