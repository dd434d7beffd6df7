//! Updates that hardly ever touch a key of another unsynced update: the load for which the fast path is made.

use kasha_machine::Rng;
use kasha_wire::Update;

use super::{Ask, Workload};
use crate::history::Action;

/// Keys; far more than are unsynced at a time.
const KEYS: u64 = 20_000;

/// The state of the workload.
#[derive(Debug, Default)]
pub struct Spread {
    values: u64,
}

impl Workload for Spread {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        let key = format!("s{}", rng.below(KEYS)).into_bytes();
        self.values += 1;
        let action = match rng.below(10) {
            0..6 => Action::put(&key, format!("v{}", self.values).as_bytes()),
            6..8 => Update::delete(&key).into(),
            _ => Action::get(&key),
        };
        action.into()
    }
}
