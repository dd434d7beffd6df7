//! All tests of the crate in one program.

mod disk;
mod faults;
mod memories;
mod planted;
mod refused;
mod rules;
mod world;
mod writer;
