//! What clients ask for. Workloads are composed: each run draws how much of each.
//!
//! All use a few hot keys and move on to fresh ones before a key's history gets too long to search. Keys of one group
//! share a `{tag}`, so that an update of several keys stays within a shard.

mod counters;
mod operation_keys;
mod registers;
mod tokens;

use kasha_machine::Rng;
use kasha_wire::outcome::Outcome;

pub use counters::Counters;
pub use operation_keys::OperationKeys;
pub use registers::Registers;
pub use tokens::Tokens;

use crate::history::{Action, Key};

/// Operations on one key before the workload moves on.
const KEY_USES_MAX: u32 = 40;

/// Groups of keys that share a tag.
const TAGS: u64 = 6;

/// One thing to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What.
    pub action: Action,
    /// Number of the operation key, if it has one.
    pub operation_key: Option<u64>,
    /// When to stop waiting, in milliseconds.
    pub deadline_millis: Option<u64>,
    /// The caller goes away at once.
    pub abandon: bool,
    /// Whether to cancel at the deadline.
    pub cancel: bool,
}

impl From<Action> for Ask {
    fn from(action: Action) -> Self {
        Self { action, operation_key: None, deadline_millis: None, abandon: false, cancel: false }
    }
}

/// A kind of load.
pub trait Workload {
    /// The next thing to ask for.
    fn next(&mut self, rng: &mut Rng) -> Ask;

    /// What an earlier one came to.
    fn told(&mut self, _action: &Action, _outcome: &Outcome) {}
}

/// A few hot keys, replaced one by one as they are used up.
#[derive(Debug)]
pub(crate) struct HotKeys {
    prefix: &'static str,
    per_tag: u64,
    used: Vec<(u32, u32)>,
}

impl HotKeys {
    pub(crate) fn new(prefix: &'static str, per_tag: u64) -> Self {
        let count = usize::try_from(TAGS * per_tag).expect("few");
        Self { prefix, per_tag, used: vec![(0, 0); count] }
    }

    fn key(&mut self, tag: u64, index: u64) -> Key {
        let slot = &mut self.used[usize::try_from(tag * self.per_tag + index).expect("few")];
        slot.1 += 1;
        if slot.1 > KEY_USES_MAX {
            *slot = (slot.0 + 1, 1);
        }
        format!("{{t{tag}}}{}{index}.{}", self.prefix, slot.0).into_bytes()
    }

    /// Any key.
    pub(crate) fn one(&mut self, rng: &mut Rng) -> Key {
        let (tag, index) = (rng.below(TAGS), rng.below(self.per_tag));
        self.key(tag, index)
    }

    /// Several different keys with one tag.
    pub(crate) fn some(&mut self, rng: &mut Rng) -> Vec<Key> {
        let (tag, first) = (rng.below(TAGS), rng.below(self.per_tag));
        let count = rng.between(1, self.per_tag.min(3));
        (0..count).map(|step| self.key(tag, (first + step) % self.per_tag)).collect()
    }
}

/// Draws among workloads by weight, and gives some asks short deadlines or impatient callers.
pub struct Mix {
    parts: Vec<(u64, Box<dyn Workload>)>,
    /// Per thousand: a deadline within the time that faults take.
    pub short_deadlines: u64,
    /// Per thousand: nobody waits for the answer.
    pub abandoned: u64,
}

impl Mix {
    /// Any mix.
    pub fn drawn(rng: &mut Rng) -> Self {
        let per_tag = rng.between(1, 3);
        let mut weight = |least: u64| least + rng.below(10);
        let parts: Vec<(u64, Box<dyn Workload>)> = vec![
            (weight(2), Box::new(Registers::new(per_tag))),
            (weight(1), Box::new(Counters::new(per_tag))),
            (weight(1), Box::new(Tokens::new(per_tag))),
            (weight(0), Box::new(OperationKeys::new(per_tag))),
        ];
        let short_deadlines = if rng.chance(1, 2) { rng.below(200) } else { 0 };
        let abandoned = if rng.chance(1, 2) { rng.below(100) } else { 0 };
        Self { parts, short_deadlines, abandoned }
    }

    /// The next thing to ask for.
    ///
    /// # Panics
    /// If all weights are 0.
    pub fn next(&mut self, rng: &mut Rng) -> Ask {
        let mut draw = rng.below(self.parts.iter().map(|(weight, _)| weight).sum());
        let chosen = self.parts.iter_mut().find(|(weight, _)| {
            let here = draw < *weight;
            draw = draw.wrapping_sub(*weight);
            here
        });
        let mut ask = chosen.expect("a weight").1.next(rng);
        if rng.chance(self.short_deadlines, 1000) {
            ask.deadline_millis = Some(rng.between(1, 60));
            ask.cancel = rng.chance(1, 3);
        }
        ask.abandon = !ask.action.is_read() && rng.chance(self.abandoned, 1000);
        ask
    }

    /// What an earlier one came to.
    pub fn told(&mut self, action: &Action, outcome: &Outcome) {
        self.parts.iter_mut().for_each(|(_, part)| part.told(action, outcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_update_share_a_slot_and_are_used_up() {
        let (mut keys, mut rng) = (HotKeys::new("k", 3), Rng::new(1));
        let mut uses = std::collections::BTreeMap::new();
        for _ in 0..2000 {
            let some = keys.some(&mut rng);
            let slots: Vec<_> = some.iter().map(|key| kasha_types::slot_of(key)).collect();
            assert!(slots.windows(2).all(|pair| pair[0] == pair[1]));
            some.into_iter().for_each(|key| *uses.entry(key).or_insert(0) += 1);
        }
        assert!(uses.values().all(|&uses| uses <= KEY_USES_MAX));
    }
}
