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
