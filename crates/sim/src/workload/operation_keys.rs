//! Updates with operation keys, asked for again by other clients, sooner or later (R4.9).

use kasha_machine::Rng;

use super::{Ask, HotKeys, Workload};
use crate::history::Action;

/// Updates that may be repeated.
const REPEATABLE_MAX: usize = 20;

/// Increments and appends with operation keys.
pub struct OperationKeys {
    counters: HotKeys,
    lists: HotKeys,
    recent: Vec<(u64, Action)>,
    made: u64,
}

impl OperationKeys {
    /// This many keys to a tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self { counters: HotKeys::new("oc", per_tag), lists: HotKeys::new("oa", per_tag), recent: Vec::new(), made: 0 }
    }
}

impl Workload for OperationKeys {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        if rng.chance(1, 10) {
            return Action::Get(self.counters.one(rng)).into();
        }
        let (number, action) = if !self.recent.is_empty() && rng.chance(2, 5) {
            rng.pick(&self.recent).clone()
        } else {
            self.made += 1;
            let action = match rng.below(3) {
                0 => Action::Increment(self.counters.one(rng), 1),
                1 => Action::MultiIncrement(self.counters.some(rng).into_iter().map(|key| (key, 1)).collect()),
                _ => Action::Append(self.lists.one(rng), format!("o{};", self.made).into_bytes()),
            };
            if self.recent.len() == REPEATABLE_MAX {
                self.recent.remove(usize::try_from(rng.below(REPEATABLE_MAX as u64)).expect("small"));
            }
            self.recent.push((self.made, action.clone()));
            (self.made, action)
        };
        Ask { operation_key: Some(number), ..action.into() }
    }
}
