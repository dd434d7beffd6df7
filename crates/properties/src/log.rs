//! Properties of a log and its files (crate `log`; D4, E4): the life of a replica, its files after a crash, bytes that
//! a primary sends, and any bytes at all.

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
