//! What an error of etcd means for whoever asked.

use std::error::Error as _;

use etcd_client::Error;

use crate::authority::AuthorityError;

#[derive(Clone, Debug)]
pub enum Trouble {
    /// No answer, or one that says to ask again. Whatever was asked for may have happened.
    Away(String),
    /// There is no such lease.
    NoSuchLease,
    /// There is such a lease already.
    LeaseExists,
    /// The member has not been told who we are, or has forgotten.
    Stranger(String),
    /// It was refused, and will be again.
    Refused(String),
}

/// The numbers of gRPC's codes that matter here.
mod code {
    pub const INVALID_ARGUMENT: i32 = 3;
    pub const NOT_FOUND: i32 = 5;
    pub const PERMISSION_DENIED: i32 = 7;
    pub const FAILED_PRECONDITION: i32 = 9;
    pub const UNIMPLEMENTED: i32 = 12;
    pub const UNAUTHENTICATED: i32 = 16;
}

/// What etcd says to those who have to introduce themselves, again perhaps.
const STRANGERS: [&str; 3] = [
    "user name is empty",
    // The password was changed since, and perhaps in its file, too.
    "authentication failed",
    // Some user or role was changed since. With `--auth-token=jwt` that ends every login.
    "revision of auth store is old",
];

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let Error::GRpcStatus(status) = &error else {
            return match error {
                Error::LeaseKeepAliveError(reason) if reason == "lease not found" => {
                    Self::NoSuchLease
                }
                Error::InvalidArgs(_) | Error::InvalidUri(_) => Self::Refused(error.to_string()),
                other => Self::Away(other.to_string()),
            };
        };
        let said = status.message().to_owned();
        match i32::from(status.code()) {
            code::NOT_FOUND if said.contains("lease") => Self::NoSuchLease,
            code::FAILED_PRECONDITION if said.contains("lease already exists") => Self::LeaseExists,
            code::UNAUTHENTICATED => Self::Stranger(said),
            code::INVALID_ARGUMENT if STRANGERS.iter().any(|words| said.contains(words)) => {
                Self::Stranger(said)
            }
            code::INVALID_ARGUMENT
            | code::PERMISSION_DENIED
            | code::FAILED_PRECONDITION
            | code::UNIMPLEMENTED => Self::Refused(said),
            _ => Self::Away(with_causes(said, status.source())),
        }
    }
}

/// "transport error" alone helps nobody; what is behind it does.
fn with_causes(mut text: String, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

impl From<Trouble> for AuthorityError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Away(reason) => Self::Unavailable(reason),
            Trouble::NoSuchLease => Self::Unavailable("etcd has lost a lease".into()),
            Trouble::LeaseExists => Self::Unavailable("etcd has such a lease already".into()),
            Trouble::Stranger(reason) | Trouble::Refused(reason) => Self::Unfit(format!(
                "etcd refuses: {reason}; mend its address, user, password or certificate in the \
                 settings, or what that user may do"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[test]
    fn without_a_status_only_what_we_did_wrong_is_refused() {
        let trouble = |error: Error| Trouble::from(error);
        let ended = Error::LeaseKeepAliveError("lease not found".into());
        assert!(matches!(trouble(ended), Trouble::NoSuchLease));
        let other = Error::LeaseKeepAliveError("the stream has ended".into());
        assert!(matches!(trouble(other), Trouble::Away(_)));
        assert!(matches!(trouble(Error::InvalidArgs("a name".into())), Trouble::Refused(_)));
        assert!(matches!(
            trouble(Error::IoError(io::ErrorKind::BrokenPipe.into())),
            Trouble::Away(_)
        ));
    }

    #[test]
    fn what_etcd_says_is_told_apart() {
        // An error of this kind makes a status with the code of the same name.
        let said = |kind: io::ErrorKind, text: &str| {
            Trouble::from(Error::GRpcStatus(io::Error::new(kind, text).into()))
        };
        let (missing, invalid) = (io::ErrorKind::NotFound, io::ErrorKind::InvalidInput);
        let no_lease = said(missing, "etcdserver: requested lease not found");
        assert!(matches!(no_lease, Trouble::NoSuchLease), "{no_lease:?}");
        let other = said(missing, "etcdserver: member not found");
        assert!(matches!(other, Trouble::Away(_)), "{other:?}");
        for stranger in [
            "user name is empty",
            "authentication failed, invalid user ID or password",
            "revision of auth store is old",
        ] {
            let stranger = said(invalid, &format!("etcdserver: {stranger}"));
            assert!(matches!(stranger, Trouble::Stranger(_)), "{stranger:?}");
        }
        for (kind, text) in [
            (invalid, "etcdserver: duplicate key given in txn request"),
            (io::ErrorKind::PermissionDenied, "etcdserver: permission denied"),
        ] {
            let refused = said(kind, text);
            assert!(matches!(refused, Trouble::Refused(_)), "{refused:?}");
        }
        let away = said(io::ErrorKind::ConnectionReset, "etcdserver: leader changed");
        assert!(matches!(away, Trouble::Away(_)), "{away:?}");
    }

    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Caused>>);

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for Caused {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_are_told_once_each() {
        let cause = Caused("connect", Some(Box::new(Caused("connect", None))));
        let causes = Caused("transport", Some(Box::new(Caused("refused", Some(Box::new(cause))))));
        let said = with_causes("transport error".into(), Some(&causes));
        assert_eq!(said, "transport error: refused: connect");
    }
}
