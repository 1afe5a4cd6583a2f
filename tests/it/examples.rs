//! Every command that the documents, the demo and `--help` show is taken by the command line; and it runs, against real
//! servers, unless `kinds::NOT_HERE` says why it cannot.

mod extract;
mod kinds;
mod parse;
mod scene;

use self::{
    extract::{Example, of_document, of_help, of_overview, of_text},
    kinds::{FAILS, GOES_ON, Kind, NOT_HERE, kind},
    scene::Scene,
};
use crate::{
    documents::{document, every_document},
    harness::{
        access::{Ca, host},
        etcd::{self, CertificateAuthority, Etcd},
        fencepost::run,
        postgres::{Postgres, execute},
    },
};

/// Pages whose examples all need Postgres and etcd. Of other pages, those do that `needs_postgres`.
const ON_POSTGRES: [&str; 5] = [
    "docs/postgres.md",
    "README.md",
    "docs/kubernetes.md",
    "docs/etcd.md",
    "docs/runbooks/authority-down.md",
];

/// `fencepost demo` ends with what to try next.
fn of_demo() -> Vec<Example> {
    let demo = run(&["demo"]);
    assert!(demo.status.success(), "{demo:?}");
    let told = String::from_utf8(demo.stdout).expect("UTF-8");
    let (_, advice) = told.split_once("Try it yourself:").expect("advice");
    of_text("fencepost demo", advice, &["fencepost"])
}

fn of_documents() -> Vec<Example> {
    every_document().iter().flat_map(|name| of_document(name)).collect()
}

#[test]
fn every_example_has_a_kind_and_is_taken_by_the_command_line() {
    let examples: Vec<Example> =
        of_documents().into_iter().chain(of_help()).chain(of_overview()).chain(of_demo()).collect();
    assert!(examples.len() > 100, "{} examples", examples.len());
    for Example { source, line, text, .. } in &examples {
        for command in parse::commands(text) {
            if let Err(error) = parse::parse(&command) {
                panic!("{source}:{line}: {text}\n{error}");
            }
        }
    }
    let unknown: Vec<_> = examples.iter().filter(|example| kind(example).is_none()).collect();
    assert!(unknown.is_empty(), "say in examples/kinds.rs what these are: {unknown:#?}");

    // What is listed is needed.
    let begins = |start: &str| examples.iter().any(|example| example.text.starts_with(start));
    let listed = NOT_HERE.iter().map(|(start, _)| *start).chain(GOES_ON.iter().copied());
    for start in listed.chain(FAILS.iter().map(|(_, start, _)| *start)) {
        assert!(begins(start), "no example begins with {start}");
    }
}

#[test]
fn commands_that_are_mentioned_in_a_sentence_exist() {
    let mut mentioned = 0;
    for name in every_document() {
        let text = document(&name);
        for code in text.split('`').skip(1).step_by(2) {
            for command in parse::commands(code) {
                mentioned += 1;
                if let Err(error) = parse::parse_mention(&command) {
                    panic!("{name}: `{code}`\n{error}");
                }
            }
        }
    }
    assert!(mentioned > 30, "{mentioned}");
}

fn needs_postgres(example: &Example) -> bool {
    ["postgres://", "psql "].iter().any(|sign| example.text.contains(sign))
}

async fn play(scene: &mut Scene, examples: &[Example]) {
    for example in examples {
        scene.play(example).await;
    }
}

/// An empty database `app`, an etcd, and the names by which pages call them.
async fn with_postgres(postgres: &Postgres, etcd: &Etcd) -> Scene {
    execute(&postgres.url("postgres"), "DROP DATABASE IF EXISTS app WITH (FORCE)").await;
    execute(&postgres.url("postgres"), "CREATE DATABASE app").await;
    let mut scene = Scene::new();
    let there = format!("127.0.0.1:{}/app", postgres.port());
    for name in ["db/app", "db.example/app", "db.example/app?sslmode=verify-full"] {
        scene.means(&format!("@{name}"), &format!("@{there}"));
    }
    scene.means("postgres://… ", &format!("postgres://fencepost_serve@{there} "));
    scene.means("fencepost_owner:…@", "fencepost_owner@");
    scene.means("etcd-0:2379", &etcd.address());
    scene.means("etcd-0:2379,etcd-1:2379,etcd-2:2379", &etcd.address());
    scene.means("/run/secrets/", "./secrets/");
    scene.means(
        "migrations/roles.sql",
        concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/roles.sql"),
    );
    for password in ["owner", "serve", "secrets/db"] {
        scene.file(password, "not asked for here");
    }
    scene.set("PGHOST", "127.0.0.1");
    scene.set("PGPORT", &postgres.port().to_string());
    scene.set("PGUSER", "postgres");
    scene.set("ETCDCTL_API", "3");
    scene.set("ETCD", &format!("http://{}", etcd.address()));
    scene
}

/// The same, as `docs/postgres.md` leaves it.
async fn with_schema(postgres: &Postgres, etcd: &Etcd) -> Scene {
    let scene = with_postgres(postgres, etcd).await;
    let owner = format!("postgres://fencepost_owner@127.0.0.1:{}/app", postgres.port());
    let prepared = scene
        .run(&format!("fencepost roles | psql -q -d app && fencepost migrate --store {owner}"))
        .await;
    assert!(prepared.status.success(), "{prepared:?}");
    scene
}

#[tokio::test]
async fn examples_with_postgres_and_etcd_run() {
    let postgres = Postgres::start(&[]).await;
    let etcd = Etcd::start(&[]).await;
    for page in every_document() {
        let mut examples = of_document(&page);
        if !ON_POSTGRES.contains(&page.as_str()) {
            examples.retain(needs_postgres);
        }
        match page.as_str() {
            _ if examples.is_empty() => {}
            "README.md" => play_readme(&mut with_schema(&postgres, &etcd).await).await,
            "docs/etcd.md" => {
                let mut scene = with_schema(&postgres, &etcd).await;
                scene.set("ETCDCTL_ENDPOINTS", &format!("http://{}", etcd.address()));
                play_etcd(&mut scene).await;
            }
            "docs/postgres.md" => {
                let owner = format!("postgres://fencepost_owner@127.0.0.1:{}/app", postgres.port());
                // The page begins with what it leads to.
                examples.rotate_left(1);
                assert!(examples.last().is_some_and(|last| kind(last) == Some(Kind::Serves)));
                // A store without an authority is another one.
                let (without, with): (Vec<_>, Vec<_>) =
                    examples.into_iter().partition(|one| one.text.contains("--authority none"));
                let mut scene = with_postgres(&postgres, &etcd).await;
                scene.set("FENCEPOST_STORE", &owner);
                play(&mut scene, &with).await;
                let mut scene = with_schema(&postgres, &etcd).await;
                scene.set("FENCEPOST_STORE", &owner);
                play(&mut scene, &without).await;
            }
            "docs/runbooks/authority-down.md" => {
                let mut scene = with_schema(&postgres, &etcd).await;
                scene.serve("fencepost serve").await;
                play(&mut scene, &examples).await;
            }
            _ => {
                let mut scene = with_schema(&postgres, &etcd).await;
                scene.before(
                    "fencepost authority --store",
                    "fencepost authority move --store postgres://… --to store --yes",
                );
                play(&mut scene, &examples).await;
            }
        }
    }
    let mut help = of_help();
    help.retain(needs_postgres);
    play(&mut with_postgres(&postgres, &etcd).await, &help).await;
}

/// The tour is on an embedded store of its own, as `make run` gives it; the rest is on Postgres.
async fn play_readme(scene: &mut Scene) {
    let mut examples = of_document("README.md");
    let tour: Vec<Example> = {
        let is_tour = |example: &Example| {
            example.text.starts_with("API=") || example.text.starts_with("curl ")
        };
        let (tour, others) = examples.into_iter().partition(is_tour);
        examples = others;
        tour
    };
    // `report.sh` is the script that the page shows after it.
    let last = examples.pop().expect("a script");
    assert!(last.text.starts_with("fencepost put reports/today < report.csv"), "{}", last.text);
    scene.program("report.sh", &last.text);
    scene.file("report.csv", "a,b\n");
    play(scene, &examples).await;
    assert_eq!(scene.read("reports/today").await, "a,b\n");

    let mut embedded = Scene::new();
    embedded.serve("fencepost serve").await;
    play(&mut embedded, &tour).await;
}

/// The first example serves with the etcd of all; then the store is moved to another one and to the lock table; the others
/// are about an etcd that asks for passwords.
async fn play_etcd(scene: &mut Scene) {
    let examples = of_document("docs/etcd.md");
    let (serve, rest) = examples.split_first().expect("examples");
    play(scene, std::slice::from_ref(serve)).await;
    let about_locks = |example: &&Example| example.text.starts_with("etcdctl get");
    let about_moves = |example: &&Example| example.text.starts_with("fencepost authority move ");
    let held = scene.run("fencepost lock orders/42 --ttl 10m").await;
    assert!(held.status.success(), "{held:?}");
    let new = Etcd::start(&[]).await;
    scene.means("new-0:2379,new-1:2379", &new.address());
    for example in rest.iter().filter(about_locks).chain(rest.iter().filter(about_moves)) {
        scene.play(example).await;
    }

    let authority = CertificateAuthority::new();
    let secured = Etcd::with_tls(&authority).await;
    let [ca, cert, key] = authority.files(scene.path(), "client");
    for (variable, file) in [("CA", &ca), ("CERT", &cert), ("KEY", &key)] {
        let file = file.to_str().expect("UTF-8");
        scene.set(&format!("FENCEPOST_ETCD_{variable}"), file);
        scene.set(&format!("ETCDCTL_{}", if variable == "CA" { "CACERT" } else { variable }), file);
    }
    scene.set("ETCDCTL_ENDPOINTS", &format!("https://{}", secured.address()));
    scene.means("etcd-0:2379", &secured.address());
    scene.file("secrets/etcd", "sesame-and-more\n");
    scene.before(
        "fencepost serve --authority etcds://",
        "etcdctl user add root:root && etcdctl user grant-role root root && etcdctl auth enable",
    );
    for example in rest.iter().filter(|one| !about_locks(one) && !about_moves(one)) {
        scene.play(example).await;
    }
    let granted = scene.run("fencepost lock orders/42 -o token").await;
    assert!(granted.status.success(), "the user may use its prefix: {granted:?}");
}

/// A server on the embedded store that has granted six locks, and refused a holder that was late.
async fn embedded() -> Scene {
    let mut scene = Scene::new();
    for program in ["nightly.sh", "serve", "leader"] {
        scene.program(program, "exit 0");
    }
    scene.means("/srv/", "./");
    scene.file("order.json", "{}");
    scene.serve("fencepost serve").await;
    scene.issue(6).await;
    let stale = scene.run("fencepost put --token 3 orders/42 late").await;
    assert_eq!(stale.status.code(), Some(73), "{stale:?}");
    scene
}

#[tokio::test]
async fn examples_of_all_other_pages_run() {
    for page in every_document().iter().filter(|page| !ON_POSTGRES.contains(&page.as_str())) {
        let mut examples = of_document(page);
        examples.retain(|example| !needs_postgres(example));
        if examples.is_empty() {
            continue;
        }
        let mut scene = embedded().await;
        match page.as_str() {
            "docs/access.md" => {
                let ca = Ca::new("somebody whom clients trust");
                let (certificate, key) = ca.issue(&[host("localhost")]);
                for (name, pem) in
                    [("ca.crt", ca.pem()), ("tls.crt", certificate), ("tls.key", key)]
                {
                    scene.file(name, &pem);
                }
                scene.means("0.0.0.0:7420", "0.0.0.0:0");
                // The page's server has a store of its own.
                scene.set("FENCEPOST_STORE", "sqlite:access.db");
            }
            "docs/check.md" => {
                scene.before("fencepost check --config", "fencepost config > fencepost.toml");
            }
            // Nobody listens there. It serves all the same.
            "docs/tracing.md" => scene.means("http://collector:4318", "http://127.0.0.1:9"),
            _ => {}
        }
        play(&mut scene, &examples).await;
    }
}

#[tokio::test]
async fn examples_of_help_and_demo_run() {
    let mut scene = embedded().await;
    scene.issue(1).await;
    let prepared = scene.run("fencepost put --token 7 orders/42 paid").await;
    assert!(prepared.status.success(), "{prepared:?}");
    let mut help = of_help();
    help.retain(|example| !needs_postgres(example));
    play(&mut scene, &help).await;
    let mut tried = Scene::new();
    play(&mut tried, &of_demo()).await;
    assert_eq!(tried.read("orders/42").await, "paid");
    let mut overview = Scene::new();
    play(&mut overview, &of_overview()).await;
    assert_eq!(overview.read("orders").await, "paid");
}

#[tokio::test]
async fn expressions_for_prometheus_name_metrics_that_there_are() {
    let etcd = etcd::url_of_shared().await;
    let mut scene = Scene::new();
    scene
        .serve(&format!("fencepost serve --authority {etcd} --otlp-endpoint http://127.0.0.1:9"))
        .await;
    let metrics = scene.metrics().await;
    let mut named = 0;
    let is_expression = |example: &Example| kind(example) == Some(Kind::Expression);
    for Example { source, line, text, .. } in of_documents().into_iter().filter(is_expression) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for metric in words.filter(|word| word.starts_with("fencepost_")) {
            named += 1;
            let there = metrics.lines().any(|line| {
                line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']))
            });
            assert!(there, "{source}:{line}: {metric}");
        }
    }
    assert!(named > 20, "{named}");
}
