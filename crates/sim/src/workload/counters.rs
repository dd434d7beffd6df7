//! Counters that only grow by one: the checker `executed_once` reads from them how often each update ran.

use kasha_machine::Rng;

use super::{Ask, HotKeys, TAGS, Workload};
use crate::history::Action;

/// The counters, and some keys whose values are not numbers.
pub struct Counters {
    keys: HotKeys,
    /// Keys whose values are mostly not numbers.
    words: HotKeys,
}

impl Counters {
    /// This many keys with each tag.
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
            // If one increment fails, none takes effect.
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
