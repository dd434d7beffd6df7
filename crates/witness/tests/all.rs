//! All tests of the crate in one program, which is optimized and linked once.

mod associativity;
mod common;
mod golden;
mod rules;
