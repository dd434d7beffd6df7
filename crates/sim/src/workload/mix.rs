//! The mix of workloads of a run: which of them there are, and how often each is asked.
//!
//! Each workload has a stream of randomness of its own, which follows from the seed of the mix and the workload's name. One
//! more stream draws whose turn it is. So a workload that joins a mix, or draws more than before, moves no draw of another.

use kasha_machine::Rng;
use kasha_types::body_hash;

use super::{
    Ask, Bulk, Counters, Crowd, Distributed, Expiring, Interactive, Listing, OperationKeys, Registers, Rewritten,
    Snapshots, Spread, Tables, Tokens, Transactions, Wide, Workload,
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
    /// Programs that read keys of several shards before they write.
    Interactive,
    /// Values that end.
    Expiring,
    /// A table that is listed while keys come and go.
    Listing,
    /// Tables that come and go, each with so many keys that two updates hardly ever meet.
    Tables,
}

/// A workload of a mix.
struct Part {
    name: &'static str,
    /// How often it is asked, beside the weights of the others.
    weight: u64,
    /// The draws of the workload, and of those who ask for it.
    rng: Rng,
    workload: Box<dyn Workload>,
}

/// Draws from workloads by weight, and gives some calls short deadlines or impatient callers.
pub struct Mix {
    /// All streams of the mix follow from it.
    seed: u64,
    /// Draws whose turn it is, and nothing else.
    turns: Rng,
    parts: Vec<Part>,
    /// Per thousand: the deadline is within the time that faults take.
    short_deadlines: u64,
    /// Per thousand: nobody waits for the answer.
    abandoned: u64,
}

/// The stream of this name.
fn stream(seed: u64, name: &str) -> Rng {
    Rng::new(seed ^ body_hash(name.as_bytes()).0)
}

impl Mix {
    /// A random mix, with at least these weights of tables and of operation keys.
    #[must_use]
    pub fn drawn(seed: u64, kind: LoadKind, (tables, operation_keys): (u64, u64)) -> Self {
        let mut mix = Self::of_nothing(seed, kind);
        let once = |_: &mut Rng| 1;
        match kind {
            LoadKind::Spread => mix.add("spread", once, |_| Spread::default()),
            LoadKind::Bulky => mix.add("bulk", once, |_| Bulk::default()),
            LoadKind::Churning => mix.add("bulk", once, |_| Bulk::churning(CHURNING_KEYS)),
            LoadKind::Rewritten => mix.add("rewritten", once, |_| Rewritten::default()),
            LoadKind::Wide => mix.add("wide", once, |_| Wide::default()),
            LoadKind::Tables => mix.add("tables", once, |_| Tables::spread()),
            LoadKind::Transactions => mix.add("transactions", once, |_| Transactions::default()),
            LoadKind::Snapshots => mix.add("snapshots", once, |_| Snapshots::default()),
            LoadKind::Distributed => mix.add("distributed", once, |_| Distributed::default()),
            LoadKind::Interactive => mix.add("interactive", once, |_| Interactive::default()),
            LoadKind::Listing => mix.add("listing", once, |_| Listing::default()),
            LoadKind::Expiring => mix.add("expiring", once, |rng| Expiring::new(rng.between(1, 3))),
            LoadKind::Mixed => mix.add_all(tables, operation_keys),
            LoadKind::Crowded { bytes, weight } => {
                mix.add_all(tables, operation_keys);
                let others = mix.weight();
                mix.add("crowd", |_| weight * others, |_| Crowd::new(bytes));
            }
        }
        mix
    }

    /// Only the callers are drawn.
    fn of_nothing(seed: u64, kind: LoadKind) -> Self {
        let mut callers = stream(seed, "callers");
        let mut sometimes = |most| if callers.chance(1, 2) { callers.below(most) } else { 0 };
        let (short_deadlines, abandoned) = match kind {
            LoadKind::Spread | LoadKind::Bulky | LoadKind::Churning | LoadKind::Rewritten | LoadKind::Tables => (0, 0),
            LoadKind::Wide => (callers.below(200), 0),
            LoadKind::Mixed
            | LoadKind::Crowded { .. }
            | LoadKind::Transactions
            | LoadKind::Snapshots
            | LoadKind::Distributed
            | LoadKind::Interactive
            | LoadKind::Expiring
            | LoadKind::Listing => (sometimes(200), sometimes(100)),
        };
        Self { seed, turns: stream(seed, "turns"), parts: Vec::new(), short_deadlines, abandoned }
    }

    /// Adds a workload, which draws its weight and what it begins with from its own stream.
    fn add<W: Workload + 'static>(
        &mut self,
        name: &'static str,
        weight: impl FnOnce(&mut Rng) -> u64,
        make: impl FnOnce(&mut Rng) -> W,
    ) {
        let mut rng = stream(self.seed, name);
        let (weight, workload) = (weight(&mut rng), Box::new(make(&mut rng)));
        self.parts.push(Part { name, weight, rng, workload });
    }

    /// Adds the workloads of hot keys.
    fn add_all(&mut self, tables: u64, operation_keys: u64) {
        let per_tag = stream(self.seed, "keys per tag").between(1, 3);
        let weight = |least: u64| move |rng: &mut Rng| least + rng.below(10);
        self.add("registers", weight(2), |_| Registers::new(per_tag));
        self.add("counters", weight(1), |_| Counters::new(per_tag));
        self.add("tokens", weight(1), |_| Tokens::new(per_tag));
        self.add("operation keys", weight(operation_keys), |_| OperationKeys::new(per_tag));
        self.add("expiring", weight(0), |_| Expiring::new(per_tag));
        self.add("listing", weight(0), |_| Listing::default());
        self.add("tables", |rng| if rng.chance(1, 3) { tables.max(1) } else { tables }, |_| Tables::new());
    }

    fn weight(&self) -> u64 {
        self.parts.iter().map(|part| part.weight).sum()
    }

    /// The workload whose turn it is.
    fn turn(&mut self) -> &mut Part {
        let mut draw = self.turns.below(self.weight());
        let chosen = self.parts.iter_mut().find(|part| {
            let here = draw < part.weight;
            draw = draw.wrapping_sub(part.weight);
            here
        });
        chosen.expect("a weight")
    }

    /// The next thing to ask for.
    ///
    /// # Panics
    /// If all weights are 0.
    pub fn draw(&mut self) -> Ask {
        self.draw_and_its_workload().1
    }

    fn draw_and_its_workload(&mut self) -> (&'static str, Ask) {
        let (short_deadlines, abandoned) = (self.short_deadlines, self.abandoned);
        let Part { name, rng, workload, .. } = self.turn();
        let mut ask = workload.next(rng);
        if rng.chance(short_deadlines, 1000) {
            ask.deadline_millis = Some(rng.between(1, 60));
            ask.cancel = rng.chance(1, 3);
        }
        let is_update = ask.action.update().is_some();
        ask.abandon = is_update && rng.chance(abandoned, 1000);
        (name, ask)
    }

    /// An earlier action had this outcome.
    pub fn told(&mut self, action: &Action, told: &Told) {
        self.parts.iter_mut().for_each(|part| part.workload.told(action, told));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use kasha_wire::operation::{Check, PartOperation};
    use kasha_wire::{Read, Update};

    use super::*;

    const KINDS: [LoadKind; 14] = [
        LoadKind::Mixed,
        LoadKind::Spread,
        LoadKind::Bulky,
        LoadKind::Churning,
        LoadKind::Rewritten,
        LoadKind::Crowded { bytes: 40_000, weight: 1 },
        LoadKind::Transactions,
        LoadKind::Snapshots,
        LoadKind::Distributed,
        LoadKind::Wide,
        LoadKind::Interactive,
        LoadKind::Expiring,
        LoadKind::Listing,
        LoadKind::Tables,
    ];

    /// Operations that clients send by themselves, or fronts (`crate::redis`) for connections that speak another protocol, and no workload asks for.
    const BY_SESSIONS: [&str; 3] = ["batch", "observe", "query"];

    type Asked = BTreeMap<&'static str, Vec<Ask>>;

    fn asked(mut mix: Mix, calls: usize) -> Asked {
        let mut asked = Asked::new();
        for _ in 0..calls {
            let (name, ask) = mix.draw_and_its_workload();
            asked.entry(name).or_default().push(ask);
        }
        asked
    }

    /// Draws more than the workload that it is.
    struct Greedy(Box<dyn Workload>);

    impl Workload for Greedy {
        fn next(&mut self, rng: &mut Rng) -> Ask {
            rng.next_u64();
            self.0.next(rng)
        }
    }

    #[test]
    fn a_workload_that_joins_moves_no_draw_of_another() {
        for seed in 0..20 {
            let mixed = || Mix::drawn(seed, LoadKind::Mixed, (1, 1));
            let mut more = mixed();
            more.add("new", |rng| 1 + rng.below(10), |_| Spread::default());
            let (few, more) = (asked(mixed(), 2000), asked(more, 4000));
            assert!(more["new"].len() > 20);
            for (name, asks) in few {
                let both = asks.len().min(more[name].len());
                assert!(both > 20, "{name}");
                assert_eq!(asks[..both], more[name][..both], "{name}");
            }
        }
    }

    #[test]
    fn a_workload_with_an_operation_more_moves_no_draw_of_another() {
        for seed in 0..20 {
            let mixed = || Mix::drawn(seed, LoadKind::Mixed, (1, 1));
            let mut other = mixed();
            let registers = other.parts.remove(0);
            let greedy = Part { workload: Box::new(Greedy(registers.workload)), ..registers };
            other.parts.insert(0, greedy);
            let (mut before, mut after) = (asked(mixed(), 2000), asked(other, 2000));
            assert_ne!(before.remove("registers"), after.remove("registers"));
            assert_eq!(before, after);
        }
    }

    /// A row of the wire's table is drawn where a workload lists it. So the new row needs a workload.
    #[test]
    fn some_workload_asks_for_each_operation() {
        let mut seen = BTreeSet::new();
        let mixes = (0..8).flat_map(|seed| KINDS.map(|kind| Mix::drawn(seed, kind, (1, 1))));
        for ask in mixes.flat_map(|mix| asked(mix, 500)).flat_map(|(_, asks)| asks) {
            let (update, read) = (ask.action.update(), ask.action.read());
            if let Some(Update::Transaction { parts }) = update {
                seen.extend(parts.iter().map(|part| PartOperation::code(&part.operation)));
            }
            seen.extend(update.map(|update| update.code()).into_iter().chain(read.map(|read| read.code())));
        }
        let rows = Update::ALL.iter().chain(Read::ALL).chain(Check::ALL);
        let unseen: Vec<_> = rows.filter(|row| !seen.contains(&row.code)).map(|row| row.name).collect();
        assert_eq!(unseen, BY_SESSIONS);
    }
}
