//! The meaning of each operation, in the simplest form: a key has a value or none, and a version.
//!
//! This crate judges the store and the simulator's histories. It refuses to share code with what it judges: of the
//! product it knows only the table of operations. [`branches`] is the specification; [`Model`] runs whole updates on a
//! map. [`redis`] is the same for a few commands of Redis.

mod branch;
mod model;
mod parts;
pub mod redis;

pub use branch::{Branch, Effect, Ends, Requires, Says, branches};
pub use model::{Cell, Model};
pub use parts::{Part, Told, parts, parts_in, split};
