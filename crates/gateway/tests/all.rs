//! All integration tests of this crate, as one program.

mod flush;
mod hostile;
mod once;
mod pages;
mod redis;
