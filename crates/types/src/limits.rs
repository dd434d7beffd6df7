//! Limits that several crates share, each with its reason. A crate's own limits stand in the crate's `limits.rs`.

use std::time::Duration;

/// Hash slots of a table: Redis Cluster's number, so that its drivers can compute them.
pub const SLOTS: u16 = 16384;

/// Bytes of a key: a key is copied into every tombstone and its length is 16 bits.
pub const KEY_BYTES_MAX: usize = 64 * 1024 - 1;

/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of an operation key (section 4).
pub const OPERATION_KEY_BYTES_MAX: usize = 128;

/// Keys of one operation: bounds the work of one turn and a witness's slots.
pub const OPERATION_KEYS_MAX: usize = 1024;

/// Bytes of a request's body: with its log overhead it must fit a segment.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of a result: a multi-get must fit a frame.
pub const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of what a transaction writes and answers: with its completion record it must fit a segment.
pub const TRANSACTION_BYTES_MAX: usize = 6 * 1024 * 1024;

/// Shards that take part in one transaction: each of them speaks to each other one.
pub const PARTICIPANTS_MAX: usize = 32;

/// Transactions that one is told to be behind, in a word between participants; of a longer list nothing is told.
pub const BEHIND_MAX: usize = 16;
/// Bytes that tell why a transaction over several shards does not happen: the number of a part, the shape of its result, and the
/// version that a condition found.
pub const REASON_BYTES_MAX: usize = 64;

/// Bytes of a frame's payload: a full witness fetch or log chunk must fit.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of a segment, in memory and on file.
pub const SEGMENT_BYTES: u32 = 8 * 1024 * 1024;

/// Unacknowledged updates of one client; bounds the completion records a shard keeps for it (R4.3).
pub const OUTSTANDING_MAX: u64 = 512;

/// Slots of a witness instance (CURP 5.2: 4096 slots of 2 KiB, 4 ways).
pub const WITNESS_SLOTS: usize = 4096;

/// Ways of a witness instance (CURP C.2).
pub const WITNESS_WAYS: usize = 4;

/// Bytes of a request that a witness holds; a longer one is rejected and takes the slow path.
pub const WITNESS_BODY_BYTES_MAX: usize = 2048;

/// Garbage collections that a record may survive before it is named a suspect (CURP 4.5).
pub const SUSPECT_AFTER_GCS: u32 = 3;

/// Replicas beside the primary.
pub const FAULTS_MAX: u8 = 3;

/// Shards of a cluster: a shard's id is 16 bits, and the configuration is sent whole.
pub const SHARDS_MAX: u16 = 1024;

/// Nodes of a cluster.
pub const NODES_MAX: usize = 128;

/// Event loops of one node.
pub const CORES_MAX: u8 = 64;

/// Tables of a cluster.
pub const TABLES_MAX: usize = 1024;

/// Bytes of a table's name.
pub const TABLE_NAME_BYTES_MAX: usize = 128;

/// The default lease of a node: how long the coordinator waits before it declares a silent node lost. It is the
/// shortest lease that two shared cores held under full load (decision 0012).
pub const NODE_LEASE: Duration = Duration::from_millis(500);

/// How long a disk, or a node that others hear, may do nothing of what is asked of it before it is replaced. This is no
/// part of the lease: a dead node is detected after a lease, but a node whose fsync takes a second works normally
/// afterwards.
pub const PATIENCE: Duration = Duration::from_millis(4000);

/// A client's lease, in ClusterTime milliseconds. It is longer than a coordinator outage of a minute, which clients
/// must survive.
pub const CLIENT_LEASE_MILLIS: u64 = 300_000;

/// Default time to live of an operation key: a day.
pub const OPERATION_KEY_TTL_MILLIS: u64 = 24 * 60 * 60 * 1000;
