//! What contenders and scenes are called, in tables and charts.

pub const FENCEPOST: &str = "Fencepost";
pub const PGBENCH: &str = "pgbench";
pub const PLAIN: &str = "plain proxy";
pub const NOOP: &str = "no-op PUT";
pub const GUARDED: &str = "Fencepost, bearer tokens";
pub const SCOPED: &str = "Fencepost, under scopes";
pub const FENCED: &str = "Fencepost, fenced reads";
pub const REDIS: &str = "Redis";
pub const ETCD: &str = "etcd, gRPC";
pub const GATEWAY: &str = "etcd, HTTP gateway";

/// In the order of `plan::CONCURRENCY`.
pub const WRITES: [&str; 4] =
    ["writes, 1 client", "writes, 16 clients", "writes, 64 clients", "writes, 256 clients"];
pub const ALONE: &str = WRITES[0];
pub const AT_16: &str = WRITES[1];
pub const AT_64: &str = WRITES[2];
pub const AT_256: &str = WRITES[3];
pub const ONE_KEY: &str = "writes of one key, 64 clients";
pub const NEW_KEYS: &str = "writes of new keys, 64 clients";
pub const FIXED_RATE: &str = "writes at the same fixed rate, 64 connections";
pub const READS: &str = "reads, 64 clients";
pub const REFUSALS: &str = "refusals, 64 clients";
pub const FLOODED: &str = "writes at 500 a second, beside 50,000 other requests a second";
pub const BESIDE_NOTHING: &str = "beside nothing";
pub const BESIDE_REFUSALS: &str = "beside refusals";
pub const BESIDE_404S: &str = "beside as many 404s";
pub const BY_KEYS: &str = "writes, by the number of keys, 64 clients";
pub const BY_CONNECTIONS: &str = "writes, by the number of connections";
pub const TWO: &str = "writes, two fenceposts on one database, 64 clients";

pub const ANATOMY: &str = "writes, taken apart, 64 clients";

/// Facts, each a number or a few.
pub const SPENT_HTTP: &str = "HTTP and the wire, ms";
pub const SPENT_QUEUE: &str = "waiting for the batch before, ms";
pub const SPENT_STATEMENT: &str = "the statement, ms";
pub const SPENT_SYNC: &str = "the sync to disk, ms";
pub const TOGETHER: &str = "writes in a batch";
pub const IDLE: &str = "idle, MiB";
pub const AFTER: &str = "after the runs, MiB";
pub const START: &str = "start to ready on a new SQLite file, ms";
pub const RESTART: &str = "start to ready on an old SQLite file, ms";
pub const BY_CACHE: &str = "refusals decided by the cache";
pub const FLOOD: &str = "refusals answered beside writes, a second";

/// In the order in which they are shown.
pub const SCENES: [&str; 13] = [
    ALONE,
    AT_16,
    AT_64,
    AT_256,
    ONE_KEY,
    NEW_KEYS,
    FIXED_RATE,
    READS,
    REFUSALS,
    FLOODED,
    BY_KEYS,
    BY_CONNECTIONS,
    TWO,
];

/// Those that have tables of their own in the report.
pub const GROWTH: [&str; 3] = [BY_KEYS, BY_CONNECTIONS, TWO];
