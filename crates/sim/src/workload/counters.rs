//! Counters that only grow by one: how often did each update run?

use kasha_machine::Rng;

use super::{Ask, HotKeys, TAGS, Workload};
use crate::history::Action;

/// Counters.
pub struct Counters {
    keys: HotKeys,
    /// Keys that are no numbers, mostly.
    words: HotKeys,
}

impl Counters {
    /// This many to a tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self { keys: HotKeys::new("c", per_tag), words: HotKeys::new("w", 1) }
    }
}

impl Workload for Counters {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        let action = match rng.below(20) {
            0..12 => Action::Increment(self.keys.one(rng), 1),
            12 => Action::Put(self.words.one(rng), b"a word".to_vec()),
            // One that fails takes the others back.
            13 => {
                let tag = rng.below(TAGS);
                Action::MultiIncrement(vec![(self.keys.one_of(rng, tag), 1), (self.words.one_of(rng, tag), 1)])
            }
            14..16 => Action::MultiIncrement(self.keys.some(rng).into_iter().map(|key| (key, 1)).collect()),
            _ => Action::Get(self.keys.one(rng)),
        };
        action.into()
    }
}
