//! The behaviour of Fencepost, against real servers: one module for each.
//!
//! The mistakes that fencing is prone to, and where each is shown not to be made:
//!
//! | mistake | shown in |
//! |---|---|
//! | a zombie writes between a new holder's read and its first write | `marks`, `concurrency` (read-modify-write) |
//! | several keys under one lock | `scopes`, `batch` |
//! | a late copy of an earlier write | `seq`, `concurrency` (a holder's earlier write) |
//! | a client hangs up, and its write half happens or spoils the connection | `connections`, `postgres_faults` |
//! | a killed proxy's statement commits later | `postgres_faults` |
//! | several writes of one key at once lose a verdict or a version | `same_verdicts`, `concurrency`, `gathering` |
//! | one bad row fails its neighbours, one locked row delays them | `mark_cache`, `gathering`, `detours`, `newcomers` |
//! | two proxies deadlock | `concurrency`, `gathering`, `plans` (rows in key order) |
//! | refused writes cost a lock or a transaction | `mark_cache` |
//! | a write is judged by an old snapshot | `waiting` |
//! | a mark is forgotten: delete, truncate, unlogged, asynchronous commit | `guards`, `postgres_fitness`, `postgres_settings` |
//! | a mark is forgotten by tidying up | `compaction` |
//! | a cache believes a request, or accepts | `mark_cache`, `cached_refusals` |
//! | an outcome that is not certain is called certain | `postgres_faults`, `postgres_errors`, `crashes` |
//! | the wrong revision for a token, a lease used twice | `etcd_locks`, `etcd_recipe` |
//! | etcd goes backwards, and tokens with it | `etcd_epochs` |
//! | two authorities on one store grant one lock twice | `owning_authority` |
//! | a standby takes over that lacks the last marks | `postgres_failover` |
//! | what only the primary has is acknowledged; a warning that says so is lost | `postgres_standby_waits` |
//! | another role of the database forges notifications, or holds locks for ever | `store_locks::strangers` |
//! | the old primary lives on; two heirs of one ancestor; a restored dump | `postgres_takeover` |
//! | a lost member or leader loses locks, or a lost quorum goes unnoticed | `etcd_cluster` |
//! | somebody gets in past the check of who they are, or touches what is not theirs | `auth` |
//! | a client holds a connection, or a shutdown, for ever | `slow_clients`, `drain` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod auth;
mod bad_input;
mod batch;
mod bodies;
mod cached_refusals;
mod check;
mod cli;
mod commands;
mod compaction;
mod concurrency;
mod connections;
mod crashes;
mod demo;
mod detours;
mod documents;
mod drain;
mod etcd_access;
mod etcd_cluster;
mod etcd_epochs;
mod etcd_locks;
mod etcd_members;
mod etcd_recipe;
mod etcd_watch;
mod examples;
mod fenced_reads;
mod full_disk;
mod gathering;
mod guards;
#[allow(dead_code, clippy::unused_async)] // A tool box: not every test uses every tool.
mod harness;
mod keys;
mod lanes;
mod lifecycle;
mod limits;
mod listing;
mod lock_commands;
mod locks;
mod logs;
mod manifest;
mod mark_cache;
mod marks;
mod memory;
mod metrics;
mod misnamed_headers;
mod newcomers;
mod openapi;
mod owning_authority;
mod page;
mod plans;
mod postgres_errors;
mod postgres_failover;
mod postgres_faults;
mod postgres_fitness;
mod postgres_links;
mod postgres_managed;
mod postgres_migrate;
mod postgres_pooler;
mod postgres_roles;
mod postgres_settings;
mod postgres_standby_waits;
mod postgres_takeover;
mod preconditions;
mod probes;
mod reading_together;
mod rejections;
mod resources;
mod run;
mod run_lost;
mod run_scope;
mod run_signals;
mod same_verdicts;
mod scopes;
mod scopes_together;
mod secrets;
mod secrets_of_a_run;
mod seq;
mod settings;
mod slow_clients;
mod slow_http2;
mod store_locks;
mod threads;
mod traces;
mod trust;
mod upgrade;
mod waiting;
