//! What is done with each example. An example that fits none of these fails the test.

use super::extract::Example;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs, and ends with this exit code.
    Runs(i32),
    /// A server. It stays, and what follows talks to it.
    Serves,
    /// Prints something, and goes on for as long as its page lasts.
    GoesOn,
    /// `make -n`: the target is there. What it does is tested by calling it.
    DryRun,
    /// Text that explains, or an expression for Prometheus: its metrics must be there.
    Expression,
    /// Not run. Commands of fencepost in it are parsed.
    NotHere,
}

/// What cannot be run by this test, and why.
pub const NOT_HERE: &[(&str, &str)] = &[
    ("kubectl ", "needs a cluster"),
    ("helm ", "needs a cluster"),
    ("podman ", "builds and pushes an image"),
    ("docker ", "pulls an image"),
    ("ssh ", "needs another machine"),
    ("psql -d app -c '\\password", "asks on a terminal"),
    ("<prefix>/<name>/", "a layout"),
    ("token = epoch", "a formula"),
];

/// What goes on until somebody stops it.
pub const GOES_ON: &[&str] = &[
    "curl -N ",
    "fencepost locks leader --watch",
    "fencepost rejections --reason stale-token --follow",
    "fencepost rejections --follow",
    "fencepost rejections --key orders/42 --reason stale-token --follow",
];

/// What fails, as its page says: source, beginning, exit code.
pub const FAILS: &[(&str, &str, i32)] = &[
    // 403 forbidden.
    ("docs/access.md", "fencepost put --token 1 carts/7", 1),
    ("fencepost --help", "fencepost put --token 1 orders oops", 73),
    // The tour shows a refusal. `fail-with-body` makes curl end with 22.
    ("README.md", "curl -s -i -X PUT $API/resources/orders/42 -H 'X-Fencing-Token: 1'", 22),
];

const PROGRAMS: &[&str] =
    &["fencepost", "curl", "psql", "etcdctl", "ls", "cat", "export", "tar", "sqlite3"];

const EXPRESSIONS: &[&str] =
    &["sum", "histogram_quantile(", "min", "max", "increase(", "fencepost_"];

const OUTPUT: &[&str] = &["{", "HTTP/1.1 ", "x-fencing-", "event: ", "data: "];

/// In an indented block, where no prompt tells a command from what it prints.
pub fn is_output(line: &str) -> bool {
    OUTPUT.iter().any(|start| line.starts_with(start))
}

/// The command of a line of a crontab.
pub fn without_schedule(text: &str) -> &str {
    let rest = text.strip_prefix("@reboot").or_else(|| text.strip_prefix("0 3 * * *"));
    rest.map_or(text, str::trim_start)
}

pub fn kind(example: &Example) -> Option<Kind> {
    let text = without_schedule(&example.text);
    let starts = |start: &str| text.starts_with(start);
    if NOT_HERE.iter().any(|(start, _)| starts(start)) {
        return Some(Kind::NotHere);
    }
    if starts("make ") {
        return Some(Kind::DryRun);
    }
    if GOES_ON.iter().any(|start| starts(start)) {
        return Some(Kind::GoesOn);
    }
    if text.split_whitespace().take(2).eq(["fencepost", "serve"]) {
        return Some(Kind::Serves);
    }
    let fails = FAILS
        .iter()
        .find(|(source, start, _)| *source == example.source && starts(start))
        .map(|(_, _, code)| *code);
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_assignment = first.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    });
    if is_assignment || PROGRAMS.contains(&first) {
        return Some(Kind::Runs(fails.unwrap_or(0)));
    }
    EXPRESSIONS.iter().any(|start| starts(start)).then_some(Kind::Expression)
}
