//! What each operation means, in the simplest words: a key has a value or none, and a version.
//!
//! The judge of the store and of simulated histories. It refuses to share code with what it judges: of the product it
//! knows the table of operations only. [`branches`] is the specification; [`Model`] runs whole updates on a map.

mod branch;
mod model;
mod parts;

pub use branch::{Branch, Effect, Requires, Says, branches};
pub use model::{Cell, Model};
pub use parts::{Part, Told, parts, split};
