//! The mix of workloads of a run: which of them there are, and how often each is asked.

use kasha_machine::Rng;

use super::{
    Ask, Bulk, Counters, Crowd, Distributed, Expiring, Listing, OperationKeys, Registers, Rewritten, Snapshots, Spread,
    Tables, Tokens, Transactions, Wide, Workload,
};
use crate::history::{Action, Told};

/// Keys of each client in a load in which most keys are soon deleted: enough for a few segments.
const CHURNING_KEYS: usize = 120;

/// The kind of a run's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// All workloads, on a few hot keys.
    Mixed,
    /// Updates of so many keys that two of them hardly ever meet.
    Spread,
    /// Long values, more than a small memory holds.
    Bulky,
    /// Long values, of which few live long.
    Churning,
    /// Long values under a few keys: of a long log hardly anything but its end is needed.
    Rewritten,
    /// The mixed load, and beside it long values that live, all of them together about so many bytes.
    Crowded {
        /// Of the long values.
        bytes: u64,
        /// How many calls are about them, for each other one.
        weight: u64,
    },
    /// Transactions, and everything else on the same few keys.
    Transactions,
    /// Keys of several shards that are read together.
    Snapshots,
    /// Keys of several shards that are changed together.
    Distributed,
    /// Transactions of many keys among many of few.
    Wide,
    /// Values that end.
    Expiring,
    /// A table that is listed while keys come and go.
    Listing,
    /// Tables that come and go, each with so many keys that two updates hardly ever meet.
    Tables,
}

/// Draws from workloads by weight, and gives some calls short deadlines or impatient callers.
pub struct Mix {
    parts: Vec<(u64, Box<dyn Workload>)>,
    /// Per thousand: the deadline is within the time that faults take.
    pub short_deadlines: u64,
    /// Per thousand: nobody waits for the answer.
    pub abandoned: u64,
}

impl Mix {
    /// A random mix, with at least these weights of tables and of operation keys.
    pub fn drawn(rng: &mut Rng, kind: LoadKind, (tables, operation_keys): (u64, u64)) -> Self {
        let alone = |part: Box<dyn Workload>| Self { parts: vec![(1, part)], short_deadlines: 0, abandoned: 0 };
        match kind {
            LoadKind::Spread => return alone(Box::<Spread>::default()),
            LoadKind::Bulky => return alone(Box::<Bulk>::default()),
            LoadKind::Churning => return alone(Box::new(Bulk::churning(CHURNING_KEYS))),
            LoadKind::Rewritten => return alone(Box::<Rewritten>::default()),
            LoadKind::Wide => return Self { short_deadlines: rng.below(200), ..alone(Box::<Wide>::default()) },
            LoadKind::Tables => return alone(Box::new(Tables::spread())),
            LoadKind::Transactions
            | LoadKind::Snapshots
            | LoadKind::Distributed
            | LoadKind::Expiring
            | LoadKind::Listing => {
                let short_deadlines = if rng.chance(1, 2) { rng.below(200) } else { 0 };
                let abandoned = if rng.chance(1, 2) { rng.below(100) } else { 0 };
                let part: Box<dyn Workload> = match kind {
                    LoadKind::Snapshots => Box::<Snapshots>::default(),
                    LoadKind::Distributed => Box::<Distributed>::default(),
                    LoadKind::Listing => Box::<Listing>::default(),
                    LoadKind::Expiring => Box::new(Expiring::new(rng.between(1, 3))),
                    _ => Box::<Transactions>::default(),
                };
                return Self { short_deadlines, abandoned, ..alone(part) };
            }
            LoadKind::Mixed | LoadKind::Crowded { .. } => {}
        }
        let per_tag = rng.between(1, 3);
        let mut weight = |least: u64| least + rng.below(10);
        let weights = [weight(2), weight(1), weight(1), operation_keys + weight(0), weight(0), weight(0)];
        let tables = if rng.chance(1, 3) { tables.max(1) } else { tables };
        let mut parts: Vec<(u64, Box<dyn Workload>)> = vec![
            (weights[0], Box::new(Registers::new(per_tag))),
            (weights[1], Box::new(Counters::new(per_tag))),
            (weights[2], Box::new(Tokens::new(per_tag))),
            (weights[3], Box::new(OperationKeys::new(per_tag))),
            (weights[4], Box::new(Expiring::new(per_tag))),
            (weights[5], Box::<Listing>::default()),
            (tables, Box::new(Tables::new())),
        ];
        if let LoadKind::Crowded { bytes, weight } = kind {
            parts.push((weight * weights.iter().sum::<u64>(), Box::new(Crowd::new(bytes))));
        }
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
        let is_update = ask.action.update().is_some();
        ask.abandon = is_update && rng.chance(self.abandoned, 1000);
        ask
    }

    /// An earlier action had this outcome.
    pub fn told(&mut self, action: &Action, told: &Told) {
        self.parts.iter_mut().for_each(|(_, part)| part.told(action, told));
    }
}
