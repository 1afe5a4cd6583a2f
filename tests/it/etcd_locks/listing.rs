//! Names of locks: below one another, beside other data, below a prefix, and in a long list.

use std::{sync::Arc, time::Duration};

use fencepost::{
    authority::{
        Authority, Holder,
        etcd::{EtcdAuthority, EtcdOptions},
    },
    store::Page,
    token::Key,
};
use futures_util::{StreamExt, stream};

use super::acquire;
use crate::harness::{
    PATIENCE,
    etcd::{self, unique_key},
    eventually,
    store::TestStore,
};

#[tokio::test]
async fn locks_below_one_another_and_other_data_do_not_mix() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(etcd, &held.open().await));
    let outer = unique_key("nested");
    let name = |suffix: &str| Key::new(&format!("{}{suffix}", outer.as_str())).expect("a name");
    // Older than everything, under the same prefix, and no entries: other data, and locks below.
    etcd.ctl(&["put", name("/config").as_str(), "not a lock"]);
    etcd.ctl(&["put", name("/abc/def").as_str(), "not a lock"]);
    let below = acquire(&authority, &name("/below"), Duration::ZERO).await;
    let deeper = acquire(&authority, &name("/below/deeper"), Duration::ZERO).await;
    let grant = acquire(&authority, &outer, Duration::ZERO).await;
    assert_eq!(authority.renew(&outer, grant.token).await.expect("an answer"), Some(grant.ttl));
    let state = authority.inspect(&outer).await.expect("a state");
    assert_eq!((state.holder.expect("a holder").token, state.waiters), (grant.token, 0));
    // A second one waits for the first, and only for it.
    let waiting = tokio::spawn({
        let (authority, outer) = (authority.clone(), outer.clone());
        async move { acquire(&authority, &outer, PATIENCE).await }
    });
    eventually("it waits", || async {
        authority.inspect(&outer).await.expect("a state").waiters == 1
    })
    .await;
    let listed = authority.list(Page::first(100, outer.as_str())).await.expect("a list");
    let listed: Vec<_> = listed.iter().map(|holder| (holder.name.clone(), holder.token)).collect();
    assert_eq!(
        listed,
        [
            (outer.clone(), grant.token),
            (name("/below"), below.token),
            (name("/below/deeper"), deeper.token)
        ]
    );
    assert!(authority.release(&outer, grant.token).await.expect("an answer"));
    assert!(waiting.await.expect("no panic").token > deeper.token);
}

#[tokio::test]
async fn a_prefix_keeps_locks_apart_and_is_no_part_of_their_names() {
    let etcd = etcd::shared().await;
    let prefix = etcd::unique("app");
    // Each prefix is an authority of its own, and a store belongs to one.
    let (one, other) = (TestStore::sqlite(), TestStore::sqlite());
    let under = async |prefix: &str, held: &TestStore| {
        let options = EtcdOptions { prefix: prefix.into(), ..etcd::options(&[etcd]) };
        EtcdAuthority::start(options, &held.open().await)
    };
    let (plain, within) = (under("", &one).await, under(&prefix, &other).await);
    let name = unique_key("prefixed");
    let outside = acquire(&plain, &name, Duration::ZERO).await;
    let inside = acquire(&within, &name, Duration::ZERO).await;
    let key = format!("{prefix}/{}/{}", name.as_str(), inside.lease);
    let entries = etcd.entries(&format!("{prefix}/{}", name.as_str()));
    assert_eq!(entries, [(key, inside.token.get())]);
    let listed = within.list(Page::first(100, "")).await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].name, listed[0].token), (&name, inside.token));
    let all = plain.list(Page::first(100_000, "")).await.expect("a list");
    assert!(all.iter().any(|holder| holder.name == name && holder.token == outside.token));
    assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name), "by name: {all:?}");
}

#[tokio::test]
async fn a_long_list_comes_whole() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = etcd::authority(etcd, &held.open().await);
    let stem = etcd::unique("many");
    let acquiring = stream::iter(0..1050).map(|number| {
        let name = Key::new(&format!("{stem}/{number:04}")).expect("a name");
        let authority = &authority;
        async move { acquire(authority, &name, Duration::ZERO).await }
    });
    // Not all at once: on a busy machine the last ones would be told that etcd is away.
    let grants: Vec<_> = acquiring.buffer_unordered(32).collect().await;
    let listed = authority.list(Page::first(2000, &format!("{stem}/"))).await.expect("a list");
    assert_eq!(listed.len(), grants.len());
    // In pages it is the same.
    let mut paged = Vec::new();
    while let Some(page) = {
        let after = paged.last().map_or_else(String::new, |last: &Holder| last.name.to_string());
        let page = Page { after, ..Page::first(400, &format!("{stem}/")) };
        Some(authority.list(page).await.expect("a page")).filter(|page| !page.is_empty())
    } {
        paged.extend(page);
    }
    let names = |holders: &[Holder]| -> Vec<Key> {
        holders.iter().map(|holder| holder.name.clone()).collect()
    };
    assert_eq!(names(&paged), names(&listed));
    // A prefix that ends within a lease's digits is a prefix of names all the same.
    let lease = &grants[0].lease;
    let cut = format!("{}/{}", grants[0].name.as_str(), &lease[..2]);
    assert_eq!(authority.list(Page::first(100, &cut)).await.expect("a list"), []);
}
