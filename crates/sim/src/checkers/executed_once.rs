//! Executed once (E1): counters and tokens show how often each update ran.
//!
//! A counter that only ever grew by one shows its acknowledged increments, plus at most its unknown ones, and every
//! value was told to one increment only. A token is appended at most once, and exactly once if that was acknowledged.
//! Whoever repeats an operation key is told the same bytes (R4.9).

use std::collections::{BTreeMap, BTreeSet};

use kasha_wire::outcome::Outcome;

use crate::history::{Action, History, Key, Operation, Told};

/// Tokens end with it.
pub const TOKEN_END: u8 = b';';

#[derive(Default)]
struct Counter {
    told: i64,
    unknown: i64,
    values: BTreeSet<i64>,
    /// Some other kind of update wrote to it: not a counter.
    mixed: bool,
}

#[derive(Default)]
struct Tokens {
    told: BTreeSet<Vec<u8>>,
    unknown: BTreeSet<Vec<u8>>,
    mixed: bool,
}

/// Checks a history whose last reads of each key came after all updates were over.
#[must_use]
pub fn check(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    let updates = distinct_updates(history, &mut violations);
    let mut counters: BTreeMap<Key, Counter> = BTreeMap::new();
    let mut tokens: BTreeMap<Key, Tokens> = BTreeMap::new();
    for (action, told) in updates {
        match action {
            Action::Increment(key, delta) => {
                let number = match told {
                    Told::Executed { outcome: Outcome::Number(value, _), .. } => Some(*value),
                    Told::Executed { .. } | Told::NotExecuted => continue,
                    _ => None,
                };
                count(counters.entry(key.clone()).or_default(), key, *delta, number, &mut violations);
            }
            Action::MultiIncrement(deltas) => {
                for (index, (key, delta)) in deltas.iter().enumerate() {
                    let number = match told {
                        Told::Executed { outcome: Outcome::Numbers(numbers), .. } => numbers.get(index).map(|n| n.0),
                        Told::Executed { .. } | Told::NotExecuted => continue,
                        _ => None,
                    };
                    count(counters.entry(key.clone()).or_default(), key, *delta, number, &mut violations);
                }
            }
            Action::Append(key, token) => {
                let entry = tokens.entry(key.clone()).or_default();
                match told {
                    Told::Executed { outcome: Outcome::Length(..), .. } => drop(entry.told.insert(token.clone())),
                    Told::Executed { .. } | Told::NotExecuted => {}
                    _ => drop(entry.unknown.insert(token.clone())),
                }
            }
            other if other.is_read() => {}
            other => {
                for key in other.keys() {
                    counters.entry(key.clone()).or_default().mixed = true;
                    tokens.entry(key.clone()).or_default().mixed = true;
                }
            }
        }
    }
    for (key, value) in last_values(history) {
        let name = String::from_utf8_lossy(&key);
        if let Some(counter) = counters.get(&key).filter(|counter| !counter.mixed && !tokens.contains_key(&key)) {
            let shown: i64 = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            if shown < counter.told || shown > counter.told + counter.unknown {
                violations.push(format!(
                    "executed_once: counter {name} shows {shown}, but {} increments were told and {} are unknown",
                    counter.told, counter.unknown
                ));
            }
        }
        if let Some(tokens) = tokens.get(&key).filter(|tokens| !tokens.mixed && !counters.contains_key(&key)) {
            check_tokens(&name, &value, tokens, &mut violations);
        }
    }
    violations
}

fn count(counter: &mut Counter, key: &Key, delta: i64, number: Option<i64>, violations: &mut Vec<String>) {
    match number {
        Some(value) => {
            counter.told += delta;
            counter.mixed |= delta != 1;
            if delta == 1 && !counter.mixed && !counter.values.insert(value) {
                let name = String::from_utf8_lossy(key);
                violations.push(format!("executed_once: two increments of {name} were told {value}"));
            }
        }
        None => counter.unknown += delta,
    }
}

fn check_tokens(name: &str, value: &[u8], tokens: &Tokens, violations: &mut Vec<String>) {
    let mut found: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for token in value.split_inclusive(|&byte| byte == TOKEN_END) {
        *found.entry(token.to_vec()).or_default() += 1;
    }
    for (token, times) in &found {
        let token_name = String::from_utf8_lossy(token);
        if *times > 1 {
            violations.push(format!("executed_once: {name} holds {token_name} {times} times"));
        }
        if !tokens.told.contains(token) && !tokens.unknown.contains(token) {
            violations.push(format!("executed_once: {name} holds {token_name}, which was certainly not executed"));
        }
    }
    for token in tokens.told.iter().filter(|token| !found.contains_key(*token)) {
        violations.push(format!("executed_once: {name} has lost {}", String::from_utf8_lossy(token)));
    }
}

/// Each update once: those of a group are one, told what any of them was told, which must be the same for all.
fn distinct_updates<'a>(history: &'a History, violations: &mut Vec<String>) -> Vec<(&'a Action, &'a Told)> {
    let mut groups: BTreeMap<u64, &Operation> = BTreeMap::new();
    let mut all = Vec::new();
    for operation in history.operations() {
        let Some(group) = operation.group else {
            all.push((&operation.action, &operation.told));
            continue;
        };
        let known = groups.entry(group).or_insert(operation);
        let is_told = |operation: &Operation| matches!(operation.told, Told::Executed { .. });
        if is_told(known) && is_told(operation) && known.told != operation.told {
            violations.push(format!(
                "executed_once: operation key {group} was answered {:?} and {:?} (R4.9)",
                known.told, operation.told
            ));
        }
        let rank = |operation: &Operation| match operation.told {
            Told::Executed { .. } => 2,
            Told::NotExecuted => 0,
            _ => 1,
        };
        if rank(operation) > rank(known) {
            *known = operation;
        }
    }
    all.extend(groups.into_values().map(|operation| (&operation.action, &operation.told)));
    all
}

/// What the last get of each key, asked for after every update had been told or given up, showed.
fn last_values(history: &History) -> BTreeMap<Key, Vec<u8>> {
    let last_update = history.operations().iter().filter(|operation| !operation.action.is_read());
    let quiet = last_update.map(|operation| operation.told_at.unwrap_or(operation.asked)).max();
    let mut values = BTreeMap::new();
    for operation in history.operations() {
        if let (Action::Get(key), Told::Executed { outcome, .. }) = (&operation.action, &operation.told)
            && quiet.is_none_or(|quiet| operation.asked >= quiet)
        {
            match outcome {
                Outcome::Value(_, value) => values.insert(key.clone(), value.clone()),
                _ => values.insert(key.clone(), Vec::new()),
            };
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimTime;

    fn run(updates: &[(Action, Option<u64>, Told)], last: &str) -> Vec<String> {
        let mut history = History::default();
        for (at, (action, group, told)) in (0u64..).zip(updates) {
            let id = history.ask(0, action.clone(), *group, SimTime(at));
            history.tell(id, told.clone(), SimTime(at)).expect("told once");
        }
        let id = history.ask(0, Action::Get(b"k".to_vec()), None, SimTime(1000));
        let outcome = Outcome::Value(1, last.into());
        history.tell(id, Told::Executed { outcome, bytes: Vec::new() }, SimTime(1001)).expect("told once");
        check(&history)
    }

    fn increment(value: Option<i64>) -> (Action, Option<u64>, Told) {
        let told = value.map_or(Told::Unknown, |value| {
            let outcome = Outcome::Number(value, 1);
            Told::Executed { bytes: value.to_le_bytes().to_vec(), outcome }
        });
        (Action::Increment(b"k".to_vec(), 1), None, told)
    }

    fn append(token: &str, told: bool) -> (Action, Option<u64>, Told) {
        let outcome = Outcome::Length(1, 1);
        let told = if told { Told::Executed { outcome, bytes: Vec::new() } } else { Told::Unknown };
        (Action::Append(b"k".to_vec(), token.into()), None, told)
    }

    #[test]
    fn increments_are_counted() {
        let updates = [increment(Some(1)), increment(None), increment(Some(2))];
        assert!(run(&updates, "2").is_empty());
        assert!(run(&updates, "3").is_empty());
        assert_eq!(run(&updates, "4").len(), 1);
        assert_eq!(run(&updates, "1").len(), 1);
        assert_eq!(run(&[increment(Some(1)), increment(Some(1))], "2").len(), 1, "one value told twice");
    }

    #[test]
    fn tokens_are_found_once() {
        let updates = [append("a;", true), append("b;", false)];
        assert!(run(&updates, "a;").is_empty());
        assert!(run(&updates, "b;a;").is_empty());
        assert_eq!(run(&updates, "b;").len(), 1, "lost");
        assert_eq!(run(&updates, "a;b;b;").len(), 1, "twice");
        assert_eq!(run(&updates, "a;c;").len(), 1, "never asked for");
    }

    #[test]
    fn an_operation_key_is_answered_alike() {
        let with_group = |value| {
            let (action, _, told) = increment(Some(value));
            (action, Some(9), told)
        };
        assert!(run(&[with_group(1), with_group(1)], "1").is_empty());
        assert_eq!(run(&[with_group(1), with_group(2)], "1").len(), 1);
        assert_eq!(run(&[with_group(1), with_group(1)], "2").len(), 1);
    }
}
