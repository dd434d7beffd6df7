//! Strict serializability (T3): is there an order of all operations on keys that transactions, or reads of several
//! shards, connect in which every result is right, and which agrees with the order in which clients were told and asked?
//!
//! Keys are connected if such an operation, or another operation on several keys of which such an operation names one, names
//! both. What is not connected can be searched apart. The checker `linearizable_keys` leaves such keys to this one.

use std::collections::{BTreeMap, BTreeSet};

use kasha_reference::{Part, Told as KeyTold, parts_in, split};
use kasha_types::{TableId, slot_of};
use kasha_wire::Update;
use kasha_wire::outcome::Outcome;

use crate::checkers::key_state::{KeyState, printable};
use crate::checkers::order::{Checked, Step, search};
use crate::clock::SimTime;
use crate::history::{Action, History, Key, Operation, Told};

type Name = (TableId, Key);
type Keys = BTreeMap<Name, KeyState>;

/// An operation on several keys, part by part.
struct Whole<'h> {
    operation: &'h Operation,
    parts: Vec<(Name, Part<'h>)>,
    came_to: CameTo,
}

/// What is known of the result.
enum CameTo {
    Unknown,
    /// Each part came to this.
    Parts(Vec<Outcome>),
    /// This part failed, so that nothing changed.
    Failed(usize, Outcome),
}

/// The parts of an operation and what they came to; `None`: the result does not fit the operation.
fn whole(operation: &Operation) -> Option<Whole<'_>> {
    let asked = operation.action.operation().expect("it has keys");
    let parts = parts_in(operation.table, &asked);
    let names = parts.iter().map(|&(table, key, part)| ((table, key.to_vec()), part)).collect();
    let came_to = match &operation.told {
        Told::Executed { outcome: Outcome::NotCommitted(at, outcome), .. } => {
            CameTo::Failed(usize::try_from(*at).expect("small"), (**outcome).clone())
        }
        Told::Executed { outcome: Outcome::Parts(outcomes), .. } => CameTo::Parts(outcomes.clone()),
        Told::Executed { outcome, .. } => came_to(split(Some(outcome), parts.len())?),
        _ => CameTo::Unknown,
    };
    let fits = match &came_to {
        CameTo::Unknown => true,
        CameTo::Parts(outcomes) => outcomes.len() == parts.len(),
        CameTo::Failed(at, _) => *at < parts.len(),
    };
    fits.then_some(Whole { operation, parts: names, came_to })
}

/// The same of an operation that is no transaction.
fn came_to(told: Vec<KeyTold>) -> CameTo {
    let is_several = told.len() > 1;
    let mut outcomes = Vec::new();
    for (at, told) in told.into_iter().enumerate() {
        match told {
            KeyTold::Outcome(outcome) if is_several && outcome.is_failure() => return CameTo::Failed(at, outcome),
            KeyTold::Outcome(outcome) => outcomes.push(outcome),
            KeyTold::FailedElsewhere => {}
            KeyTold::Unknown => return CameTo::Unknown,
        }
    }
    CameTo::Parts(outcomes)
}

impl Whole<'_> {
    /// Whether a part that fails takes the others with it.
    fn is_one(&self) -> bool {
        self.parts.len() > 1 || matches!(self.operation.action.update(), Some(Update::Transaction { .. }))
    }

    /// Whether another part has failed, which may be of another shard: each shard tells which of its own parts failed first.
    fn is_elsewhere(&self, at: usize) -> bool {
        let slot = |at: usize| slot_of(&self.parts[at].0.1);
        matches!(self.came_to, CameTo::Failed(failed, _) if slot(failed) != slot(at))
    }

    fn run(&self, state: &Keys) -> Option<Keys> {
        let mut next = state.clone();
        for (at, (name, part)) in self.parts.iter().enumerate() {
            if self.is_elsewhere(at) {
                continue;
            }
            let told = match &self.came_to {
                CameTo::Unknown => None,
                CameTo::Parts(outcomes) => Some(&outcomes[at]),
                CameTo::Failed(failed, outcome) => (at == *failed).then_some(outcome),
            };
            let cell = next.entry(name.clone()).or_default();
            let (after, says) = cell.after(0, part, told)?; // no operation here gives an end
            let has_failed = self.is_one() && says.is_failure();
            match &self.came_to {
                // A failed part that was expected: nothing changed. Of a key that no part before it names, it tells the version.
                CameTo::Failed(failed, _) if at == *failed => {
                    let is_first = !self.parts[..at].iter().any(|(other, _)| other == name);
                    let mut unchanged = state.clone();
                    if is_first && has_failed {
                        unchanged.insert(name.clone(), after);
                    }
                    return has_failed.then_some(unchanged);
                }
                // Of an unknown outcome, "nothing changed" is tried by not placing the operation at all.
                CameTo::Unknown | CameTo::Parts(_) | CameTo::Failed(..) if has_failed => return None,
                CameTo::Unknown | CameTo::Parts(_) | CameTo::Failed(..) => *cell = after,
            }
        }
        Some(next)
    }
}

impl Step for Whole<'_> {
    type State = Keys;

    fn asked(&self) -> SimTime {
        self.operation.asked
    }

    fn told_at(&self) -> Option<SimTime> {
        self.operation.told_at
    }

    fn after(&self, state: &Keys) -> Option<Keys> {
        self.run(state)
    }
}

/// The keys that each transaction connects: for each key, the least key of its group.
#[derive(Default)]
struct Groups(BTreeMap<Name, Name>);

impl Groups {
    fn root(&self, name: &Name) -> Name {
        let mut name = name;
        while let Some(above) = self.0.get(name).filter(|above| *above != name) {
            name = above;
        }
        name.clone()
    }

    fn connect(&mut self, names: &[Name]) {
        let roots: BTreeSet<Name> = names.iter().map(|name| self.root(name)).collect();
        let Some(first) = roots.first() else { return };
        for root in &roots {
            self.0.insert(root.clone(), first.clone());
        }
        for name in names {
            self.0.insert(name.clone(), first.clone());
        }
    }
}

/// The runs of what was asked for under operation keys (R4.9). Operations with one key and one action are one run, which began when
/// the first of them was asked for, and was over when the first was told. If the key expires, there is a run for each result,
/// and one more may be behind each operation that has none.
fn runs(history: &History) -> Vec<Operation> {
    let mut first_asked: BTreeMap<(u64, &Action), SimTime> = BTreeMap::new();
    let mut told: BTreeMap<(u64, &Action), BTreeMap<&[u8], Operation>> = BTreeMap::new();
    let mut unknown: Vec<&Operation> = Vec::new();
    for operation in history.operations() {
        let Some(group) = operation.group else { continue };
        let key = (group, &operation.action);
        let asked = *first_asked.entry(key).or_insert(operation.asked);
        match &operation.told {
            // Another action ran under the key.
            told if told.is_mismatch() => {}
            Told::Executed { bytes, .. } => {
                let runs = told.entry(key).or_default();
                let run = runs.entry(&bytes[..]).or_insert_with(|| Operation { asked, ..operation.clone() });
                run.told_at = run.told_at.min(operation.told_at);
            }
            Told::Unknown => unknown.push(operation),
            Told::NotExecuted | Told::TableDone(_) | Told::TableExists(_) | Told::TableNotFound => {}
        }
    }
    let has_run = |operation: &&&Operation| {
        let key = (operation.group.expect("seen above"), &operation.action);
        told.contains_key(&key) && !operation.expiring
    };
    let unknown: Vec<Operation> =
        unknown.iter().filter(|operation| !has_run(operation)).map(|&it| it.clone()).collect();
    told.into_values().flat_map(BTreeMap::into_values).chain(unknown).collect()
}

fn is_transaction(action: &Action) -> bool {
    matches!(action.update(), Some(Update::Transaction { .. }))
}

fn names_of(operation: &Operation) -> Vec<Name> {
    operation.action.keys_in(operation.table).into_iter().map(|(table, key)| (table, key.to_vec())).collect()
}

/// The keys that this checker judges, each with its group.
fn groups(history: &History) -> Groups {
    let mut all = Groups::default();
    history.operations().iter().for_each(|operation| all.connect(&names_of(operation)));
    let connects = |operation: &&Operation| is_transaction(&operation.action) || operation.has_several_slots();
    let transactions = history.operations().iter().filter(connects);
    let roots: BTreeSet<Name> = transactions.flat_map(names_of).map(|name| all.root(&name)).collect();
    let judged = all.0.keys().map(|name| (name.clone(), all.root(name))).filter(|(_, root)| roots.contains(root));
    Groups(judged.collect())
}

/// The keys that this checker judges.
#[must_use]
pub fn keys(history: &History) -> BTreeSet<Name> {
    groups(history).0.into_keys().collect()
}

/// Checks every group of keys that transactions connect.
#[must_use]
pub fn check(history: &History) -> Checked {
    let (mut checked, groups, runs) = (Checked::default(), groups(history), runs(history));
    let mut by_group: BTreeMap<Name, Vec<Whole<'_>>> = BTreeMap::new();
    let without_key = history.operations().iter().filter(|operation| operation.group.is_none());
    for operation in without_key.chain(&runs) {
        let Some(name) = names_of(operation).into_iter().next() else { continue };
        let Some(group) = groups.0.get(&name) else { continue };
        let may_have_run = matches!(operation.told, Told::Executed { .. } | Told::Unknown);
        let is_asked_in_vain = operation.told == Told::Unknown && operation.action.is_read();
        if !may_have_run || is_asked_in_vain {
            continue;
        }
        match whole(operation) {
            Some(whole) => by_group.entry(group.clone()).or_default().push(whole),
            None => checked
                .violations
                .push(format!("strictly_serializable: {:?} cannot come to {:?}", operation.action, operation.told)),
        }
    }
    for (group, mut operations) in by_group {
        operations.sort_by_key(|whole| whole.operation.asked);
        checked.add(&search(&operations, &Keys::new()), || {
            let name = String::from_utf8_lossy(&group.1).into_owned();
            format!("strictly_serializable: no order explains the group of {name}:{}", described(&operations))
        });
    }
    checked
}

fn described(operations: &[Whole<'_>]) -> String {
    let mut text = String::new();
    for Whole { operation: Operation { client, asked, action, told, told_at, .. }, .. } in operations {
        let told_at = told_at.map_or("unknown".to_owned(), |at| at.to_string());
        let told = match told {
            Told::Executed { outcome, .. } => printable(&format!("{outcome:?}")),
            told => format!("{told:?}"),
        };
        text += &format!("\n    client {client} {asked} .. {told_at}  {action:?}: {told}");
    }
    text
}
