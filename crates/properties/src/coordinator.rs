//! Properties of the coordinator: its log files, their records, and the frames that it receives (crate `coordinator`;
//! F2, D3).

mod files;
mod frames;
mod journal;
mod records;

pub use files::CoordinatorFiles;
pub use frames::CoordinatorFrames;
pub use journal::CoordinatorJournal;
pub use records::{CoordinatorOperations, CoordinatorRecords};

#[path = "../../coordinator/tests/common/mod.rs"]
mod common;
