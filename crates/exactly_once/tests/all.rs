//! All tests of the crate in one program, which is optimized and linked once.

mod codec;
mod crash;
mod memory;
mod rules;
