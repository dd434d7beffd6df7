//! A table is listed, page after page, while keys come and go.

use kasha_machine::Rng;
use kasha_wire::operation::{Lifetime, ScanCursor};
use kasha_wire::outcome::Outcome;
use kasha_wire::{Read, Update};

use super::{Ask, Workload};
use crate::history::{Action, Told};

/// Keys that are put and never deleted, of all slots. The checker `listed_once` knows them by their names.
const STAYING: u64 = 60;
/// So many of them are put together.
const TOGETHER: u64 = 3;
/// Keys that come and go.
const CHANGING: u64 = 200;

/// Listings, and what they list.
#[derive(Debug)]
pub struct Listing {
    cursor: ScanCursor,
    /// A page is under way.
    waits: bool,
}

impl Default for Listing {
    fn default() -> Self {
        Self { cursor: ScanCursor::START, waits: false }
    }
}

impl Workload for Listing {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        if !self.waits && rng.chance(2, 3) {
            self.waits = true;
            let (cursor, most) = (self.cursor, u32::try_from(rng.between(1, 40)).expect("small"));
            return Action::from(match rng.chance(1, 2) {
                true => Read::ScanValues { cursor, most, prefix: b"l" },
                false => Read::Scan { cursor, most, prefix: b"l" },
            })
            .into();
        }
        // No value is put twice: each says which update it is of.
        let value = format!("{:x}", rng.next_u64()).into_bytes();
        if rng.chance(1, 4) {
            let first = rng.below(STAYING);
            if rng.chance(1, 2) {
                return Action::put(format!("ls{first}").as_bytes(), &value).into();
            }
            // Most likely of several shards, and always the same ones together: what is put together is checked together.
            let group = first - first % TOGETHER..first - first % TOGETHER + TOGETHER;
            let keys: Vec<_> = group.map(|number| format!("ls{number}")).collect();
            return Action::multi_put(keys.iter().map(|key| (key.as_bytes(), &value[..]))).into();
        }
        let key = format!("lc{}", rng.below(CHANGING)).into_bytes();
        match rng.below(5) {
            0 | 1 => Action::put(&key, &value),
            2 => {
                let lifetime = Lifetime::from_millis(rng.between(1, 300)).expect("not 0");
                Update::put_expiring(&key, lifetime, &value).into()
            }
            _ => Update::delete(&key).into(),
        }
        .into()
    }

    fn told(&mut self, action: &Action, told: &Told) {
        let Some(Read::Scan { cursor, .. } | Read::ScanValues { cursor, .. }) = action.read() else { return };
        if cursor == self.cursor {
            self.waits = false;
            if let Told::Executed { outcome, .. } = told {
                self.cursor = match outcome {
                    Outcome::Keys(page) => page.next,
                    Outcome::KeysAndValues(page) => page.next,
                    other => unreachable!("{other:?} of a listing"),
                }
                .unwrap_or(ScanCursor::START);
            }
        }
    }
}
