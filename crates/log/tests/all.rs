//! All tests of the crate in one program, which is optimized and linked once.

mod cleaning;
mod common;
mod golden;
mod load;
mod memory;
mod raw;
mod reading;
