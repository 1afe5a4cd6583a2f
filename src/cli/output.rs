//! Tables for a terminal, JSON for a pipe.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde_json::Value;

use super::exit::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table on a terminal, JSON elsewhere
    Auto,
    /// A table, for people
    Table,
    /// JSON, for programs
    Json,
}

impl Format {
    pub fn is_table(self) -> bool {
        match self {
            Self::Auto => std::io::stdout().is_terminal(),
            Self::Table => true,
            Self::Json => false,
        }
    }

    /// One object, as a table with one row or as it is.
    pub fn object(self, columns: &[&str], object: &Value) -> Result<(), Failure> {
        if self.is_table() {
            return table(columns, std::slice::from_ref(object));
        }
        print(&format!("{object}\n"))
    }

    /// Many objects: rows of a table, or the whole document.
    pub fn rows(self, columns: &[&str], rows: &[Value], document: &Value) -> Result<(), Failure> {
        if self.is_table() { table(columns, rows) } else { print(&format!("{document}\n")) }
    }
}

fn table(columns: &[&str], rows: &[Value]) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|column| column.to_uppercase()));
    for row in rows {
        table.add_row(columns.iter().map(|column| match &row[*column] {
            Value::Null => String::new(),
            // A line break in a key must not look like another row.
            Value::String(text) => printable(text).replace('\n', "\\n"),
            other => other.to_string(),
        }));
    }
    print(&format!("{}\n", table.trim_fmt()))
}

pub fn print(text: &str) -> Result<(), Failure> {
    write_out(text.as_bytes())
}

/// A warning beside the output.
pub fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {}", printable(text));
}

/// Where more is to come: `false` if nobody reads it any more.
pub fn print_more(text: &str) -> Result<bool, Failure> {
    write_more(text.as_bytes())
}

/// To standard output. Whoever reads it may stop early (`| head`); that is no failure.
pub fn write_out(bytes: &[u8]) -> Result<(), Failure> {
    write_more(bytes).map(drop)
}

fn write_more(bytes: &[u8]) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("cannot write the output: {error}"))),
    }
}

/// What a stranger wrote, made harmless for a terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => c.to_string(),
            c if c.is_control() => c.escape_default().to_string(),
            c => c.to_string(),
        })
        .collect()
}

/// An escape sequence where it will be understood and is wanted, else nothing.
pub fn colour(stream: &impl IsTerminal, sequence: &'static str) -> &'static str {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted && stream.is_terminal() { sequence } else { "" }
}
