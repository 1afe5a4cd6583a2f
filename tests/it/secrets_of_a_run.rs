//! Everything that a run says, to anybody, searched for every secret that it was given.

use std::{fs, path::PathBuf, process::Output};

use reqwest::Method;
use serde_json::json;

use crate::harness::{
    etcd::Etcd,
    eventually,
    fencepost::{Fencepost, run_with},
    http::{Answer, answer, insist},
    postgres::{self, Postgres, execute},
};

/// With a character that is written differently in an address.
const OF_POSTGRES: &str = "pg-s3cret@one";
const OF_POSTGRES_LATER: &str = "pg-s3cret@two";
const OF_ETCD: &str = "etcd-s3cret@";
/// What a client brings along, whether or not anybody asked for it.
const OF_A_CLIENT: &str = "client-s3cret";
/// All of them have it in common.
const SECRET: &str = "s3cret";

struct Run {
    postgres: Postgres,
    etcd: Etcd,
    /// Of a superuser.
    url: String,
    password_file: PathBuf,
    /// All that was said so far, and by whom.
    said: Vec<(String, String)>,
}

impl Run {
    async fn prepare() -> Self {
        let mut postgres = Postgres::start(&["fsync=off"]).await;
        let url = postgres.database("").await;
        postgres::to_serve(&url).await;
        execute(&url, &format!("ALTER ROLE fencepost_serve PASSWORD '{OF_POSTGRES}'")).await;
        let rules = "host all fencepost_serve all scram-sha-256\nhost all all all trust\n";
        fs::write(postgres.data().join("pg_hba.conf"), rules).unwrap();
        postgres.stop("fast").await;
        postgres.run().await;
        let mut etcd = Etcd::start(&[]).await;
        etcd.enable_auth("", OF_ETCD);
        let password_file = etcd.directory().join("store-password");
        fs::write(&password_file, format!("{OF_POSTGRES}\n")).unwrap();
        Self { postgres, etcd, url, password_file, said: Vec::new() }
    }

    fn address(&self, login: &str) -> String {
        self.url.replace("postgres@", &format!("{login}@"))
    }

    /// Both addresses hold their password.
    fn in_the_environment(&self) -> [(&'static str, String); 2] {
        let encoded = OF_POSTGRES.replace('@', "%40");
        let login = format!("app:{}", OF_ETCD.replace('@', "%40"));
        [
            ("FENCEPOST_STORE", self.address(&format!("fencepost_serve:{encoded}"))),
            ("FENCEPOST_AUTHORITY", format!("etcd://{login}@{}", self.etcd.address())),
        ]
    }

    /// Both passwords are in files.
    fn in_files(&self) -> Vec<String> {
        let etcd = self.etcd.directory().join("etcd-password");
        fs::write(&etcd, OF_ETCD).unwrap();
        let display = |path: &PathBuf| path.display().to_string();
        let flags = [
            ["--store", &self.address("fencepost_serve")],
            ["--store-password-file", &display(&self.password_file)],
            ["--authority", &self.etcd.url()],
            ["--etcd-user", "app"],
            ["--etcd-password-file", &display(&etcd)],
        ];
        flags.concat().into_iter().map(str::to_owned).collect()
    }

    fn heard(&mut self, from: &str, words: impl Into<String>) {
        self.said.push((from.into(), words.into()));
    }

    fn printed(&mut self, from: &str, output: &Output) {
        let words = [&output.stdout[..], &output.stderr[..]].concat();
        assert!(!words.is_empty(), "{from} said nothing");
        self.heard(from, String::from_utf8_lossy(&words));
    }

    fn answered(&mut self, from: &str, answer: &Answer) {
        self.heard(from, format!("{answer:?}\n{}", answer.text()));
    }

    /// Asks for everything there is, rightly and wrongly.
    async fn ask_everything(&mut self, server: &Fencepost) {
        let (client, admin) = (server.client(), server.admin_client());
        let token = client.lock("job", std::time::Duration::from_mins(1)).await;
        for request in [
            client.put("job", token, "v"),
            client.put("job", token - 1, "v"),
            client.put("job", i64::MAX, "v"),
            client.put("job", -1, "v"),
            client.read("job"),
            client.get("/v1/locks/job"),
            client.get("/v1/nothing"),
            client.get("/openapi.json"),
            client.acquire("job", &json!({"wrong": true})),
            client.request(Method::PATCH, "/v1/resources/job"),
            admin.get("/"),
            admin.get("/page/state"),
            admin.get("/metrics"),
            admin.get("/readyz?verbose"),
            admin.get("/v1/rejections"),
        ] {
            let request = request.header("Authorization", format!("Bearer {OF_A_CLIENT}"));
            let asked = request.try_clone().unwrap().build().unwrap();
            let path = asked.url().path().to_owned();
            self.answered(&path, &answer(request).await);
        }
        let command = fs::read(format!("/proc/{}/cmdline", server.pid())).unwrap();
        assert!(!command.is_empty());
        self.heard("the process list", String::from_utf8_lossy(&command));
    }

    #[track_caller]
    fn nobody_heard_a_secret(&self) {
        for (from, words) in &self.said {
            for line in words.lines() {
                assert!(!line.contains(SECRET), "{from}: {line}");
            }
        }
    }
}

#[tokio::test]
async fn are_kept_where_they_come_by_the_environment() {
    let mut run = Run::prepare().await;
    let [(_, store), (_, authority)] = run.in_the_environment();
    let server = Fencepost::start_as_it_is(&store, &["--authority", &authority, "--log", "trace"]);
    server.wait_until_ready().await;
    run.ask_everything(&server).await;
    for arguments in
        [&["config"][..], &["check"], &["check", "-o", "json"], &["migrate", "--check"]]
    {
        let environment = run.in_the_environment();
        let output = run_with(arguments, |command| {
            command.envs(environment);
        });
        run.printed(arguments[0], &output);
    }
    // And where it cannot go on.
    run.postgres.stop("fast").await;
    eventually("it is noticed", || async {
        answer(server.admin_client().get("/readyz")).await.status == 503
    })
    .await;
    let failed = answer(server.client().put("other", 1, "v")).await;
    run.answered("a problem", &failed);
    run.heard("the log", server.log());
    run.nobody_heard_a_secret();
    assert!(server.log().contains("fencepost_serve:***@"), "{}", server.log());
}

#[tokio::test]
async fn are_kept_where_they_come_by_files_and_may_change() {
    let mut run = Run::prepare().await;
    let flags = run.in_files();
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--log", "trace"]).collect();
    let server = Fencepost::start_as_it_is("sqlite:not-this-one", &flags);
    server.wait_until_ready().await;
    run.ask_everything(&server).await;

    // Somebody changes the password, and cuts all who had come in with the old one.
    execute(&run.url, &format!("ALTER ROLE fencepost_serve PASSWORD '{OF_POSTGRES_LATER}'")).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE usename = 'fencepost_serve'";
    execute(&run.url, cut).await;
    eventually("the old one does not do any more", || async {
        answer(server.admin_client().get("/readyz")).await.status == 503
    })
    .await;
    fs::write(&run.password_file, OF_POSTGRES_LATER).unwrap();
    server.wait_until_ready().await;
    // Who grants locks has connections of its own, and may need a moment longer.
    let granted = insist(server.client().acquire("later", &json!({"ttl_ms": 60_000}))).await;
    let token = granted.json()["token"].as_i64().unwrap();
    assert_eq!(answer(server.client().put("later", token, "v")).await.status, 201);

    for command in ["config", "check"] {
        let arguments: Vec<&str> = [command].into_iter().chain(flags.iter().copied()).collect();
        let output = run_with(&arguments, |_| {});
        run.printed(command, &output);
    }
    run.heard("the log", server.log());
    run.nobody_heard_a_secret();
}
