//! Which etcd this is, as the store records the authority that it belongs to: the cluster id that every answer
//! carries, the prefix of the keys, and the number that Fencepost has left in it. A restore from a snapshot keeps them.

use super::{
    EtcdOptions, epoch,
    instance::{self, Instance},
    layout::Layout,
    members::{Members, PATIENCE},
};
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
    OwningAuthority { kind: "etcd".into(), identity: None, namespace, instance: None }
}

/// Leaves a new number in an etcd, after the one that it has, if any.
pub async fn renew_instance(options: EtcdOptions) -> Result<(), AuthorityError> {
    let (named, _) = identify(options.clone()).await?;
    let members = Members::new(&options.members, options.tls, options.user);
    instance::renew(&members, &Layout::new(&options.prefix), named.instance).await
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
    let instance = Instance::shown_by(&answer).map(|shown| shown.number);
    Ok((OwningAuthority { identity, instance, ..claimed_by(&options.prefix) }, seen))
}
