//! Long values under new keys, until memory is full. Then the oldest keys are deleted, so that whole segments die.
//!
//! A log that cannot compact frees memory by whole segments only, so no key here lives longer than its neighbours. The
//! workload is also patient: each update that is refused for memory takes some of the reserve for deletes (R2.2: its
//! cancellation is recorded), and the memory of deleted keys comes back some time later.

use std::collections::VecDeque;

use kasha_machine::Rng;
use kasha_wire::Update;

use super::{Ask, Workload};
use crate::history::{Action, Key, Told, Value};

/// The shortest and the longest value.
const VALUE_BYTES: (u64, u64) = (200, 1000);
/// Keys that one update deletes: many, so that making room takes few updates.
const DELETED_AT_ONCE: usize = 16;

/// After a refusal, this many calls are made before anything is put again. That is longer than it takes to free a
/// segment.
const ASKS_WITHOUT_PUT: u32 = 600;

/// After this many refusals nothing is put any more: without compaction the reserve that they took does not always come
/// back.
const REFUSED_MAX: u32 = 20;

/// The keys that were put, and the state of the workload.
#[derive(Debug, Default)]
pub struct Bulk {
    puts: u64,
    /// Keys whose put was acknowledged, oldest first.
    live: VecDeque<Key>,
    /// This many of the oldest keys are deleted before anything is put again.
    to_delete: usize,
    /// Calls for which nothing is put.
    rest: u32,
    /// Number of puts that were refused.
    refused: u32,
    /// If set, only this many keys are kept, although there is room.
    keep: Option<usize>,
}

impl Bulk {
    /// Deletes the oldest key when there are this many, so that segments die while others are copied.
    #[must_use]
    pub fn churning(keep: usize) -> Self {
        Self { keep: Some(keep), ..Self::default() }
    }

    fn value(&mut self, rng: &mut Rng) -> Value {
        let mut value = format!("b{}", self.puts).into_bytes();
        value.resize(usize::try_from(rng.between(VALUE_BYTES.0, VALUE_BYTES.1)).expect("small"), b'.');
        value
    }
}

impl Workload for Bulk {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        self.rest = self.rest.saturating_sub(1);
        let action = if self.to_delete > 0 && rng.chance(3, 4) {
            let count = DELETED_AT_ONCE.min(self.to_delete).min(self.live.len());
            self.to_delete = if count == 0 { 0 } else { self.to_delete - count };
            let keys: Vec<Key> = self.live.drain(..count).collect();
            if keys.is_empty() { Action::get(b"b1") } else { Action::multi_delete(&keys) }
        } else if self.to_delete == 0 && self.rest == 0 && self.refused < REFUSED_MAX && rng.chance(4, 5) {
            self.puts += 1;
            Action::put(format!("b{}", self.puts).as_bytes(), &self.value(rng))
        } else {
            Action::get(format!("b{}", 1 + rng.below(self.puts + 1)).as_bytes())
        };
        action.into()
    }

    fn told(&mut self, action: &Action, told: &Told) {
        match (action.update(), told) {
            (Some(Update::Put { key, .. }), Told::Executed { .. }) => {
                self.live.push_back(key.to_vec());
                if self.to_delete == 0 && self.keep.is_some_and(|keep| self.live.len() > keep) {
                    self.to_delete = self.live.len() / 2;
                }
            }
            (Some(Update::Put { .. }), Told::NotExecuted) => {
                self.refused += 1;
                if self.rest == 0 {
                    (self.to_delete, self.rest) = (self.live.len() / 6, ASKS_WITHOUT_PUT);
                }
            }
            (Some(Update::MultiDelete { keys }), Told::NotExecuted) => {
                self.to_delete += keys.count() as usize;
                let keys: Vec<Key> = keys.iter().map(|item| item.key.to_vec()).collect();
                keys.into_iter().rev().for_each(|key| self.live.push_front(key));
            }
            _ => {}
        }
    }
}
