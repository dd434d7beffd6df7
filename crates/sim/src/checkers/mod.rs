//! The checkers: what must hold in every run, one file each. Their names recur in the design's list of invariants
//! (section 11).
//!
//! A checker watches frames and files ([`crate::world::Watch`]), or reads the history at the end. It knows the
//! documented formats, and not the code that writes them.

pub mod acknowledged_outcomes;
pub(crate) mod changes;
pub mod commutes;
pub mod convergence;
pub mod counts_grow;
pub mod current_witness_list;
pub mod durable_everywhere;
pub(crate) mod endings;
pub mod ends_exact;
pub mod executed_once;
pub mod expiry_by_verdict;
pub mod floors_bind;
pub mod flushed_in_time;
pub mod freed_when_synced;
pub mod gates_respected;
pub mod intact_members;
pub(crate) mod key_state;
pub mod leases_lapse;
pub mod linearizable_keys;
pub mod listed_once;
pub mod oldest_first;
pub mod one_group;
pub mod one_primary_per_epoch;
pub mod one_timestamp;
pub mod order;
pub mod prepared_kept;
pub(crate) mod promises;
pub mod proposed_everywhere;
pub mod reads_wait;
pub mod records;
pub mod redis_serializable;
pub mod replay_equals_state;
pub mod replays_alike;
pub mod retained;
pub mod round_trips;
pub mod sent_again;
pub mod strictly_serializable;
pub mod synced_survives;
pub mod tables;
pub mod time_goes_on;
pub mod timestamp_order;
pub mod whole_logs;
pub mod witness_keeps;
