//! Linearizability of each key (E1, E2, D1, F1): is there an order of its operations, agreeing with who was told before
//! whom asked, in which every result is right?
//!
//! Linearizability is local, so each key is searched alone; an update of several keys appears at each with its part of
//! the result. Versions: each change's is greater than all before it; an unknown change's is not known until someone
//! reads it.

use std::collections::{BTreeMap, BTreeSet};

use kasha_wire::outcome::Outcome;

use crate::checkers::order::{Checked, Found, Step, search};
use crate::clock::SimTime;
use crate::history::{Action, History, Key, Told, Value};

/// One key's part of an operation. `None` results: unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Put { value: Value, version: Option<u64> },
    PutIf { expected: Option<u64>, value: Value, result: Option<Result<u64, u64>> },
    Delete { result: Option<Result<u64, ()>> },
    DeleteIf { expected: u64, result: Option<Result<u64, Option<u64>>> },
    MultiDelete { was_there: Option<bool> },
    Increment { delta: i64, result: Option<Result<(i64, u64), IncrementFailed>> },
    Append { value: Value, result: Option<(u64, u64)> },
    Get { result: Option<(u64, Value)> },
    Exists { result: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IncrementFailed {
    Overflow,
    NotANumber,
    /// Another key of the same update failed: nothing changed here.
    Elsewhere,
}

#[derive(Clone, Debug)]
struct KeyOperation {
    part: Part,
    client: usize,
    asked: SimTime,
    told_at: Option<SimTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Version {
    Exactly(u64),
    Above(u64),
}

impl Version {
    /// The least that the next change's version is above.
    fn floor(self) -> u64 {
        match self {
            Self::Exactly(version) => version,
            Self::Above(version) => version + 1,
        }
    }

    fn may_be(self, version: u64) -> bool {
        match self {
            Self::Exactly(own) => own == version,
            Self::Above(floor) => version > floor,
        }
    }

    /// After a change whose version is known or not.
    fn changed(self, version: Option<u64>) -> Option<Self> {
        match version {
            Some(version) => (version > self.floor()).then_some(Self::Exactly(version)),
            None => Some(Self::Above(self.floor())),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    value: Option<Value>,
    version: Version,
}

fn number(value: Option<&Value>) -> Option<i64> {
    value.map_or(Some(0), |value| std::str::from_utf8(value).ok()?.parse().ok())
}

impl State {
    fn with(&self, value: Option<Value>, version: Option<u64>) -> Option<Self> {
        Some(Self { value, version: self.version.changed(version)? })
    }

    fn bound(&self, version: u64) -> Option<Self> {
        let may_be = self.version.may_be(version);
        may_be.then(|| Self { value: self.value.clone(), version: Version::Exactly(version) })
    }

    fn unchanged_if(&self, condition: bool) -> Option<Self> {
        condition.then(|| self.clone())
    }

    /// The state after an operation; `None`: it cannot have had its result here.
    fn after(&self, part: &Part) -> Option<Self> {
        let absent = self.value.is_none();
        match part {
            Part::Put { value, version } => self.with(Some(value.clone()), *version),
            // Version 0 stands for "absent".
            Part::PutIf { expected: None | Some(0), value, result } => match result {
                Some(Ok(version)) if absent => self.with(Some(value.clone()), Some(*version)),
                None if absent => self.with(Some(value.clone()), None),
                Some(Err(current)) if !absent => self.bound(*current),
                None => Some(self.clone()),
                Some(_) => None,
            },
            Part::PutIf { expected: Some(expected), value, result } => match result {
                Some(Ok(version)) if !absent => self.bound(*expected)?.with(Some(value.clone()), Some(*version)),
                Some(Err(0)) => self.unchanged_if(absent),
                Some(Err(current)) if !absent && current != expected => self.bound(*current),
                Some(_) => None,
                None if !absent => match self.bound(*expected) {
                    Some(state) => state.with(Some(value.clone()), None),
                    None => Some(self.clone()),
                },
                None => Some(self.clone()),
            },
            Part::Delete { result } => match result {
                Some(Ok(version)) if !absent => self.bound(*version)?.with(None, None),
                Some(Err(())) => self.unchanged_if(absent),
                Some(_) => None,
                None if absent => Some(self.clone()),
                None => self.with(None, None),
            },
            Part::DeleteIf { expected, result } => match result {
                Some(Ok(version)) if !absent && version == expected => self.bound(*version)?.with(None, None),
                Some(Err(None)) => self.unchanged_if(absent),
                Some(Err(Some(current))) if !absent && current != expected => self.bound(*current),
                Some(Err(Some(0))) => self.unchanged_if(absent),
                Some(_) => None,
                None if absent => Some(self.clone()),
                None => match self.bound(*expected) {
                    Some(state) => state.with(None, None),
                    None => Some(self.clone()),
                },
            },
            Part::MultiDelete { was_there } => match was_there {
                Some(was_there) if *was_there == absent => None,
                _ if absent => Some(self.clone()),
                _ => self.with(None, None),
            },
            Part::Increment { delta, result } => {
                let sum = number(self.value.as_ref()).map(|before| before.checked_add(*delta));
                match (result, sum) {
                    (Some(Ok((value, version))), Some(Some(sum))) if *value == sum => {
                        self.with(Some(sum.to_string().into_bytes()), Some(*version))
                    }
                    (None, Some(Some(sum))) => self.with(Some(sum.to_string().into_bytes()), None),
                    (Some(Err(IncrementFailed::Overflow)), Some(None))
                    | (Some(Err(IncrementFailed::NotANumber)), None)
                    | (Some(Err(IncrementFailed::Elsewhere)) | None, _) => Some(self.clone()),
                    (Some(_), _) => None,
                }
            }
            Part::Append { value, result } => {
                let mut all = self.value.clone().unwrap_or_default();
                all.extend_from_slice(value);
                match result {
                    Some((length, version)) if *length == all.len() as u64 => self.with(Some(all), Some(*version)),
                    Some(_) => None,
                    None => self.with(Some(all), None),
                }
            }
            Part::Get { result: None } => self.unchanged_if(absent),
            Part::Get { result: Some((version, value)) } => {
                if self.value.as_ref() == Some(value) {
                    self.bound(*version)
                } else {
                    None
                }
            }
            Part::Exists { result } => self.unchanged_if(*result != absent),
        }
    }
}

impl Step for KeyOperation {
    type State = State;

    fn asked(&self) -> SimTime {
        self.asked
    }

    fn told_at(&self) -> Option<SimTime> {
        self.told_at
    }

    fn after(&self, state: &State) -> Option<State> {
        state.after(&self.part)
    }
}

/// Searches one key's operations.
fn check_key(operations: &[KeyOperation]) -> Found {
    search(operations, &State { value: None, version: Version::Exactly(0) })
}

/// The operations, for a person.
fn described(operations: &[KeyOperation]) -> String {
    let mut text = String::new();
    for operation in operations {
        let told = operation.told_at.map_or("unknown".to_owned(), |at| at.to_string());
        text +=
            &format!("\n    client {} {} .. {told}  {}", operation.client, operation.asked, describe(&operation.part));
    }
    text
}

fn describe(part: &Part) -> String {
    let text = format!("{part:?}");
    let mut out = String::new();
    let mut rest = text.as_str();
    // Values are printable bytes: show them as text.
    while let Some(open) = rest.find('[') {
        let Some(close) = rest[open..].find(']').map(|at| open + at) else { break };
        let bytes: Option<Vec<u8>> =
            rest[open + 1..close].split(", ").filter(|b| !b.is_empty()).map(|b| b.parse().ok()).collect();
        out += &rest[..open];
        match bytes {
            Some(bytes) if bytes.len() > 40 => {
                out += &format!("{:?}… ({} bytes)", String::from_utf8_lossy(&bytes[..16]), bytes.len());
            }
            Some(bytes) => out += &format!("{:?}", String::from_utf8_lossy(&bytes)),
            None => out += &rest[open..=close],
        }
        rest = &rest[close + 1..];
    }
    out + rest
}

/// The parts of an operation, by key; `None`: its result does not fit the operation at all.
fn parts(action: &Action, outcome: Option<&Outcome>) -> Option<Vec<(Key, Part)>> {
    let one = |key: &Key, part| Some(vec![(key.clone(), part)]);
    let version = match outcome {
        Some(Outcome::Version(version)) => Some(*version),
        _ => None,
    };
    match (action, outcome) {
        (Action::Put(key, value), Some(Outcome::Version(_)) | None) => {
            one(key, Part::Put { value: value.clone(), version })
        }
        (Action::PutIfVersion(key, expected, value), _) => {
            let result = match outcome {
                None => None,
                Some(Outcome::Version(version)) => Some(Ok(*version)),
                Some(Outcome::ConditionFailed(current)) => Some(Err(*current)),
                Some(_) => return None,
            };
            one(key, Part::PutIf { expected: Some(*expected), value: value.clone(), result })
        }
        (Action::PutIfAbsent(key, value), _) => {
            let result = match outcome {
                None => None,
                Some(Outcome::Version(version)) => Some(Ok(*version)),
                Some(Outcome::ConditionFailed(current)) => Some(Err(*current)),
                Some(_) => return None,
            };
            one(key, Part::PutIf { expected: None, value: value.clone(), result })
        }
        (Action::Delete(key), None) => one(key, Part::Delete { result: None }),
        (Action::Delete(key), Some(Outcome::Version(version))) => one(key, Part::Delete { result: Some(Ok(*version)) }),
        (Action::Delete(key), Some(Outcome::NotFound)) => one(key, Part::Delete { result: Some(Err(())) }),
        (Action::DeleteIfVersion(key, expected), _) => {
            let result = match outcome {
                None => None,
                Some(Outcome::Version(version)) => Some(Ok(*version)),
                Some(Outcome::NotFound) => Some(Err(None)),
                Some(Outcome::ConditionFailed(current)) => Some(Err(Some(*current))),
                Some(_) => return None,
            };
            one(key, Part::DeleteIf { expected: *expected, result })
        }
        (Action::Increment(key, delta), _) => {
            let result = match outcome {
                None => None,
                Some(Outcome::Number(value, version)) => Some(Ok((*value, *version))),
                Some(Outcome::Overflow(_)) => Some(Err(IncrementFailed::Overflow)),
                Some(Outcome::NotANumber(_)) => Some(Err(IncrementFailed::NotANumber)),
                Some(_) => return None,
            };
            one(key, Part::Increment { delta: *delta, result })
        }
        (Action::Append(key, value), _) => {
            let result = match outcome {
                None => None,
                Some(Outcome::Length(length, version)) => Some((*length, *version)),
                Some(_) => return None,
            };
            one(key, Part::Append { value: value.clone(), result })
        }
        (Action::MultiPut(pairs), _) => {
            let versions = match outcome {
                None => vec![None; pairs.len()],
                Some(Outcome::Versions(versions)) => versions.iter().copied().map(Some).collect(),
                Some(_) => return None,
            };
            (versions.len() == pairs.len()).then(|| {
                let put = |((key, value), version): (&(Key, Value), Option<u64>)| {
                    (key.clone(), Part::Put { value: value.clone(), version })
                };
                pairs.iter().zip(versions).map(put).collect()
            })
        }
        (Action::MultiDelete(keys), _) => {
            let flags = match outcome {
                None => vec![None; keys.len()],
                Some(Outcome::Flags(flags)) => flags.iter().copied().map(Some).collect(),
                Some(_) => return None,
            };
            let delete = |(key, was_there): (&Key, _)| (key.clone(), Part::MultiDelete { was_there });
            (flags.len() == keys.len()).then(|| keys.iter().zip(flags).map(delete).collect())
        }
        (Action::MultiIncrement(deltas), _) => {
            let failed_at = |failed: u32, how| {
                let at = |index| if index == failed as usize { how } else { IncrementFailed::Elsewhere };
                (0..deltas.len()).map(|index| Some(Err(at(index)))).collect()
            };
            let results: Vec<Option<Result<(i64, u64), IncrementFailed>>> = match outcome {
                None => vec![None; deltas.len()],
                Some(Outcome::Numbers(numbers)) => numbers.iter().map(|&number| Some(Ok(number))).collect(),
                Some(Outcome::Overflow(index)) => failed_at(*index, IncrementFailed::Overflow),
                Some(Outcome::NotANumber(index)) => failed_at(*index, IncrementFailed::NotANumber),
                Some(_) => return None,
            };
            let part =
                |((key, delta), result): (&(Key, i64), _)| (key.clone(), Part::Increment { delta: *delta, result });
            (results.len() == deltas.len()).then(|| deltas.iter().zip(results).map(part).collect())
        }
        (Action::Get(key), Some(Outcome::Value(version, value))) => {
            one(key, Part::Get { result: Some((*version, value.clone())) })
        }
        (Action::Get(key), Some(Outcome::NotFound)) => one(key, Part::Get { result: None }),
        (Action::Exists(key), Some(Outcome::Flags(flags))) => one(key, Part::Exists { result: *flags.first()? }),
        (Action::MultiGet(keys), Some(Outcome::Values(values))) => {
            let get = |(key, value): (&Key, &Option<(u64, Value)>)| (key.clone(), Part::Get { result: value.clone() });
            (values.len() == keys.len()).then(|| keys.iter().zip(values).map(get).collect())
        }
        (Action::Get(_) | Action::Exists(_) | Action::MultiGet(_), None)
        | (Action::CreateTable(_) | Action::DropTable(_), _) => Some(Vec::new()),
        (Action::Put(..) | Action::Delete(_) | Action::Get(_) | Action::Exists(_) | Action::MultiGet(_), Some(_)) => {
            None
        }
    }
}

/// Checks every key of a history.
#[must_use]
pub fn check(history: &History) -> Checked {
    let mut checked = Checked::default();
    let mut by_key: BTreeMap<Key, Vec<KeyOperation>> = BTreeMap::new();
    let mut groups: BTreeMap<(u64, &Action), KeyGroup> = BTreeMap::new();
    // Keys on which a group may run again are not searched: who can tell which run came to which result?
    let expiring = history.operations().iter().filter(|operation| operation.expiring);
    let skipped: BTreeSet<&Key> = expiring.flat_map(|operation| operation.action.keys()).collect();
    for operation in history.operations() {
        let outcome = match &operation.told {
            Told::Executed { outcome, .. } => Some(outcome),
            Told::Unknown => None,
            Told::NotExecuted | Told::TableDone(_) | Told::TableExists(_) | Told::TableNotFound => continue,
        };
        if operation.action.keys().iter().any(|key| skipped.contains(key)) {
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
        // Another action ran under this operation key: this one never did, and never will.
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
        checked.add(&check_key(&operations), || {
            let key = String::from_utf8_lossy(&key).into_owned();
            format!("linearizable_keys: no order explains key {key}:{}", described(&operations))
        });
    }
    checked
}

/// Operations with one action and one operation key: one update, asked for first by the first, and done when the first
/// was told.
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

fn add(
    by_key: &mut BTreeMap<Key, Vec<KeyOperation>>,
    checked: &mut Checked,
    action: &Action,
    outcome: Option<&Outcome>,
    (asked, told_at): (SimTime, Option<SimTime>),
    client: usize,
) {
    match parts(action, outcome) {
        Some(parts) => {
            for (key, part) in parts {
                by_key.entry(key).or_default().push(KeyOperation { part, client, asked, told_at });
            }
        }
        None => checked.violations.push(format!("linearizable_keys: {action:?} cannot come to {outcome:?}")),
    }
}

#[cfg(test)]
mod tests {
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
        Action::Put(b"k".to_vec(), value.into())
    }

    fn get() -> Action {
        Action::Get(b"k".to_vec())
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
            (Action::Increment(b"k".to_vec(), 1), asked, asked + 1, told)
        };
        assert!(is_fine(&[increment(0, 1), increment(2, 2), increment(4, 3)]));
        assert!(!is_fine(&[increment(0, 1), increment(2, 3)]));
        assert!(!is_fine(&[increment(0, 1), increment(2, 1)]));
    }

    #[test]
    fn versions_only_grow() {
        let again = [(put("a"), 0, 1, done(Outcome::Version(5))), (put("b"), 2, 3, done(Outcome::Version(5)))];
        assert!(!is_fine(&again));
        let delete = (Action::Delete(b"k".to_vec()), 2, 3, done(Outcome::Version(5)));
        let first = again[0].clone();
        assert!(!is_fine(&[first.clone(), delete.clone(), (put("c"), 4, 5, done(Outcome::Version(1)))]));
        assert!(is_fine(&[first, delete, (put("c"), 4, 5, done(Outcome::Version(7)))]));
    }

    #[test]
    fn conditions_are_judged() {
        let put_if = |version, told| (Action::PutIfVersion(b"k".to_vec(), version, b"x".to_vec()), 2, 3, told);
        let first = (put("a"), 0, 1, done(Outcome::Version(1)));
        assert!(is_fine(&[first.clone(), put_if(1, done(Outcome::Version(2)))]));
        assert!(!is_fine(&[first.clone(), put_if(9, done(Outcome::Version(2)))]));
        assert!(!is_fine(&[first.clone(), put_if(1, done(Outcome::ConditionFailed(1)))]));
        assert!(is_fine(&[first, put_if(9, done(Outcome::ConditionFailed(1)))]));
    }

    #[test]
    fn an_update_of_several_keys_appears_at_each() {
        let keys = |a: &str, b: &str| Action::MultiPut(vec![(b"k".to_vec(), a.into()), (b"l".to_vec(), b.into())]);
        let both = (keys("1", "2"), 0, 1, done(Outcome::Versions(vec![1, 1])));
        let other = |told| (Action::Get(b"l".to_vec()), 2, 3, told);
        assert!(is_fine(&[both.clone(), other(value(1, "2"))]));
        assert!(!is_fine(&[both, other(done(Outcome::NotFound))]));
    }

    #[test]
    fn one_group_is_one_update() {
        let mut history = History::default();
        for (asked, told) in [(0, 5), (6, 9)] {
            let id = history.ask(0, Action::Increment(b"k".to_vec(), 1), Some(7), SimTime(asked));
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
