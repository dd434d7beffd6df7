//! All tests of the crate in one program, which is optimized and linked once.

mod common;
mod golden;
mod model;
mod rules;
