//! Redis' commands, as far as Kasha knows them: one row each ([`Command`]) says its name, how many arguments it takes, where its keys
//! stand, and what Redis tells of it. `COMMAND` and its subcommands ([`describe`]), the search by name ([`find`]) and the keys of a
//! request ([`keys`]) follow from the rows.
//!
//! A command answers with a [`reply`], which is the same for every protocol (**R10.4**): what a record keeps of it can be told to a
//! connection that speaks RESP2, and again to one that speaks RESP3.
//!
//! A further command of a kind that is there costs its row, its execution (an arm and a function in `kasha_store`'s `commands`), its form for
//! the comparison with Redis (`tests/redis/src/draw.rs`), and its name in `docs/redis.md`. What has to be known of it elsewhere is a column of its row.
//!
//! Names, flags, categories and positions are those of Redis 7.0; `tests/redis-7.0.txt` has what that server says of each. Redis has no command
//! whose name begins with `kasha.`.

pub mod bit_op;
mod bits;
mod copy;
pub mod describe;
mod find;
pub mod glob;
pub mod keys;
pub mod later;
mod likeness;
mod once;
pub mod reply;
mod row;
mod table;

pub use copy::copy_replaces;
pub use find::{find, find_sub, find_told};
pub use keys::{KeyFlags, KeySpec};
pub use likeness::{LCS_CELLS_MAX, LCS_CELLS_OF_ALL_MAX, LCS_TOO_MUCH, LikenessOptions, lcs_cells};
pub use once::Once;
pub use reply::{Item, Items, ReplyWriter};
pub use row::{Arity, Bound, Categories, Class, CommandNumber, Flags, Frees, Group, Row, Time, TimeOfDay};
pub use table::Command;
