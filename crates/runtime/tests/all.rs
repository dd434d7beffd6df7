//! All tests of the crate in one program, which is optimized and linked once.

mod connections;
mod files;
mod lines;
mod peers;
mod support;
