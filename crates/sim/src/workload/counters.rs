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
            0..12 => Action::count(&self.keys.one(rng)),
            12 => Action::put(&self.words.one(rng), b"a word"),
            // One that fails takes the others back.
            13 => {
                let tag = rng.below(TAGS);
                Action::count_all(&[self.keys.one_of(rng, tag), self.words.one_of(rng, tag)])
            }
            14..16 => Action::count_all(&self.keys.some(rng)),
            _ => Action::get(&self.keys.one(rng)),
        };
        action.into()
    }
}
