//! All tests of the crate in one program, which is optimized and linked once.

mod connections;
mod files;
mod peers;
mod requests;
mod support;
