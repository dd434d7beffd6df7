//! The coordinator, its files and what it hears (crate `coordinator`; F2, D3).

mod files;
mod frames;

pub use files::CoordinatorFiles;
pub use frames::CoordinatorFrames;

#[path = "../../coordinator/tests/common/mod.rs"]
mod common;
