//! Long values under so many keys that most of a small memory lives: overwritten, deleted and written again in any
//! order, so that what dies is strewn over all segments, and the cleaner copies the rest.

use kasha_machine::Rng;
use kasha_wire::Update;

use super::{Ask, KEY_USES_MAX, Workload};
use crate::history::{Action, Key, Told};

/// The shortest and the longest value.
const VALUE_BYTES: (u64, u64) = (100, 700);
/// Bytes of a live key on average: its entry, and what a few clients' records add.
const KEY_BYTES: u64 = 460;
/// After a refusal, this many calls are made before anything is put again.
const ASKS_WITHOUT_PUT: u32 = 100;

/// The keys in use.
#[derive(Debug)]
pub struct Crowd {
    /// Of each key: how often its name was begun anew, and how often this name was used.
    used: Vec<(u32, u32)>,
    puts: u64,
    /// Keys that have no value, as far as was told; each is put before any key is overwritten.
    empty: Vec<usize>,
    rest: u32,
}

impl Crowd {
    /// Keys whose values take about as many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let count = usize::try_from(bytes / KEY_BYTES).expect("few").max(4);
        Self { used: vec![(0, 0); count], puts: 0, empty: (0..count).rev().collect(), rest: 0 }
    }

    fn name(&self, index: usize) -> Key {
        format!("w{index}.{}", self.used[index].0).into_bytes()
    }

    fn put(&mut self, rng: &mut Rng, index: usize) -> Action {
        self.puts += 1;
        let mut value = format!("w{}", self.puts).into_bytes();
        value.resize(usize::try_from(rng.between(VALUE_BYTES.0, VALUE_BYTES.1)).expect("small"), b'.');
        Action::put(&self.name(index), &value)
    }
}

impl Workload for Crowd {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        self.rest = self.rest.saturating_sub(1);
        let any = usize::try_from(rng.below(self.used.len() as u64)).expect("few");
        if self.rest == 0
            && rng.chance(7, 8)
            && let Some(index) = self.empty.pop()
        {
            return self.put(rng, index).into();
        }
        if self.used[any].1 >= KEY_USES_MAX {
            let deleted = self.name(any);
            self.used[any] = (self.used[any].0 + 1, 0);
            self.empty.push(any);
            return Action::from(Update::delete(&deleted)).into();
        }
        self.used[any].1 += 1;
        match rng.below(8) {
            0..2 => Action::get(&self.name(any)).into(),
            2..4 => {
                if !self.empty.contains(&any) {
                    self.empty.push(any);
                }
                Action::from(Update::delete(&self.name(any))).into()
            }
            _ if self.rest > 0 => Action::get(&self.name(any)).into(),
            _ => self.put(rng, any).into(),
        }
    }

    fn told(&mut self, action: &Action, told: &Told) {
        if let (Some(Update::Put { .. }), Told::NotExecuted) = (action.update(), told) {
            self.rest = ASKS_WITHOUT_PUT;
        }
    }
}
