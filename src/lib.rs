//! Fencepost: a storage proxy that refuses writes from a holder that has lost its lock.
//!
//! Every write carries the fencing token of the lock it was made under. The database keeps, in each
//! resource's own row, the highest token that the key has seen: its mark. A write with a lower one
//! is refused, in the same statement that would have applied it.
//!
//! # The way of a write, and the order to read in
//!
//! 1. [`server`] accepts the connection, gives it to one of the [`threads`], and bounds everything that a
//!    client can hold open.
//! 2. [`api`] turns the request into a [`write::Write`], made of the words in [`token`]; what is
//!    not valid stops there. `api/resources.rs` is the place to begin.
//! 3. [`engine`] refuses from memory what is surely stale, and queues the rest for a task that owns
//!    a database connection. A client that hangs up cannot cut a write in half.
//! 4. [`fence`] is the rule: (write, what is stored) → verdict. No I/O, no clock. Read it twice.
//! 5. [`store`] carries the verdict out on the newest row, on SQLite or on Postgres. Only there is
//!    SQL, and only there is a write accepted.
//! 6. [`api`] renders the outcome: a success, or a problem that says what to do and why.
//!
//! Where tokens come from: [`locks`] hands out what the [`authority`] has granted, etcd or a lock
//! table in the store, after the lock's own key has been claimed.
//!
//! Who asks, and what they may touch, is decided in [`auth`]: before a request reaches a handler, and
//! before a handler reaches the engine.
//!
//! Around that: [`limits`] bound what may be asked for at a time; [`admin`] answers probes,
//! [`metrics`] counts, [`rejections`] remembers what was refused, with the id of its [`trace`], and
//! [`spans`] are its steps; [`settings`] knows every flag, and
//! [`cli`] has the commands, of which `cli/serve.rs` is the life of a server from its settings to
//! its exit code; what `check` finds is a [`finding`].
//!
//! ARCHITECTURE.md says why it is so, and what must stay true.

pub mod server;
pub mod threads;

pub mod api;
pub mod auth;
mod buffer;
mod sparse_log;
pub mod token;
pub mod write;

pub mod engine;
pub mod limits;

pub mod fence;
pub mod store;

pub mod authority;
pub mod locks;

pub mod admin;
pub mod cli;
pub mod finding;
pub mod metrics;
pub mod rejections;
pub mod settings;
pub mod spans;
pub mod trace;

#[cfg(test)]
mod paused_time;

/// Where atomics carry an argument, they are named by way of this, so that `model/tests/loom.rs` can put
/// others in their place.
mod atomics {
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}
