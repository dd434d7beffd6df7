//! All integration tests of this crate, as one program.

mod flush;
mod hostile;
mod moving;
mod once;
mod pages;
mod planted;
mod redis;
