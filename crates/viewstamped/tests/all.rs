//! All tests of the crate in one program.

mod disk;
mod faults;
mod rules;
mod world;
mod writer;
