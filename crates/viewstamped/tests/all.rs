//! All tests of the crate in one program.

mod faults;
mod rules;
mod world;
