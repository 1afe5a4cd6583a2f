//! What the documents say is true.

use std::{fmt::Write, time::Duration};

use clap::Arg;

use crate::harness::{
    fencepost::{Fencepost, run_with},
    http::answer,
    store::TestStore,
};

pub fn document(name: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All that is written for readers, by its path.
pub fn every_document() -> Vec<String> {
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(String::from).into();
    names.push("charts/fencepost/README.md".into());
    for folder in ["docs", "docs/runbooks"] {
        let path = format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(&path).expect("a folder").flatten();
        for file in files.filter(|file| file.path().extension().is_some_and(|end| end == "md")) {
            names.push(format!("{folder}/{}", file.file_name().to_str().expect("UTF-8")));
        }
    }
    names.sort();
    names
}

/// The settings as docs/settings.md has them: a table for each heading of `--help`.
fn settings_tables() -> String {
    let command = fencepost::cli::command();
    let serve = command.find_subcommand("serve").expect("a command");
    let mut tables = String::new();
    let mut heading = None;
    for argument in serve.get_arguments() {
        let Some(group) = argument.get_help_heading() else { continue };
        if heading != Some(group) {
            heading = Some(group);
            let _ = write!(tables, "\n### {group}\n\n| setting | default | |\n|---|---|---|\n");
        }
        tables += &row(argument);
    }
    tables
}

fn row(argument: &Arg) -> String {
    let name = argument.get_long().expect("a flag");
    let default = argument.get_default_values().first();
    let default = default.map(|value| format!("`{}`", value.to_string_lossy())).unwrap_or_default();
    let help = argument.get_help().expect("a help text");
    format!("| `{name}` | {default} | {help} |\n")
}

#[test]
fn the_settings_are_those_that_there_are() {
    let expected = settings_tables();
    let text = document("docs/settings.md");
    assert!(text.contains(&expected), "docs/settings.md should have:\n{expected}");
}

#[test]
fn every_document_that_is_linked_is_there() {
    for name in &every_document() {
        let text = document(name);
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            // Pictures among them.
            let path = format!("{}/{folder}/{link}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::fs::exists(&path).unwrap_or(false), "{name} links to {path}");
        }
    }
}

/// Runs the commands of README's tour, and finds the answers that it shows.
#[tokio::test]
async fn the_tour_of_the_readme_is_real() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let readme = document("README.md");
    let tour = readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next());
    // The first step says where the API is, which differs here.
    let steps: Vec<&str> = tour.expect("a tour").split("$ ").skip(2).collect();
    assert!(steps.len() > 5, "{steps:?}");
    for step in steps {
        let (command, shown) = step.split_once('\n').expect("a line");
        let output = std::process::Command::new("bash")
            .args(["-c", command])
            .env("API", format!("{}/v1", server.address))
            .output()
            .expect("bash runs");
        let answer = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(lines(&same_leases(shown)), lines(&same_leases(&answer)), "{command}");
    }
}

/// The name of a lease is another one each time.
fn same_leases(text: &str) -> String {
    let (before, rest) = text.split_once("\"lease\":\"").unwrap_or((text, ""));
    match rest.split_once('"') {
        Some((_, after)) => format!("{before}\"lease\":\"…\"{after}"),
        None => text.to_owned(),
    }
}

/// What is the same in every run: no comments, no dates.
fn lines(text: &str) -> Vec<&str> {
    let same =
        |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("date:");
    text.lines().map(str::trim_end).filter(same).collect()
}

/// The commands of a document that begin with these words.
fn commands<'a>(text: &'a str, words: &str) -> Vec<Vec<&'a str>> {
    let commands = text.lines().filter_map(|line| line.strip_prefix("    fencepost "));
    let commands = commands.filter(|command| command.starts_with(words));
    commands
        .map(|command| command.split('#').next().unwrap_or(command).split_whitespace().collect())
        .collect()
}

/// Without hand-written SQL.
#[tokio::test]
async fn the_floor_rises_as_the_documents_say() {
    for name in ["docs/postgres.md", "docs/runbooks/store-down.md"] {
        let store = TestStore::postgres().await;
        let server = Fencepost::with(&store, &["--authority", "store"]).await;
        let client = server.client();
        let held = client.lock("job", Duration::from_mins(5)).await;
        let page = document(name);
        assert!(!page.contains("```sql"), "{name} wants SQL");
        let commands = commands(&page, "floor");
        assert!(commands.iter().any(|command| command.contains(&"--above-all")), "{name}");
        // `examples` runs the others: they are for a store without an authority.
        for command in commands.into_iter().filter(|command| !command.contains(&"none")) {
            let output = run_with(&command, |process| {
                process.env("FENCEPOST_STORE", store.url.replace("postgres@", "fencepost_owner@"));
            });
            assert!(
                output.status.success(),
                "{command:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        assert_eq!(answer(client.put("new", held, "v")).await.json()["floor"], true, "{name}");
        let again = client.lock("job", Duration::from_mins(5)).await;
        assert_eq!(answer(client.put("new", again, "v")).await.status, 201, "{name}");
    }
}

/// The median in a row of the first table of docs/benchmarks.md.
fn measured(row: &str) -> f64 {
    let benchmarks = document("docs/benchmarks.md");
    let found = benchmarks.lines().find(|line| line.starts_with(&format!("| {row}: throughput |")));
    let median = found.and_then(|line| line.split('|').nth(2)).expect(row);
    median.trim().trim_end_matches(" x").parse().expect(row)
}

#[test]
fn the_readme_promises_the_speed_that_was_measured() {
    let readme = document("README.md");
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for claim in [
        "nearly three times as much as pgbench with 64 clients",
        "twice as much where every key is new",
        "more than 40 times as much on one key",
    ] {
        assert!(readme.contains(claim), "README says otherwise; change this test with it: {claim}");
    }
    let common = measured("pgbench, 64 clients");
    assert!((2.7..3.3).contains(&common), "{common}");
    let new_keys = measured("pgbench, 64 clients, new keys");
    assert!((1.8..2.5).contains(&new_keys), "{new_keys}");
    let one_key = measured("pgbench, 64 clients on one key");
    assert!(one_key > 40.0, "{one_key}");
}
