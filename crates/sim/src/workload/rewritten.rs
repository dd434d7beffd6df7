//! Long values under a few keys, one key after the other. Everything older than one round over the keys is dead, and
//! needs no tombstone, which would stay until the segments of what it deleted are gone.

use kasha_machine::Rng;

use super::{Ask, Workload};
use crate::history::Action;

/// So few that all of them together are smaller than the smallest segment. So many that the unknown outcomes of one key
/// can be searched.
const KEYS: u64 = 40;

/// The shortest and the longest value.
const VALUE_BYTES: (u64, u64) = (200, 1000);

/// The state of the workload: which key is next.
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
