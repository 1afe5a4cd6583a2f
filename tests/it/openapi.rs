//! The OpenAPI document: what is committed, what is printed and what is served are one, and it has
//! every route there is. That it tells the truth about them is for `make test-api` to show.

use std::collections::{BTreeMap, BTreeSet};

use fencepost::api::Route;
use reqwest::Method;
use serde_json::Value;

use crate::harness::{
    fencepost::{Fencepost, run},
    http::answer,
    store::TestStore,
};

const COMMITTED: &str = include_str!("../../docs/openapi.json");

#[test]
fn the_committed_document_is_what_the_binary_prints() {
    let printed = String::from_utf8(run(&["openapi"]).stdout).expect("UTF-8");
    assert!(
        printed == COMMITTED,
        "docs/openapi.json is out of date: cargo run -- openapi > docs/openapi.json"
    );
}

#[tokio::test]
async fn the_server_serves_its_document() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let answer = answer(server.client().get("/openapi.json")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.text() == COMMITTED, "it serves another document than docs/openapi.json");
    assert_eq!(answer.json()["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn every_route_is_in_the_document_with_every_method() {
    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    let client = server.client();
    let mut routes = BTreeMap::new();
    for route in Route::ALL {
        // No route has this method, so the answer lists those that it has.
        let path = route.template().replace(['{', '}'], "");
        let refused = answer(client.request(Method::PATCH, &path)).await;
        assert_eq!((refused.status, refused.problem().as_str()), (405, "method-not-allowed"));
        let allow = refused.header("allow").expect("a list of methods");
        let methods: BTreeSet<String> = allow.split(',').map(|name| name.trim().into()).collect();
        routes.insert(route.template().to_owned(), methods);
    }
    assert_eq!(routes, documented_methods());
}

#[test]
fn every_operation_has_a_name_of_its_own() {
    let document = document();
    let operations = document["paths"].as_object().expect("paths").values();
    let operations = operations.flat_map(|item| item.as_object().expect("operations").values());
    let mut names = BTreeSet::new();
    for operation in operations {
        let name = operation["operationId"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        assert!(operation["summary"].is_string(), "{name} has no summary");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut references = Vec::new();
    collect_references(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("a reference into the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

/// A wildcard is a plain parameter to OpenAPI, and an empty key is still a key.
fn documented_methods() -> BTreeMap<String, BTreeSet<String>> {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    let methods = |item: &Value| {
        item.as_object().expect("operations").keys().map(|name| name.to_uppercase()).collect()
    };
    paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
}

fn document() -> Value {
    serde_json::from_str(COMMITTED).expect("JSON")
}

fn collect_references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| collect_references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

/// Those lines of a text that a pattern matches, as `grep -E` reads it.
fn matching(pattern: &str, lines: &[String]) -> Vec<String> {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };
    let mut grep = Command::new("grep")
        .args(["-E", "--", pattern])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("grep runs");
    let mut input = grep.stdin.take().expect("a pipe");
    let text = lines.join("\n") + "\n";
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = grep.wait_with_output().expect("grep ends");
    writer.join().expect("a thread").expect("grep reads");
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn since_takes_every_moment_that_its_pattern_allows_and_no_other_day() {
    let document = document();
    let parameters = document["paths"]["/v1/rejections"]["get"]["parameters"].as_array().unwrap();
    let since = parameters.iter().find(|parameter| parameter["name"] == "since").unwrap();
    let pattern = since["schema"]["pattern"].as_str().expect("a pattern");

    let mut moments: Vec<String> = Vec::new();
    for year in [1970, 1972, 1999, 2000, 2023, 2024, 2026, 2096] {
        for month in 0..=13 {
            for day in 0..=32 {
                moments.push(format!("{year}-{month:02}-{day:02}T12:00:00Z"));
            }
        }
    }
    for hour in 0..=24 {
        for (minute, second) in [(0, 0), (9, 10), (59, 59), (60, 0), (0, 60)] {
            moments.push(format!("2026-10-20T{hour:02}:{minute:02}:{second:02}Z"));
        }
    }
    for end in [".5Z", ".123456789Z", "+00:00", ".25+00:00", "", "+01:00", "z"] {
        moments.push(format!("2026-12-31T23:59:59{end}"));
    }
    moments.push("1969-12-31T23:59:59Z".into());
    let times =
        ["5m", "10s", "9999d", "86400s", "10000s", "1h30m", "1d2h3m4s5ms", "500ms", "5", "m"];
    moments.extend(times.map(str::to_owned));
    let allowed = matching(pattern, &moments);
    assert!(allowed.len() > 5 * 365, "{} of {}", allowed.len(), moments.len());

    let store = TestStore::sqlite();
    let server = Fencepost::on(&store).await;
    for moment in &moments {
        let query = format!("/v1/rejections?since={}", moment.replace('+', "%2B"));
        let status = answer(server.client().get(&query)).await.status;
        let expected = if allowed.contains(moment) { 200 } else { 400 };
        assert_eq!(status, expected, "{moment}");
    }
}

#[test]
fn the_table_of_statuses_is_complete() {
    let document = document();
    let text = document["info"]["description"].as_str().expect("a description");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| status"));
    let listed: BTreeSet<u16> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split(',').map(str::trim))
        .map(|status| status.parse().unwrap_or_else(|_| panic!("{status}")))
        .collect();
    let kinds = fencepost::api::problem::Kind::ALL;
    let there_are: BTreeSet<u16> = kinds.map(|kind| kind.status().as_u16()).into();
    assert_eq!(listed, there_are);
}
