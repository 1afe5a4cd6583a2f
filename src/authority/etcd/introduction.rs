//! Writes the version of each etcd member to the log when a fencepost starts.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    members::Members,
    version::{self, Support},
};

/// How long one member may take to answer, and how long to wait before it is asked again.
const STATUS_DEADLINE: Duration = Duration::from_secs(2);
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Asks each member until it has answered once.
pub async fn log_versions(members: Arc<Members>) {
    let mut named = vec![false; members.len()];
    while named.contains(&false) {
        for (number, client) in members.each().await.into_iter().enumerate() {
            let Ok(mut client) = client else { continue };
            if named[number] {
                continue;
            }
            if let Ok(Ok(status)) = timeout(STATUS_DEADLINE, client.status()).await {
                log_version(members.url(number), status.version());
                named[number] = true;
            }
        }
        if named.contains(&false) {
            sleep(TRY_AGAIN).await;
        }
    }
}

fn log_version(member: &str, version: &str) {
    match version::support(version) {
        Support::Tested => tracing::info!(member, version, "etcd member found"),
        Support::Forgetful => tracing::warn!(
            member,
            version,
            "etcd member found; a crash while it compacts can set its revision back: upgrade it to \
             3.4.32, 3.5.14 or newer"
        ),
        Support::Untested | Support::Unknown => tracing::warn!(
            member,
            version,
            tested = version::tested(),
            "etcd member found; Fencepost has not been tested with this release"
        ),
        Support::TooOld => tracing::error!(
            member,
            version,
            tested = version::tested(),
            "etcd member found; this release is too old for Fencepost"
        ),
    }
}
