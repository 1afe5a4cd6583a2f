//! Locks over HTTP, the same on every authority.

mod claim;
mod contract;
mod counted;
mod frozen;
mod hold;
mod outage;
mod queue;
mod terms;
mod watch;

use std::time::Duration;

/// A lease that does not end while a test runs.
const LONG: Duration = Duration::from_mins(10);

/// The shortest lease there is.
const SHORT: Duration = Duration::from_secs(1);

/// A lease that is renewed in time on a busy machine, and that a test can outlast all the same.
const STEADY: Duration = Duration::from_secs(15);
