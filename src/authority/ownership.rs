//! Whether a store belongs to the authority that settings name, as `fencepost check` says it.

use crate::{
    finding::{Finding, Subject},
    store::OwningAuthority,
};

/// `wanted`: what the settings name, with the cluster that the lock service itself shows, if it was asked.
pub fn finding(recorded: Option<&OwningAuthority>, wanted: &OwningAuthority) -> Finding {
    match recorded {
        None => Finding::good(
            Subject::Owner,
            format!("the store belongs to no authority yet; the first server claims it: {wanted}"),
        ),
        Some(recorded) if recorded.may_be(wanted) => {
            Finding::good(Subject::Owner, format!("the store belongs to {recorded}"))
        }
        Some(recorded) => Finding::bad(
            Subject::Owner,
            format!("the store belongs to {recorded}, not to {wanted}"),
            "correct --authority; or, if the store is to have another authority from now on, move it with \
             `fencepost authority move`: every lock that is held is then lost",
        ),
    }
}
