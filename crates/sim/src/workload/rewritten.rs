//! Long values under a few keys, one after the other: what is older than a round of them is dead, and needs no tombstone,
//! which would stay until the segments of what it deleted are gone.

use kasha_machine::Rng;

use super::{Ask, Workload};
use crate::history::Action;

/// Less than the smallest segment together. Enough that what is unknown of one key is soon searched.
const KEYS: u64 = 40;

/// Shortest and longest value.
const VALUE_BYTES: (u64, u64) = (200, 1000);

/// Values.
#[derive(Debug, Default)]
pub struct Rewritten {
    puts: u64,
}

impl Workload for Rewritten {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        if rng.chance(1, 5) {
            return Action::get(format!("l{}", rng.below(KEYS)).as_bytes()).into();
        }
        self.puts += 1;
        let mut value = format!("l{}", self.puts).into_bytes();
        value.resize(usize::try_from(rng.between(VALUE_BYTES.0, VALUE_BYTES.1)).expect("small"), b'.');
        Action::put(format!("l{}", self.puts % KEYS).as_bytes(), &value).into()
    }
}
