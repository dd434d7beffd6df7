//! Values that end (R5.2): counters, locks and registers with short lives, which are read, prolonged and kept as they end.

use kasha_machine::Rng;
use kasha_wire::operation::{Bounds, Lifetime};
use kasha_wire::{Read, Update};

use super::{Ask, HotKeys, Workload};
use crate::history::Action;

/// The longest lifetime, in milliseconds: about as long as it takes to replace a primary.
const LIFETIME_MAX: u64 = 600;

/// Keys whose values end.
pub struct Expiring {
    keys: HotKeys,
    counters: HotKeys,
    values: u64,
}

impl Expiring {
    /// This many keys of each kind with each tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self { keys: HotKeys::new("e", per_tag), counters: HotKeys::new("ec", per_tag), values: 0 }
    }

    fn of_a_register(&mut self, rng: &mut Rng, lifetime: Lifetime) -> Action {
        self.values += 1;
        let (key, value) = (self.keys.one(rng), format!("e{}", self.values).into_bytes());
        match rng.below(16) {
            0..3 => Update::put_expiring(&key, lifetime, &value).into(),
            3..6 => Update::put_if_absent_expiring(&key, lifetime, &value).into(),
            6 => Action::put(&key, &value),
            7 => Update::append(&key, &value).into(),
            8 => Update::expire(&key, lifetime).into(),
            9 => Update::persist(&key).into(),
            10 => Update::delete(&key).into(),
            11 => Read::TimeToLive { key: &key }.into(),
            12 => Action::multi_get(&self.keys.some(rng)),
            _ => Action::get(&key),
        }
    }

    fn of_a_counter(&mut self, rng: &mut Rng, lifetime: Lifetime) -> Action {
        let key = self.counters.one(rng);
        let most = i64::try_from(rng.between(1, 6)).expect("small");
        let bounds = if rng.chance(1, 2) { Bounds::NONE } else { Bounds::new(0, most).expect("in order") };
        match rng.below(8) {
            0..5 => Update::increment_expiring(&key, 1, bounds, lifetime).into(),
            5 => Action::count(&key),
            _ => Action::get(&key),
        }
    }
}

impl Workload for Expiring {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        let lifetime = Lifetime::from_millis(rng.between(1, LIFETIME_MAX)).expect("not 0");
        if rng.chance(1, 3) { self.of_a_counter(rng, lifetime) } else { self.of_a_register(rng, lifetime) }.into()
    }
}
