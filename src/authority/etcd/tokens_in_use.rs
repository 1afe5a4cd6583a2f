//! Which tokens of an etcd are held, and which is the newest that it can have issued: what the floor must
//! not pass. Nothing is changed by asking: an epoch that has to move on is moved by a server.
//!
//! All entries are read at one revision. An entry that is made later has a higher revision, and so a
//! token above everything that is said here; one that was made before is in the answer, or has gone.

use etcd_client::{GetOptions, KeyValue};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    EtcdOptions,
    epoch::{self, has_gone_backwards},
    identity::identify,
    layout::{Entry, Layout},
    members::{Members, PATIENCE},
    trouble::Trouble,
    view::KEYS,
};
use crate::{
    authority::AuthorityError,
    store::{HeldToken, KnownEtcd, OwningAuthority, Remembered, Sighting},
};

/// Leases asked about at the same time.
const AT_ONCE: usize = 16;

pub struct TokensInUse {
    pub newest: i64,
    /// Of all who hold a lock or wait for one.
    pub lowest_held: Option<HeldToken>,
}

/// The newest token that the store remembers from it.
pub fn newest_remembered(known: &KnownEtcd) -> i64 {
    u16::try_from(known.epoch).map_or(i64::MAX, |epoch| epoch::newest(epoch, known.revision))
}

/// `known` must have been read before: only so is a lower revision proof that it is another etcd.
pub async fn tokens_in_use(
    options: EtcdOptions,
    known: &KnownEtcd,
) -> Result<TokensInUse, AuthorityError> {
    let known = remembered(known)?;
    let layout = Layout::new(&options.prefix);
    let members = Members::new(&options.members, options.tls, options.user);
    let (seen, mut entries) = entries(&members, &layout).await?;
    if has_gone_backwards(&known, &seen)? {
        return Err(AuthorityError::Unfit(format!(
            "this etcd shows revision {}, and the store has seen {}: it was restored; let a server that \
             uses it move the epoch on first",
            seen.revision, known.seen.revision
        )));
    }
    entries.sort_unstable_by_key(|(_, entry)| entry.created);
    let lowest_held = lowest_live(&members, entries).await?;
    Ok(TokensInUse {
        newest: epoch::newest(known.epoch, seen.revision),
        lowest_held: lowest_held
            .map(|(lock, created)| HeldToken { token: epoch::newest(known.epoch, created), lock }),
    })
}

/// The newest token that it can have issued in an epoch that an operator names. An error if the store has
/// recorded another authority than this one.
pub async fn newest_in_epoch(
    options: EtcdOptions,
    recorded: Option<&OwningAuthority>,
    epoch: u16,
) -> Result<i64, AuthorityError> {
    let (named, seen) = identify(options).await?;
    if let Some(recorded) = recorded {
        recorded.check(&named)?;
    }
    Ok(epoch::token(epoch, seen.revision)?.get())
}

fn remembered(known: &KnownEtcd) -> Result<Remembered, AuthorityError> {
    let epoch = u16::try_from(known.epoch)
        .map_err(|_| AuthorityError::Unfit(format!("{} is no epoch", known.epoch)))?;
    let KnownEtcd { revision, cluster, term, .. } = known.clone();
    Ok(Remembered { epoch, seen: Sighting { revision, cluster, term } })
}

/// Everything that is named like an entry, with the name of its lock, as it was at one revision.
async fn entries(
    members: &Members,
    layout: &Layout,
) -> Result<(Sighting, Vec<(String, Entry)>), AuthorityError> {
    let (mut start, end) = layout.listing("");
    let mut entries = Vec::new();
    let mut first: Option<Sighting> = None;
    loop {
        let at = first.as_ref().map_or(0, |seen| seen.revision);
        let mut answer = members
            .ask(PATIENCE, |mut client| {
                let (start, end) = (start.clone(), end.clone());
                let options = GetOptions::new()
                    .with_range(end)
                    .with_limit(KEYS.into())
                    .with_keys_only()
                    // 0 is the newest one.
                    .with_revision(at);
                async move { client.get(start, Some(options)).await }
            })
            .await?;
        let seen = match first {
            Some(seen) => seen,
            None => epoch::sighting(answer.header())?,
        };
        let pairs = answer.take_kvs();
        let complete = |pair: &KeyValue| !pair.key().is_empty() && pair.create_revision() > 0;
        if !pairs.iter().all(complete) {
            return Err(AuthorityError::Unfit(
                "etcd answers without a key or its create_revision".into(),
            ));
        }
        for pair in &pairs {
            if let Some(name) = layout.name_of(pair) {
                entries.push((name.as_str().to_owned(), Entry::of(pair)));
            }
        }
        let Some(last) = pairs.last().filter(|_| pairs.len() == usize::from(KEYS)) else {
            return Ok((seen, entries));
        };
        start = [last.key(), b"\0"].concat();
        first = Some(seen);
    }
}

/// The oldest entry that keeps others from its lock.
async fn lowest_live(
    members: &Members,
    entries: Vec<(String, Entry)>,
) -> Result<Option<(String, i64)>, AuthorityError> {
    let live = stream::iter(entries)
        .map(|(lock, entry)| async move {
            Ok::<_, AuthorityError>(holds(members, &entry).await?.then_some((lock, entry.created)))
        })
        .buffered(AT_ONCE)
        .try_filter_map(|found| async move { Ok(found) });
    std::pin::pin!(live).try_next().await
}

/// Whether an entry holds its lock or waits for it. One that hangs on another lease than it is named after, or
/// on none, keeps others from the lock too, for as long as it is there.
async fn holds(members: &Members, entry: &Entry) -> Result<bool, AuthorityError> {
    if let Some(lease) = entry.lease
        && lives(members, lease).await?
    {
        return Ok(true);
    }
    // etcd 3.7 tells a key's lease only together with its value.
    let key = &entry.key;
    let answer = members
        .ask(PATIENCE, |mut client| {
            let key = key.clone();
            async move { client.get(key, None).await }
        })
        .await?;
    // One that was made since has a token above everything that is said here.
    match answer.kvs().first().filter(|pair| pair.create_revision() == entry.created) {
        None => Ok(false),
        Some(pair) if pair.lease() == 0 => Ok(true),
        Some(pair) => lives(members, pair.lease()).await,
    }
}

async fn lives(members: &Members, lease: i64) -> Result<bool, AuthorityError> {
    let left = members
        .ask(PATIENCE, |mut client| async move { client.lease_time_to_live(lease, None).await })
        .await;
    match left {
        Ok(left) => Ok(left.ttl() >= 0),
        Err(Trouble::NoSuchLease) => Ok(false),
        Err(trouble) => Err(trouble.into()),
    }
}
