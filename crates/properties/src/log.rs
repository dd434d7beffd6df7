//! A log and its files (crate `log`; D4, E4): what a replica goes through, what a crash leaves of its files, what a
//! primary sends, and any bytes at all.

mod append;
mod files;
mod history;
mod replicas;

pub use append::LogAppends;
pub use files::LogFiles;
pub use history::LogHistory;
pub use replicas::LogReplicas;

#[path = "../../log/tests/common/mod.rs"]
mod common;
