//! What must hold in every run, one file each. The names recur in the design's list of invariants (section 11).

pub mod convergence;
pub mod current_witness_list;
pub mod executed_once;
pub mod flushed_in_time;
pub mod gates_respected;
pub mod linearizable_keys;
pub mod one_primary_per_epoch;
pub mod records;
pub mod synced_survives;
pub mod tables;
