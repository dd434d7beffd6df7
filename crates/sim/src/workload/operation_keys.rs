//! Updates with operation keys that other clients ask for again, sooner or later (R4.9): with the same action, which
//! must have the same result, or with another one on the same first key, which must be refused, or with one on another
//! key of the same slot, which is another operation. Some keys have such a short time to live that they run again.

use kasha_machine::Rng;
use kasha_wire::Update;

use super::{Ask, HotKeys, TAGS, Workload};
use crate::history::Action;

/// The number of recent updates that may be repeated.
const REPEATABLE_MAX: usize = 20;

/// The longest of the short times to live, in milliseconds.
const SHORT_MILLIS_MAX: u64 = 200;

/// An update with an operation key.
#[derive(Clone)]
struct Used {
    number: u64,
    tag: u64,
    action: Action,
    time_to_live_millis: Option<u64>,
}

/// Increments and appends with operation keys.
pub struct OperationKeys {
    counters: HotKeys,
    lists: HotKeys,
    short_lived: HotKeys,
    recent: Vec<Used>,
    made: u64,
    tokens: u64,
}

impl OperationKeys {
    /// This many keys with each tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self {
            counters: HotKeys::new("oc", per_tag),
            lists: HotKeys::new("oa", per_tag),
            short_lived: HotKeys::new("ox", per_tag),
            recent: Vec::new(),
            made: 0,
            tokens: 0,
        }
    }

    fn action(&mut self, rng: &mut Rng, tag: u64) -> Action {
        match rng.below(3) {
            0 => Action::count(&self.counters.one_of(rng, tag)),
            1 => Action::count_all(&self.counters.some_of(rng, tag)),
            _ => {
                self.tokens += 1;
                let (key, token) = (self.lists.one_of(rng, tag), format!("o{};", self.tokens));
                Update::append(&key, token.as_bytes()).into()
            }
        }
    }

    /// Another action with the same first key.
    fn other(&mut self, rng: &mut Rng, used: &Used) -> Action {
        let first = used.action.keys().first().map(|key| key.to_vec()).expect("it has keys");
        match used.action.update() {
            Some(Update::Append { .. }) => {
                self.tokens += 1;
                Update::append(&first, format!("o{};", self.tokens).as_bytes()).into()
            }
            Some(Update::Increment { .. }) => {
                let mut keys = self.counters.some_of(rng, used.tag);
                keys.retain(|key| *key != first);
                keys.insert(0, first);
                Action::count_all(&keys)
            }
            _ => Action::count(&first),
        }
    }

    fn fresh(&mut self, rng: &mut Rng) -> Used {
        self.made += 1;
        let (number, tag) = (self.made, rng.below(TAGS));
        let used = if rng.chance(1, 6) {
            let action = Action::count(&self.short_lived.one_of(rng, tag));
            Used { number, tag, action, time_to_live_millis: Some(rng.between(1, SHORT_MILLIS_MAX)) }
        } else {
            Used { number, tag, action: self.action(rng, tag), time_to_live_millis: None }
        };
        if self.recent.len() == REPEATABLE_MAX {
            self.recent.remove(usize::try_from(rng.below(REPEATABLE_MAX as u64)).expect("small"));
        }
        self.recent.push(used.clone());
        used
    }
}

impl Workload for OperationKeys {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        if rng.chance(1, 10) {
            return Action::get(&self.counters.one(rng)).into();
        }
        // The newest update is often still under way.
        let mut used = match self.recent.last() {
            Some(newest) if rng.chance(1, 3) => newest.clone(),
            Some(_) if rng.chance(1, 4) => rng.pick(&self.recent).clone(),
            Some(_) | None => self.fresh(rng),
        };
        if used.time_to_live_millis.is_none() && rng.chance(1, 3) {
            used.action = if rng.chance(1, 2) { self.action(rng, used.tag) } else { self.other(rng, &used) };
        }
        let Used { number, action, time_to_live_millis, .. } = used;
        Ask { operation_key: Some(number), time_to_live_millis, ..action.into() }
    }
}
