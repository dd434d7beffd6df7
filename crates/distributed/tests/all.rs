//! All tests of the crate in one program, which is optimized and linked once.

mod planted;
mod rules;
mod search;
mod world;
