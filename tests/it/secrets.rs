//! A password that fencepost was given is never shown: not in an error, not in the log, not by
//! `config`, not by `--help`.

use std::process::Output;

use crate::harness::{
    fencepost::{Fencepost, run, run_discreetly, run_with},
    postgres,
};

const SECRET: &str = "s3cret";

/// Everything a command says.
fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[track_caller]
fn keeps_it(output: &Output) -> String {
    let words = words(output);
    assert!(!words.is_empty());
    assert!(!words.contains(SECRET), "{words}");
    words
}

fn file_with(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a place");
    let path = directory.path().join("file");
    std::fs::write(&path, text).expect("the file is written");
    (directory, path.display().to_string())
}

#[test]
fn not_by_config_wherever_it_came_from() {
    let url = format!("postgres://app:{SECRET}@db.example/orders");
    let (_held, store_file) = file_with(&url);
    let (_held_too, config_file) = file_with(&format!("store = \"{url}\""));
    for output in
        [run_discreetly(&["config", "--store", &url]), run(&["config", "--config", &config_file])]
    {
        let words = keeps_it(&output);
        assert!(words.contains("postgres://app:***@db.example/orders"), "{words}");
    }
    keeps_it(&run(&["config", "--store-file", &store_file]));
    let in_query = format!("postgres://db.example/orders?user=app&password={SECRET}");
    let shown = keeps_it(&run_discreetly(&["config", "--store", &in_query]));
    assert!(shown.contains("db.example"), "{shown}");
}

/// `ps` would show it to everybody.
#[test]
fn not_taken_as_an_argument() {
    for (flags, instead) in [
        (&["--store", "postgres://u:s3cret@h/d"][..], "FENCEPOST_STORE"),
        (&["--store=postgres://h/d?user=u&password=s3cret"], "--store-file"),
        (&["--authority", "etcd://u:s3cret@h:1"], "FENCEPOST_AUTHORITY"),
        (
            &["--authority", "etcd://h:1", "--etcd-user", "u", "--etcd-password", "s3cret"],
            "--etcd-password-file",
        ),
    ] {
        let mut commands = vec!["serve", "config", "check"];
        if flags[0].starts_with("--store") {
            commands.push("migrate");
        }
        for command in commands {
            let output = run(&[&[command], flags].concat());
            let words = keeps_it(&output);
            assert_eq!(output.status.code(), Some(64), "{command} {flags:?}: {words}");
            assert!(words.contains(instead) && words.contains("arguments"), "{words}");
        }
    }
    // What a flag overrides does no harm.
    let overridden = ["config", "--store", "postgres://u:s3cret@h/d", "--store", "sqlite:a.db"];
    assert!(run(&overridden).status.success());
}

#[test]
fn not_by_an_error_about_the_value_it_stands_in() {
    for url in [
        "mysql://u:s3cret@h/d",
        "postgres://u:s3cret@:x/d",
        "postgres://u:s3cret@h:port/d",
        "postgres://u:1#s3cret@h/d",
        "postgres://u:1?s3cret@h/d",
        "postgres://u:1/s3cret@h/d",
        "postgres:u:s3cret@h/d",
        "host=h password=s3cret",
        "s3cret",
        "postgres://u:s3cret@h/d?sslmode=no-such-mode",
    ] {
        let (_held, store_file) = file_with(url);
        let (_held_too, config_file) = file_with(&format!("store = \"{url}\""));
        for output in [
            run(&["serve", "--store", url]),
            run(&["--store", url]),
            run(&["migrate", &format!("--store={url}")]),
            run_with(&["config"], |command| {
                command.env("FENCEPOST_STORE", url);
            }),
            run(&["config", "--config", &config_file]),
            run(&["config", "--store-file", &store_file]),
        ] {
            keeps_it(&output);
            assert_eq!(output.status.code(), Some(64), "{}", words(&output));
        }
    }
}

#[test]
fn not_where_it_stands_in_the_wrong_place() {
    let url = "postgres://u:s3cret@h/d";
    let (_held, broken) = file_with(&format!("queue = 1\nstore = \"{url}\n"));
    for arguments in [
        &["serve", url][..],
        &[url],
        &["config", "--config", &broken],
        &["serve", "--authority", "etcd://u:s3cret@h"],
        &["serve", "--listen", url],
        &["get", "k", "--url", "ftp://u:s3cret@127.0.0.1"],
    ] {
        let output = run(arguments);
        keeps_it(&output);
        assert_eq!(output.status.code(), Some(64), "{}", words(&output));
    }
    let away = run(&["get", "k", "--url", "http://u:s3cret@127.0.0.1:1"]);
    keeps_it(&away);
    assert_eq!(away.status.code(), Some(69));
}

#[test]
fn not_by_help() {
    for command in ["serve", "migrate", "compact", "config", "get"] {
        for help in ["--help", "-h"] {
            let output = run_with(&[command, help], |command| {
                command
                    .env("FENCEPOST_STORE", "postgres://u:s3cret@h/d")
                    .env("FENCEPOST_URL", "http://u:s3cret@127.0.0.1:1");
            });
            keeps_it(&output);
            assert!(output.status.success());
        }
    }
}

#[tokio::test]
async fn not_in_the_log() {
    let url = postgres::database().await.replace("postgres@", &format!("postgres:{SECRET}@"));
    let server = Fencepost::start(&url, &["--log", "trace"]);
    server.wait_until_ready().await;
    assert_eq!(server.client().put("k", 1, "v").send().await.expect("an answer").status(), 201);
    let log = server.log();
    assert!(log.contains("postgres:***@127.0.0.1"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn not_by_a_migration_that_fails() {
    let output = run_discreetly(&["migrate", "--store", "postgres://u:s3cret@127.0.0.1:1/d"]);
    keeps_it(&output);
    assert_eq!(output.status.code(), Some(69));
}

#[test]
fn not_of_an_etcd() {
    let url = format!("etcd://app:{SECRET}@db.example:2379");
    let (_held, authority_file) = file_with(&url);
    let (_held_too, config_file) = file_with(&format!("authority = \"{url}\""));
    let (_and_too, password_file) = file_with(SECRET);
    for output in [
        run_discreetly(&["config", "--authority", &url]),
        run(&["config", "--config", &config_file]),
    ] {
        let shown = keeps_it(&output);
        assert!(shown.contains("etcd://app:***@db.example:2379"), "{shown}");
    }
    let shown = keeps_it(&run(&["config", "--authority-file", &authority_file]));
    assert!(shown.contains(&format!("authority-file = \"{authority_file}\"")), "{shown}");
    let plain = ["config", "--authority", "etcd://db.example:2379", "--etcd-user", "app"];
    let shown = keeps_it(&run_discreetly(&[&plain[..], &["--etcd-password", SECRET]].concat()));
    assert!(shown.contains("etcd-password = \"***\""), "{shown}");
    keeps_it(&run(&[&plain[..], &["--etcd-password-file", &password_file]].concat()));
    for wrong in ["etcd://u:s3cret@h", "etcd://u:s3@s3cret@h:1", "etcd://u:s3cret@h:1/x", "s3cret"]
    {
        let (_held, file) = file_with(wrong);
        for flags in [["--authority", wrong], ["--authority-file", &file]] {
            let output = run(&[&["serve"], &flags[..]].concat());
            keeps_it(&output);
            assert_eq!(output.status.code(), Some(64), "{}", words(&output));
        }
    }
}

/// What an error advises must not be refused in the next step.
#[test]
fn no_advice_puts_a_password_into_an_argument() {
    let (_held, etcd_password) = file_with(SECRET);
    for flags in [
        &["--store", "mysql://db/app"][..],
        &["--authority", "zookeeper://h"],
        &["--authority", "etcd://u@h:1"],
        &["--authority", "etcd://h:1", "--etcd-password-file", &etcd_password],
    ] {
        let output = run(&[&["config"], flags].concat());
        assert_eq!(output.status.code(), Some(64), "{flags:?}");
        let words = words(&output);
        assert!(!words.contains("PASSWORD@"), "{words}");
        let without_the_file = words.replace("--etcd-password-file", "");
        assert!(!without_the_file.contains("--etcd-password"), "{words}");
    }
    // What it says instead is taken.
    let advised = ["config", "--authority", "etcd://u@h:1", "--etcd-password-file", &etcd_password];
    assert_eq!(run(&advised).status.code(), Some(0));
    let (_held_too, password) = file_with(SECRET);
    let advised = ["config", "--store", "postgres://u@h/d", "--store-password-file", &password];
    assert_eq!(run(&advised).status.code(), Some(0));
}
