//! A look at the lock table for `fencepost check`. Nothing is changed by it.

use crate::{
    finding::{Finding, Subject},
    store::{Store, StoreError},
};

pub async fn examine(store: &dyn Store) -> Vec<Finding> {
    match store.tokens().await {
        Ok(tokens) => vec![
            Finding::good(Subject::Authority, "the lock table in the store can be read"),
            Finding::good(
                Subject::Tokens,
                format!("the newest is {}; locks held now: {}", tokens.issued, tokens.held),
            ),
        ],
        Err(error @ StoreError::Unavailable(_)) => vec![Finding::away(
            Subject::Authority,
            format!("the lock table could not be asked: {error}"),
            "it is in the store's own database: see there",
        )],
        Err(error) => vec![Finding::bad(
            Subject::Authority,
            format!("the lock table cannot be used: {error}"),
            "migrate the schema, and give the role the rights that it needs",
        )],
    }
}
