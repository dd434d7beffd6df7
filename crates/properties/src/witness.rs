//! Properties of a witness and of its file (crate `witness`).

mod file;
mod history;

pub use file::WitnessFile;
pub use history::WitnessHistory;

#[path = "../../witness/tests/common/mod.rs"]
mod common;
