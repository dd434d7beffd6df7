//! All tests of the crate in one program, which is optimized and linked once.

mod common;
mod docs;
mod golden;
mod hostile;
mod limits;
mod memory;
mod round_trip;
