//! All tests of the crate in one program, which is optimized and linked once.

mod digests;
mod docs;
mod planted;
mod scenarios;
mod streams;
mod transcript;
mod transcripts;
mod world;
