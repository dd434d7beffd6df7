//! All tests of the crate in one program, which is optimized and linked once.

mod administering;
mod beginning;
mod changed_lease;
mod client_leases;
mod common;
mod copies;
mod decided;
mod false_records;
mod format4;
mod giving_up;
mod group;
mod hears_most;
mod links;
mod log_files;
mod member_copies;
mod member_stalls;
mod member_trouble;
mod memory;
mod overtaken;
mod own_silence;
mod planted;
mod random;
mod restarts_of_all;
mod rules;
