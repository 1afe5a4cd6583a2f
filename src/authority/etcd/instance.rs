//! The number that Fencepost leaves in an etcd, so that the store knows its own.
//!
//! A cluster id does not tell etcds apart: all that were made with the same members and the same token have the same one.
//! So a random number is written under one key, once, and the store records it. An etcd that shows another number is
//! another etcd, and grants nothing.
//!
//! One that shows none is taken for the store's own, wiped or restored from before: the epoch moves on, and it gets a new
//! number. Beside that stands the one that it follows, so that a fencepost that finds both knows what another one has begun.
//! The etcd that has the former number, if there is one, is another etcd from then on.

use std::fmt;

use etcd_client::{Compare, CompareOp, GetResponse, PutOptions, Txn, TxnOp};

use super::{
    layout::Layout,
    members::{Members, PATIENCE},
};
use crate::authority::AuthorityError;

/// More of a value is not looked at: another program may have written it.
const LONGEST: usize = 64;

/// What stands in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub number: String,
    /// The number that it follows.
    pub former: Option<String>,
}

impl Instance {
    pub fn of(value: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&value[..value.len().min(LONGEST)]).into_owned();
        let mut words = text.split_whitespace().map(str::to_owned);
        Self { number: words.next().unwrap_or_default(), former: words.next() }
    }

    pub fn shown_by(answer: &GetResponse) -> Option<Self> {
        answer.kvs().first().map(|pair| Self::of(pair.value()))
    }

    fn new(former: Option<String>) -> Self {
        Self { number: format!("{:016x}", fastrand::u64(..)), former }
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.number)?;
        self.former.iter().try_for_each(|former| write!(f, " {former}"))
    }
}

/// Leaves a number in an etcd that has none. If there is one by now, that one stays.
pub async fn leave(
    members: &Members,
    layout: &Layout,
    former: Option<String>,
) -> Result<(), AuthorityError> {
    let (key, instance) = (layout.landmark(), Instance::new(former).to_string());
    members
        .ask(PATIENCE, |mut client| {
            let put = TxnOp::put(key.clone(), instance.clone(), None::<PutOptions>);
            let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
            let txn = Txn::new().when([absent]).and_then([put]);
            async move { client.txn(txn).await }
        })
        .await?;
    Ok(())
}

/// Leaves a new number in an etcd, whatever stands there.
pub async fn renew(
    members: &Members,
    layout: &Layout,
    former: Option<String>,
) -> Result<(), AuthorityError> {
    let (key, instance) = (layout.landmark(), Instance::new(former).to_string());
    members
        .ask(PATIENCE, |mut client| {
            let (key, instance) = (key.clone(), instance.clone());
            async move { client.put(key, instance, None).await }
        })
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_the_one_it_follows_are_read_as_they_are_written() {
        for former in [None, Some("00ff".to_owned())] {
            let instance = Instance::new(former);
            assert_eq!(Instance::of(instance.to_string().as_bytes()), instance);
        }
        // What another program has written is a number, too.
        assert_eq!(Instance::of(b"").number, "");
        assert_eq!(Instance::of(&[0xff; 200]).former, None);
    }
}
