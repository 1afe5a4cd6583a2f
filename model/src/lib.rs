//! Fencepost in small: every order in which its parts can act, and every fault that fits in between.
//!
//! Two or three holders take a lock, read, change what they have read, and write it back. Nothing
//! keeps them from being frozen for any time. Two proxies with mark caches gather writes into
//! batches. One database judges. All steps of all of them are interleaved in every way by Stateright,
//! with as many faults as the [`Scene`] allows, and after each the [`properties`] must hold.
//!
//! Read in this order:
//!
//! - [`rule`]: the fence, as in `src/fence.rs`; a test of the product holds the two together;
//! - [`scene`]: who takes part, what may go wrong, and the traps, each of which breaks one thing;
//! - [`world`]: what there is at one moment;
//! - [`actions`]: what can happen next;
//! - [`holder`], [`lock_service`], [`proxy`], [`database`], [`faults`]: how it happens;
//! - [`properties`]: what must never be seen.
//!
//! There is no clock: a lease may end at any moment, which is more than any clock can do.

pub mod actions;
pub mod database;
pub mod faults;
pub mod holder;
pub mod lock_service;
pub mod properties;
pub mod proxy;
pub mod rule;
pub mod scene;
pub mod world;

pub use scene::{Scene, Trap};
