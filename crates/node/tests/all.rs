//! All tests of the crate in one program, which is optimized and linked once.

mod batches;
mod cleaning;
mod cleaning_crashes;
mod commands;
mod common;
mod distributed;
mod expiry;
mod fetching;
mod floor_and_cleaner;
mod flush;
mod following;
mod freeing;
mod golden;
mod links;
mod listing_and_ends;
mod memory;
mod one_core;
mod planted;
mod refusals;
mod rules;
mod transactions;
mod turns;
mod two_phase;
mod witness_certainty;
