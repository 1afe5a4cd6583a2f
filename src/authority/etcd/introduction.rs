//! Writes the version of each etcd member to the log when a fencepost starts.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::{
    identity::DEFAULT_CLUSTER,
    members::Members,
    version::{self, Support},
};

/// How long one member may take to answer.
const STATUS_DEADLINE: Duration = Duration::from_secs(2);

/// How long to wait before the members that were silent are asked again: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Asks each member until it has answered once.
pub async fn log_versions(members: Arc<Members>) {
    let mut silent: Vec<usize> = (0..members.len()).collect();
    let mut pause = FIRST_PAUSE;
    let mut warned = false;
    loop {
        let asked = join_all(silent.iter().map(|number| version_and_cluster(&members, *number)));
        let answers: Vec<_> = asked.await;
        let mut still_silent = Vec::new();
        for (number, answer) in silent.into_iter().zip(answers) {
            let Some((version, cluster)) = answer else {
                still_silent.push(number);
                continue;
            };
            log_version(members.url(number), &version);
            if cluster == DEFAULT_CLUSTER && !std::mem::replace(&mut warned, true) {
                log_default_cluster(&cluster);
            }
        }
        silent = still_silent;
        if silent.is_empty() {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn version_and_cluster(members: &Members, number: usize) -> Option<(String, String)> {
    let mut client = members.client_of(number).await.ok()?;
    let status = timeout(STATUS_DEADLINE, client.status()).await.ok()?.ok()?;
    let cluster = format!("{:x}", status.header()?.cluster_id());
    Some((status.version().to_owned(), cluster))
}

fn log_default_cluster(cluster: &str) {
    tracing::warn!(
        cluster,
        "etcd has the cluster id of every etcd with default settings, so a new one at its address \
         would be taken for this one, emptied; give each cluster its own --initial-cluster-token when it is made"
    );
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
