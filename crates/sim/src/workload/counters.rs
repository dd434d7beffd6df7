//! Counters that only grow by one: how often did each update run?

use kasha_machine::Rng;

use super::{Ask, HotKeys, Workload};
use crate::history::Action;

/// Counters.
pub struct Counters {
    keys: HotKeys,
}

impl Counters {
    /// This many to a tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self { keys: HotKeys::new("c", per_tag) }
    }
}

impl Workload for Counters {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        let action = match rng.below(10) {
            0..6 => Action::Increment(self.keys.one(rng), 1),
            6..8 => Action::MultiIncrement(self.keys.some(rng).into_iter().map(|key| (key, 1)).collect()),
            _ => Action::Get(self.keys.one(rng)),
        };
        action.into()
    }
}
