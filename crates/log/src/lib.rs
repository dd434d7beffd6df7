//! A shard's log.
