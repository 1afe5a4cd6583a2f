//! A place to get locks from, of each kind, for tests that must hold on all of them.

use std::{sync::Arc, time::Duration};

use fencepost::{
    authority::{Ask, Authority, Turn, store::StoreAuthority},
    token::Key,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    etcd::{self, Etcd},
    fencepost::Fencepost,
    store::TestStore,
};

pub struct TestAuthority {
    pub store: TestStore,
    /// Where the locks are, if not in the store.
    pub etcd: Option<Etcd>,
}

impl TestAuthority {
    /// A lock table in the store itself.
    pub fn in_store(store: TestStore) -> Self {
        Self { store, etcd: None }
    }

    /// An etcd beside the store.
    pub async fn in_etcd(store: TestStore) -> Self {
        Self { store, etcd: Some(Etcd::start(&[]).await) }
    }

    pub fn flag(&self) -> String {
        self.etcd.as_ref().map_or("store".into(), Etcd::url)
    }

    /// Ends somebody's hold behind the back of every fencepost.
    pub async fn remove_holder(&self, name: &str) {
        if let Some(etcd) = &self.etcd {
            etcd.ctl(&["del", "--prefix", &format!("{name}/")]);
            return;
        }
        let sql = format!("DELETE FROM locks WHERE name = '{name}'");
        self.store.execute(&sql).await.expect("the lock table is there");
    }

    /// Gets a lock past every fencepost, so that nothing claims its key: its token. It is held for
    /// as long as what comes with it is kept.
    pub async fn lock_without_claim(&self, name: &str) -> (i64, Arc<dyn Authority>) {
        let store = self.store.open().await;
        let authority: Arc<dyn Authority> = match &self.etcd {
            None => Arc::new(StoreAuthority::new(&store)),
            Some(etcd) => Arc::new(etcd::authority(etcd, &store)),
        };
        let ask = Ask {
            name: Key::new(name).expect("a name"),
            owner: "somebody else".into(),
            identity: None,
            ttl: Duration::from_mins(1),
            until: Instant::now(),
            gone: CancellationToken::new(),
        };
        match authority.acquire(&ask).await.expect("an answer") {
            Turn::Granted(grant) => (grant.token.get(), authority),
            Turn::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    /// One more fencepost that shares these locks.
    pub async fn fencepost(&self) -> Fencepost {
        self.fencepost_with(&[]).await
    }

    pub async fn fencepost_with(&self, flags: &[&str]) -> Fencepost {
        let flag = self.flag();
        let flags = [&["--authority", &flag], flags].concat();
        Fencepost::with(&self.store, &flags).await
    }
}

/// Runs a test with each authority: as many tests, named after the authority.
macro_rules! on_each_authority {
    ($(#[doc = $doc:expr])* async fn $name:ident($authority:ident: TestAuthority) $body:block) => {
        $(#[doc = $doc])*
        mod $name {
            use super::*;
            use $crate::harness::{authority::TestAuthority, store::TestStore};

            async fn check($authority: TestAuthority) $body

            #[tokio::test]
            async fn sqlite() {
                check(TestAuthority::in_store(TestStore::sqlite())).await;
            }

            #[tokio::test]
            async fn postgres() {
                check(TestAuthority::in_store(TestStore::postgres().await)).await;
            }

            #[tokio::test]
            async fn etcd() {
                check(TestAuthority::in_etcd(TestStore::sqlite()).await).await;
            }
        }
    };
}
pub(crate) use on_each_authority;
