//! Linearizability of each key (E1, E2, D1, F1): is there an order of its operations in which every result is right,
//! and which agrees with the order in which clients were told and asked?
//!
//! Linearizability is local, so each key is searched alone. An update of several keys appears at each key, with its
//! part of the result. The version of each change is greater than all before it. The version of an unknown change is
//! unknown until a read tells it.
//!
//! A value that ends does so at any moment after the operation that gave it the end was asked for, once, or never: like an
//! unknown update. (When it ends is for tests of a node, where the clock is known.)

use std::collections::{BTreeMap, BTreeSet};

use kasha_reference::{Part, Told as KeyTold, parts, split};
use kasha_wire::outcome::{Outcome, Shape};

use crate::checkers::key_state::{KeyState, printable};
use crate::checkers::order::{Checked, Found, Step, search};
use crate::checkers::strictly_serializable;
use crate::clock::SimTime;
use crate::history::{Action, History, Told};

/// The part of an operation that is about one key.
#[derive(Clone, Debug)]
struct KeyOperation<'h> {
    part: Part<'h>,
    told: KeyTold,
    client: usize,
    asked: SimTime,
    told_at: Option<SimTime>,
    /// Among the key's operations.
    number: usize,
    /// It stands for the end that the operation gave the value.
    is_end: bool,
}

/// Whether an operation may give its key's value an end.
fn gives_end(part: &Part<'_>) -> bool {
    matches!(part, Part::Update(update) if update.has_lifetime())
}

impl Step for KeyOperation<'_> {
    type State = KeyState;

    fn asked(&self) -> SimTime {
        self.asked
    }

    fn told_at(&self) -> Option<SimTime> {
        self.told_at
    }

    fn after(&self, state: &KeyState) -> Option<KeyState> {
        let told = match &self.told {
            _ if self.is_end => return state.ended(self.number),
            KeyTold::FailedElsewhere => return Some(state.clone()),
            KeyTold::Unknown => None,
            KeyTold::Outcome(outcome) => Some(outcome),
        };
        state.after(self.number, &self.part, told).map(|(after, _)| after)
    }
}

/// Searches the operations of one key.
fn check_key(operations: &[KeyOperation<'_>]) -> Found {
    search(operations, &KeyState::default())
}

/// The operations as text for a person.
fn described(operations: &[KeyOperation<'_>]) -> String {
    let mut text = String::new();
    for operation in operations.iter().filter(|operation| !operation.is_end) {
        let told_at = operation.told_at.map_or("unknown".to_owned(), |at| at.to_string());
        let part = match &operation.part {
            Part::Update(update) => update.to_string(),
            Part::Read(read) => read.to_string(),
            Part::Check(check) => check.to_string(),
            Part::Remove => "delete, of several".to_owned(),
        };
        let KeyOperation { client, asked, told, .. } = operation;
        text += &format!("\n    client {client} {asked} .. {told_at}  {part}: {}", printable(&format!("{told:?}")));
    }
    text
}

/// Whether a result is one that the operation may have, as far as that can be said without any state.
fn is_shaped(action: &Action, outcome: &Outcome) -> bool {
    let is_several = matches!(outcome, Outcome::Versions(_) | Outcome::Numbers(_) | Outcome::Values(_));
    let row = match action {
        Action::Operation(operation) => operation.row(),
        Action::CreateTable(_) | Action::DropTable(_) => return false,
    };
    is_several == matches!(row.shape, Shape::Versions | Shape::Numbers | Shape::Values)
        || matches!(outcome, Outcome::Overflow(_) | Outcome::NotANumber(_)) && row.shape == Shape::Numbers
}

/// The parts of an operation, by key; `None`: the result does not fit the operation at all.
fn key_parts<'h>(action: &'h Action, outcome: Option<&Outcome>) -> Option<Vec<(&'h [u8], Part<'h>, KeyTold)>> {
    let Some(operation) = action.operation() else { return Some(Vec::new()) };
    let parts = parts(&operation);
    if parts.is_empty() {
        return Some(Vec::new()); // a listing, which is no operation on keys
    }
    if outcome.is_none() && matches!(operation, Part::Read(_)) {
        return Some(Vec::new());
    }
    if outcome.is_some_and(|outcome| !is_shaped(action, outcome)) {
        return None;
    }
    let told = split(outcome, parts.len())?;
    Some(parts.into_iter().zip(told).map(|((key, part), told)| (key, part, told)).collect())
}

/// Checks every key of a history.
#[must_use]
pub fn check(history: &History) -> Checked {
    let mut checked = Checked::default();
    let mut by_key: BTreeMap<&[u8], Vec<KeyOperation<'_>>> = BTreeMap::new();
    let mut groups: BTreeMap<(u64, &Action), KeyGroup> = BTreeMap::new();
    // Keys on which an operation-key group may run again are not searched: nobody can say which run had which result.
    let expiring = history.operations().iter().filter(|operation| operation.expiring);
    let skipped: BTreeSet<&[u8]> = expiring.flat_map(|operation| operation.action.keys()).collect();
    let elsewhere = strictly_serializable::keys(history);
    let elsewhere: BTreeSet<&[u8]> = elsewhere.iter().map(|(_, key)| &key[..]).collect();
    for operation in history.operations() {
        let outcome = match &operation.told {
            Told::Executed { outcome, .. } => Some(outcome),
            Told::Unknown => None,
            Told::NotExecuted | Told::TableDone(_) | Told::TableExists(_) | Told::TableNotFound => continue,
        };
        if operation.action.keys().iter().any(|key| skipped.contains(key) || elsewhere.contains(key)) {
            continue;
        }
        if let Some(group) = operation.group {
            groups.entry((group, &operation.action)).or_default().add(operation, outcome);
            continue;
        }
        add(
            &mut by_key,
            &mut checked,
            &operation.action,
            outcome,
            (operation.asked, operation.told_at),
            operation.client,
        );
    }
    for ((_, action), group) in groups {
        // Another action ran under this operation key: this one never ran, and never will.
        if group.is_mismatch {
            continue;
        }
        let Some((client, asked)) = group.first else { continue };
        let outcome = group.told.as_ref().map(|(_, outcome)| outcome);
        let told_at = group.told.as_ref().map(|&(at, _)| at);
        add(&mut by_key, &mut checked, action, outcome, (asked, told_at), client);
    }
    for (key, mut operations) in by_key {
        operations.sort_by_key(|operation| operation.asked);
        (0..).zip(&mut operations).for_each(|(number, operation)| operation.number = number);
        let giving = operations.iter().filter(|operation| gives_end(&operation.part));
        let ends: Vec<_> = giving.map(|by| KeyOperation { told_at: None, is_end: true, ..by.clone() }).collect();
        operations.extend(ends);
        checked.add(&check_key(&operations), || {
            let key = String::from_utf8_lossy(key).into_owned();
            format!("linearizable_keys: no order explains key {key}:{}", described(&operations))
        });
    }
    checked
}

/// Operations with one action and one operation key. They are one update, asked for when the first of them was asked
/// for, and done when the first was told.
#[derive(Default)]
struct KeyGroup {
    first: Option<(usize, SimTime)>,
    told: Option<(SimTime, Outcome)>,
    is_mismatch: bool,
}

impl KeyGroup {
    fn add(&mut self, operation: &crate::history::Operation, outcome: Option<&Outcome>) {
        self.first.get_or_insert((operation.client, operation.asked));
        self.is_mismatch |= operation.told.is_mismatch();
        if let (Some(at), Some(outcome)) = (operation.told_at, outcome)
            && self.told.as_ref().is_none_or(|&(before, _)| at < before)
        {
            self.told = Some((at, outcome.clone()));
        }
    }
}

fn add<'h>(
    by_key: &mut BTreeMap<&'h [u8], Vec<KeyOperation<'h>>>,
    checked: &mut Checked,
    action: &'h Action,
    outcome: Option<&Outcome>,
    (asked, told_at): (SimTime, Option<SimTime>),
    client: usize,
) {
    match key_parts(action, outcome) {
        Some(parts) => {
            for (key, part, told) in parts {
                let operation = KeyOperation { part, told, client, asked, told_at, number: 0, is_end: false };
                by_key.entry(key).or_default().push(operation);
            }
        }
        None => checked.violations.push(format!("linearizable_keys: {action:?} cannot come to {outcome:?}")),
    }
}

#[cfg(test)]
mod tests {
    use kasha_wire::Update;
    use kasha_wire::operation::Condition;

    use super::*;

    fn done(outcome: Outcome) -> Told {
        Told::Executed { outcome, bytes: Vec::new() }
    }

    fn history(operations: &[(Action, u64, u64, Told)]) -> History {
        let mut history = History::default();
        for (action, asked, told_at, told) in operations {
            let id = history.ask(0, action.clone(), None, SimTime(*asked));
            history.tell(id, told.clone(), SimTime(*told_at)).expect("told once");
        }
        history
    }

    fn is_fine(operations: &[(Action, u64, u64, Told)]) -> bool {
        let checked = check(&history(operations));
        assert_eq!(checked.inconclusive, 0);
        checked.violations.is_empty()
    }

    fn put(value: &str) -> Action {
        Action::put(b"k", value.as_bytes())
    }

    fn get() -> Action {
        Action::get(b"k")
    }

    fn value(version: u64, value: &str) -> Told {
        done(Outcome::Value(version, value.into()))
    }

    #[test]
    fn a_stale_read_is_found() {
        let put_both = [(put("a"), 0, 1, done(Outcome::Version(1))), (put("b"), 2, 3, done(Outcome::Version(2)))];
        let [a, b] = put_both;
        assert!(is_fine(&[a.clone(), b.clone(), (get(), 4, 5, value(2, "b"))]));
        assert!(!is_fine(&[a.clone(), b.clone(), (get(), 4, 5, value(1, "a"))]));
        assert!(is_fine(&[a, b, (get(), 1, 5, value(1, "a"))]), "asked before b was told");
    }

    #[test]
    fn a_lost_update_is_found() {
        let lost = [(put("a"), 0, 1, done(Outcome::Version(1))), (get(), 2, 3, done(Outcome::NotFound))];
        assert!(!is_fine(&lost));
        let unknown = [(put("a"), 0, 1, Told::Unknown), (get(), 2, 3, done(Outcome::NotFound))];
        assert!(is_fine(&unknown));
    }

    #[test]
    fn an_unknown_update_takes_effect_at_any_later_time_but_once() {
        let late = [
            (put("a"), 0, 1, Told::Unknown),
            (get(), 2, 3, done(Outcome::NotFound)),
            (put("b"), 4, 5, done(Outcome::Version(1))),
            (get(), 6, 7, value(2, "a")),
        ];
        assert!(is_fine(&late));
        let back = [&late[..], &[(put("c"), 8, 9, done(Outcome::Version(3))), (get(), 10, 11, value(4, "a"))]].concat();
        assert!(!is_fine(&back), "it would have run twice");
    }

    #[test]
    fn what_was_certainly_not_executed_is_seen_by_nobody() {
        assert!(!is_fine(&[(put("a"), 0, 1, Told::NotExecuted), (get(), 2, 3, value(1, "a"))]));
    }

    #[test]
    fn an_increment_that_ran_twice_is_found() {
        let increment = |asked, value| {
            let told = done(Outcome::Number(value, u64::try_from(value).expect("small")));
            (Action::count(b"k"), asked, asked + 1, told)
        };
        assert!(is_fine(&[increment(0, 1), increment(2, 2), increment(4, 3)]));
        assert!(!is_fine(&[increment(0, 1), increment(2, 3)]));
        assert!(!is_fine(&[increment(0, 1), increment(2, 1)]));
    }

    #[test]
    fn versions_only_grow() {
        let again = [(put("a"), 0, 1, done(Outcome::Version(5))), (put("b"), 2, 3, done(Outcome::Version(5)))];
        assert!(!is_fine(&again));
        let delete = (Action::from(Update::delete(b"k")), 2, 3, done(Outcome::Version(5)));
        let first = again[0].clone();
        assert!(!is_fine(&[first.clone(), delete.clone(), (put("c"), 4, 5, done(Outcome::Version(1)))]));
        assert!(is_fine(&[first, delete, (put("c"), 4, 5, done(Outcome::Version(7)))]));
    }

    #[test]
    fn a_value_that_ends_does_so_once_and_for_good() {
        let lifetime = kasha_wire::operation::Lifetime::from_millis(5).expect("not 0");
        let put = Action::from(Update::put_expiring(b"k", lifetime, b"a"));
        let first = (put, 0, 1, done(Outcome::Version(1)));
        let read = |asked, told| (get(), asked, asked + 1, told);
        let (there, gone) = (|at| read(at, value(1, "a")), |at| read(at, done(Outcome::NotFound)));
        assert!(is_fine(&[first.clone(), there(2), gone(4), gone(6)]));
        assert!(is_fine(&[first.clone(), there(2), there(4)]));
        assert!(!is_fine(&[first.clone(), gone(2), there(4)]), "it came back");
        let kept = (Action::from(Update::persist(b"k")), 2, 3, done(Outcome::Version(2)));
        assert!(!is_fine(&[first.clone(), kept, gone(4)]), "it has no end any more");
        let ttl =
            |ends| (Action::from(kasha_wire::Read::TimeToLive { key: b"k" }), 2, 3, done(Outcome::Expiry(1, ends)));
        assert!(is_fine(&[first.clone(), ttl(Some(kasha_types::ClusterTime(9)))]));
        assert!(!is_fine(&[first, ttl(None)]));
    }

    #[test]
    fn conditions_are_judged() {
        let put_if =
            |version, told| (Action::from(Update::put_if(b"k", Condition::Version(version), b"x")), 2, 3, told);
        let first = (put("a"), 0, 1, done(Outcome::Version(1)));
        assert!(is_fine(&[first.clone(), put_if(1, done(Outcome::Version(2)))]));
        assert!(!is_fine(&[first.clone(), put_if(9, done(Outcome::Version(2)))]));
        assert!(!is_fine(&[first.clone(), put_if(1, done(Outcome::ConditionFailed(1)))]));
        assert!(is_fine(&[first, put_if(9, done(Outcome::ConditionFailed(1)))]));
    }

    #[test]
    fn an_update_of_several_keys_appears_at_each() {
        let keys = |a: &str, b: &str| Action::multi_put([(&b"{k}k"[..], a.as_bytes()), (b"{k}l", b.as_bytes())]);
        let both = (keys("1", "2"), 0, 1, done(Outcome::Versions(vec![1, 1])));
        let other = |told| (Action::get(b"{k}l"), 2, 3, told);
        assert!(is_fine(&[both.clone(), other(value(1, "2"))]));
        assert!(!is_fine(&[both, other(done(Outcome::NotFound))]));
    }

    #[test]
    fn one_group_is_one_update() {
        let mut history = History::default();
        for (asked, told) in [(0, 5), (6, 9)] {
            let id = history.ask(0, Action::count(b"k"), Some(7), SimTime(asked));
            history.tell(id, done(Outcome::Number(1, 1)), SimTime(told)).expect("told once");
        }
        let id = history.ask(0, get(), None, SimTime(10));
        history.tell(id, value(1, "1"), SimTime(11)).expect("told once");
        assert_eq!(check(&history).violations, Vec::<String>::new());
    }

    #[test]
    fn many_concurrent_operations_are_searched_in_time() {
        let mut operations: Vec<(Action, u64, u64, Told)> = Vec::new();
        for index in 0..60u64 {
            let told = if index % 6 == 0 { Told::Unknown } else { done(Outcome::Version(index + 1)) };
            operations.push((put(&index.to_string()), index, index + 8, told));
        }
        assert!(is_fine(&operations));
    }
}
