//! All integration tests of this crate, as one program.

mod hostile;
mod pages;
mod redis;
