//! Why no connection to Postgres could be opened, for `fencepost check`: one finding for each cause, with the
//! advice that fits it.

use std::{io::ErrorKind, time::Duration};

use sqlx::ConnectOptions;

use super::connection::Connector;
use crate::finding::{Finding, Subject};

const DEADLINE: Duration = Duration::from_secs(5);

impl Connector {
    /// Tries to connect once more, with nothing but the address, and says what went wrong.
    /// `None` where it works: then something else is the matter.
    pub async fn why_not(&self) -> Option<Finding> {
        let options = match self.plain_options() {
            Ok(options) => options,
            Err(error) => {
                let hint = "give --store-password-file a file that this user can read";
                return Some(Finding::bad(Subject::Store, error.to_string(), hint));
            }
        };
        match tokio::time::timeout(DEADLINE, options.connect()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(finding(&error)),
            Err(_) => Some(Finding::away(
                Subject::Store,
                "no answer from Postgres within 5 s",
                "see whether the machine is up, and whether a firewall drops the packets",
            )),
        }
    }
}

fn finding(error: &sqlx::Error) -> Finding {
    match error {
        sqlx::Error::Io(error) => of_network(error),
        sqlx::Error::Tls(error) => of_tls(&error.to_string()),
        sqlx::Error::Database(error) => {
            of_postgres(error.code().as_deref().unwrap_or_default(), error.message())
        }
        other => Finding::away(
            Subject::Store,
            format!("no answer: {other}"),
            "see that Postgres runs, and that the host and port of --store lead to it",
        ),
    }
}

fn of_network(error: &std::io::Error) -> Finding {
    let text = error.to_string();
    if text.contains("certificate") || text.contains("tls") || text.contains("TLS") {
        return of_tls(&text);
    }
    let (says, hint) = match error.kind() {
        ErrorKind::ConnectionRefused => (
            format!("Postgres is down: the connection was refused ({text})"),
            "start Postgres, or correct the host and port in --store",
        ),
        _ if text.contains("lookup") || text.contains("Name or service not known") => (
            format!("the host name of --store cannot be resolved ({text})"),
            "correct the host in --store, or its entry in DNS",
        ),
        ErrorKind::NotFound => (
            format!("there is no Postgres at that socket ({text})"),
            "start Postgres, or correct the path of the socket in --store",
        ),
        _ => (
            format!("the connection to Postgres failed: {text}"),
            "see that Postgres runs, and that nothing in between ends the connection",
        ),
    };
    Finding::away(Subject::Store, says, hint)
}

fn of_tls(text: &str) -> Finding {
    if text.contains("not support") || text.contains("does not accept") {
        return Finding::bad(
            Subject::Store,
            format!("Postgres offers no TLS, and sslmode in --store wants it ({text})"),
            "set ssl = on in Postgres, with a certificate",
        );
    }
    Finding::bad(
        Subject::Store,
        format!("the TLS certificate of Postgres is not trusted ({text})"),
        "name the CA that has signed it in --store (sslrootcert=FILE), and the host as the certificate has it",
    )
}

fn of_postgres(code: &str, said: &str) -> Finding {
    let bad = |says: String, hint: &str| Finding::bad(Subject::Store, says, hint);
    match code {
        "28P01" => bad(
            format!("Postgres does not accept the password: {said}"),
            "correct the password: --store-password-file, or the one in --store-file",
        ),
        "28000" => bad(
            format!("Postgres does not let this role in: {said}"),
            "create the role, allow it to log in, or allow this host in pg_hba.conf",
        ),
        "3D000" => bad(
            format!("the database does not exist: {said}"),
            "correct the database's name in --store, or create it",
        ),
        "42501" => bad(
            format!("the role may not connect to this database: {said}"),
            "as the database's owner: GRANT CONNECT ON DATABASE … TO the role of --store",
        ),
        "53300" => Finding::away(
            Subject::Store,
            format!("Postgres has no connection left: {said}"),
            "lower --store-connections of each fencepost, or raise max_connections, or the CONNECTION LIMIT of the \
             role or of the database",
        ),
        "57P03" => Finding::away(
            Subject::Store,
            format!("Postgres is starting or stopping: {said}"),
            "wait until it is up; its own log says how far it is",
        ),
        _ => bad(
            format!("Postgres refused the connection: {said} ({code})"),
            "correct --store, or what Postgres allows that role to do",
        ),
    }
}
