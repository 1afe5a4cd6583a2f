//! Which etcd this is, as the store records the authority that it belongs to: the cluster id that every answer
//! carries, and the prefix of the keys. A restore from a snapshot keeps the cluster id.

use super::{EtcdOptions, epoch, layout::Layout, members::Members, members::PATIENCE};
use crate::{
    authority::AuthorityError,
    store::{OwningAuthority, Sighting},
};

/// The cluster id of an etcd that was started with default settings: etcd makes it of the peer URLs and of
/// `--initial-cluster-token`, and these are the same in all of them.
pub const DEFAULT_CLUSTER: &str = "cdf818194e3a8c32";

/// As far as settings say.
pub fn claimed_by(prefix: &str) -> OwningAuthority {
    let namespace = Some(Layout::new(prefix).base().to_owned());
    OwningAuthority { kind: "etcd".into(), identity: None, namespace }
}

/// As etcd itself says, and what it shows now. It changes nothing.
pub async fn identify(options: EtcdOptions) -> Result<(OwningAuthority, Sighting), AuthorityError> {
    let members = Members::new(&options.members, options.tls, options.user);
    let landmark = Layout::new(&options.prefix).landmark();
    let answer = members
        .ask(PATIENCE, |mut client| {
            let landmark = landmark.clone();
            async move { client.get(landmark, None).await }
        })
        .await?;
    let seen = epoch::sighting(answer.header())?;
    let identity = Some(seen.cluster.clone());
    Ok((OwningAuthority { identity, ..claimed_by(&options.prefix) }, seen))
}
