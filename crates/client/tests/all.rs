//! All tests of the crate in one program, which is optimized and linked once.

mod common;
mod distributed;
mod identities;
mod interactive;
mod levels;
mod model;
mod names;
mod readme;
mod session;
mod silence;
mod snapshots;
mod tokio_client;
mod two_phase;
