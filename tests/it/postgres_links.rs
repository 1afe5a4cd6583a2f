//! The ways to reach Postgres: TLS up to verify-full, and a Unix socket.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::sync::OnceCell;

use crate::harness::{
    fencepost::{Fencepost, run},
    http::answer,
    postgres::{self, Postgres, fetch, name_of},
};

/// A Postgres whose certificate says `localhost`, and nothing about 127.0.0.1.
struct TlsPostgres {
    postgres: Postgres,
    ca: PathBuf,
    other_ca: PathBuf,
    /// The certificates and keys of `certified`, which is let in by one: from its own authority, and
    /// from another.
    client: [PathBuf; 2],
    stranger: [PathBuf; 2],
}

type Ca = CertifiedIssuer<'static, KeyPair>;

fn new_ca(name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    Ca::self_signed(params, new_key()).expect("a certificate")
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

async fn tls() -> &'static TlsPostgres {
    static TLS: OnceCell<TlsPostgres> = OnceCell::const_new();
    TLS.get_or_init(|| async {
        let directory = postgres::new_directory();
        let file = |name: &str, pem: String| {
            let path = directory.join(name);
            fs::write(&path, pem).expect("a file");
            postgres::give(&path);
            path
        };
        let issuer = new_ca("the right one");
        let key = new_key();
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let certificate = file("server.crt", certificate.pem());
        let key = file("server.key", key.serialize_pem());
        let ca = file("ca.crt", issuer.pem());
        let mut postgres = Postgres::start(&[
            "fsync=off",
            "ssl=on",
            &format!("ssl_ca_file={}", ca.display()),
            &format!("ssl_cert_file={}", certificate.display()),
            &format!("ssl_key_file={}", key.display()),
        ])
        .await;
        let rules = "local all all trust\nhostssl all certified all cert\nhost all all all trust\n";
        fs::write(postgres.data().join("pg_hba.conf"), rules).expect("a file");
        postgres::execute(&postgres.url("postgres"), "CREATE ROLE certified SUPERUSER LOGIN").await;
        postgres.stop("fast").await;
        postgres.run().await;
        let another = new_ca("another one");
        let client = |name: &str, issuer: &Ca| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, "certified");
            let key = new_key();
            let certificate = params.signed_by(&key, issuer).expect("a certificate");
            [
                file(&format!("{name}.crt"), certificate.pem()),
                file(&format!("{name}.key"), key.serialize_pem()),
            ]
        };
        TlsPostgres {
            postgres,
            ca,
            client: client("client", &issuer),
            stranger: client("stranger", &another),
            other_ca: file("other-ca.crt", another.pem()),
        }
    })
    .await
}

impl TlsPostgres {
    /// A new database, to be reached by `host` under `mode`; also its plain URL.
    async fn database(&self, host: &str, mode: &str, ca: &Path) -> (String, String) {
        let plain = self.postgres.database("").await;
        let (name, port) = (name_of(&plain), self.postgres.port());
        let url = format!(
            "postgres://{}@{host}:{port}/{name}?sslmode={mode}&sslrootcert={}",
            postgres::USER,
            ca.display()
        );
        (url, plain)
    }
}

async fn serves(url: &str) {
    let server = Fencepost::start(url, &[]);
    server.wait_until_ready().await;
    assert_eq!(answer(server.client().put("k", 1, "x")).await.status, 201);
    assert_eq!(answer(server.client().read("k")).await.text(), "x");
}

/// What `migrate` says about a link that it must not use.
fn refusal(url: &str) -> String {
    let output = run(&["migrate", "--store", url]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    stderr
}

#[tokio::test]
async fn tls_is_used_where_it_is_asked_for() {
    let tls = tls().await;
    for mode in ["require", "verify-ca", "verify-full"] {
        let (url, plain) = tls.database("localhost", mode, &tls.ca).await;
        let server = Fencepost::start(&url, &[]);
        server.wait_until_ready().await;
        assert_eq!(answer(server.client().put("k", 1, "x")).await.status, 201, "{mode}");
        let encrypted: bool = fetch(
            &plain,
            "SELECT bool_and(s.ssl) FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid)
             WHERE a.application_name = 'fencepost' AND a.datname = current_database()",
        )
        .await;
        assert!(encrypted, "{mode}");
    }
}

#[tokio::test]
async fn a_client_certificate_lets_in_without_a_password() {
    let tls = tls().await;
    let (url, _) = tls.database("localhost", "verify-full", &tls.ca).await;
    let as_certified = url.replace("postgres@", "certified@");
    let with = |[certificate, key]: &[PathBuf; 2]| {
        format!("{as_certified}&sslcert={}&sslkey={}", certificate.display(), key.display())
    };
    serves(&with(&tls.client)).await;
    for url in [as_certified.clone(), with(&tls.stranger)] {
        let output = run(&["migrate", "--store", &url]);
        assert!(!output.status.success(), "{url}");
    }
}

/// verify-ca trusts the signature and does not look at the name.
#[tokio::test]
async fn verify_ca_does_not_look_at_the_host_name() {
    let tls = tls().await;
    let (url, _) = tls.database("127.0.0.1", "verify-ca", &tls.ca).await;
    serves(&url).await;
}

#[tokio::test]
async fn verify_full_refuses_another_host_name() {
    let tls = tls().await;
    let (url, _) = tls.database("127.0.0.1", "verify-full", &tls.ca).await;
    let reason = refusal(&url);
    assert!(reason.contains("certificate"), "{reason}");
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_refused() {
    let tls = tls().await;
    for mode in ["verify-ca", "verify-full"] {
        let (url, _) = tls.database("localhost", mode, &tls.other_ca).await;
        let reason = refusal(&url);
        assert!(reason.contains("certificate"), "{mode}: {reason}");
    }
}

/// Never in the clear because the server cannot do better.
#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let url = postgres::database().await.replace("sslmode=disable", "sslmode=require");
    let reason = refusal(&url);
    assert!(reason.contains("TLS"), "{reason}");
}

#[tokio::test]
async fn a_unix_socket_will_do_in_either_spelling() {
    let postgres = postgres::shared().await;
    let directory = postgres.directory().display().to_string();
    let port = postgres.port();
    let user = postgres::USER;
    for authority in [
        format!("{user}@localhost:{port}"),
        format!("{user}@{}:{port}", directory.replace('/', "%2F")),
    ] {
        let database = postgres::database().await;
        let url = format!("postgres://{authority}/{}?host={directory}", name_of(&database));
        let server = Fencepost::start(&url, &[]);
        server.wait_until_ready().await;
        assert_eq!(answer(server.client().put("k", 1, "x")).await.status, 201);

        let over_the_socket: bool = fetch(
            &database,
            "SELECT bool_and(client_addr IS NULL) FROM pg_stat_activity
             WHERE application_name = 'fencepost' AND datname = current_database()",
        )
        .await;
        assert!(over_the_socket);
    }
}

#[tokio::test]
async fn check_says_that_a_certificate_is_not_trusted() {
    let tls = tls().await;
    for (host, ca) in [("localhost", &tls.other_ca), ("127.0.0.1", &tls.ca)] {
        let (url, _) = tls.database(host, "verify-full", ca).await;
        let output = run(&["check", "--store", &url, "--authority", "store"]);
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{report}");
        assert!(report.contains("is not trusted"), "{report}");
        assert!(report.contains("sslrootcert"), "{report}");
        assert!(!report.contains("fencepost migrate"), "{report}");
    }
}
