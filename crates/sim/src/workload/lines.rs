//! What a front takes: increments, puts and gets of single keys. A value names its key, so that an answer to another question shows.

use kasha_machine::Rng;

use super::{Ask, HotKeys, Workload};
use crate::history::Action;

/// Counters and registers on a few hot keys.
pub struct Lines {
    counters: HotKeys,
    registers: HotKeys,
    values: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { counters: HotKeys::new("lc", 1), registers: HotKeys::new("lr", 1), values: 0 }
    }
}

impl Workload for Lines {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        let action = match rng.below(10) {
            0..5 => Action::count(&self.counters.one(rng)),
            5 => Action::get(&self.counters.one(rng)),
            6..8 => {
                let key = self.registers.one(rng);
                self.values += 1;
                Action::put(&key, &[&key, format!("={}", self.values).as_bytes()].concat())
            }
            _ => Action::get(&self.registers.one(rng)),
        };
        action.into()
    }
}
