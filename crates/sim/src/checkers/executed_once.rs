//! Executed once (E1): counters and tokens show how often each update ran.
//!
//! A counter that only ever grew by one shows its acknowledged increments, plus at most its unknown ones, and no value
//! was told to two increments. A token is appended at most once, and exactly once if that was acknowledged. Every
//! caller that repeats an operation key is told the same bytes, and a caller that uses the key for something else is
//! refused (R4.9). If an operation key's time to live is short, every request under it may have run, and requests that
//! were told different results did.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::slot_of;
use kasha_wire::operation::{Axes, Item};
use kasha_wire::outcome::Outcome;
use kasha_wire::{Read, Update};

use crate::history::{Action, DEFAULT_TABLE, History, Key, Operation, Told};

/// The byte at the end of each token.
pub const TOKEN_END: u8 = b';';

#[derive(Default)]
struct Counter {
    told: i64,
    unknown: i64,
    values: BTreeSet<i64>,
    /// Values that two increments were told. That is a violation unless another kind of update wrote in between.
    repeated: BTreeSet<i64>,
    /// Another kind of update wrote to the key, so it is not a counter.
    mixed: bool,
}

#[derive(Default)]
struct Tokens {
    told: BTreeSet<Vec<u8>>,
    unknown: BTreeSet<Vec<u8>>,
    /// Another kind of update wrote to the key, or something that is no token was appended: where it ends cannot be seen.
    mixed: bool,
}

/// Checks a history whose last reads of each key came after all updates were over.
#[must_use]
pub fn check(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    let updates = distinct_updates(history, &mut violations);
    let mut counters: BTreeMap<&[u8], Counter> = BTreeMap::new();
    let mut tokens: BTreeMap<&[u8], Tokens> = BTreeMap::new();
    leave_expiring(history, &mut counters, &mut tokens);
    for (action, told) in updates {
        let Some(update) = action.update() else { continue };
        match update {
            Update::Increment { key, delta, axes: Axes::NONE, .. } => {
                let number = match told {
                    Told::Executed { outcome: Outcome::Number(value, _), .. } => Some(*value),
                    Told::Executed { .. } | Told::NotExecuted => continue,
                    _ => None,
                };
                count(counters.entry(key).or_default(), delta, number);
            }
            Update::MultiIncrement { deltas } => {
                for (index, Item { key, delta, .. }) in deltas.iter().enumerate() {
                    let number = match told {
                        Told::Executed { outcome: Outcome::Numbers(numbers), .. } => numbers.get(index).map(|n| n.0),
                        Told::Executed { .. } | Told::NotExecuted => continue,
                        _ => None,
                    };
                    count(counters.entry(key).or_default(), delta, number);
                }
            }
            Update::Append { key, value: token, axes: Axes::NONE } => {
                let entry = tokens.entry(key).or_default();
                entry.mixed |= !token.ends_with(&[TOKEN_END]);
                match told {
                    Told::Executed { outcome: Outcome::Length(..), .. } => drop(entry.told.insert(token.to_vec())),
                    Told::Executed { .. } | Told::NotExecuted => {}
                    _ => drop(entry.unknown.insert(token.to_vec())),
                }
            }
            other => other.for_each_key(DEFAULT_TABLE, |_, key| {
                counters.entry(key).or_default().mixed = true;
                tokens.entry(key).or_default().mixed = true;
            }),
        }
    }
    for (key, counter) in counters.iter().filter(|(key, counter)| !counter.mixed && !tokens.contains_key(*key)) {
        let name = String::from_utf8_lossy(key);
        let repeated = counter.repeated.iter();
        violations.extend(repeated.map(|value| format!("executed_once: two increments of {name} were told {value}")));
    }
    let last = last_values(history);
    check_expiring(history, &last, &mut violations);
    for (key, value) in last {
        let name = String::from_utf8_lossy(&key);
        let key = &key[..];
        if let Some(counter) = counters.get(key).filter(|counter| !counter.mixed && !tokens.contains_key(key)) {
            let shown = number(&value);
            if shown < counter.told || shown > counter.told + counter.unknown {
                violations.push(format!(
                    "executed_once: counter {name} shows {shown}, but {} increments were told and {} are unknown",
                    counter.told, counter.unknown
                ));
            }
        }
        if let Some(tokens) = tokens.get(key).filter(|tokens| !tokens.mixed && !counters.contains_key(key)) {
            check_tokens(&name, &value, tokens, &mut violations);
        }
    }
    violations
}

/// How often these ran is another check's, and only of counters of their own.
fn leave_expiring<'h>(
    history: &'h History,
    counters: &mut BTreeMap<&'h [u8], Counter>,
    tokens: &mut BTreeMap<&'h [u8], Tokens>,
) {
    for key in history.operations().iter().filter(|operation| operation.expiring).flat_map(|it| it.action.keys()) {
        counters.entry(key).or_default().mixed = true;
        tokens.entry(key).or_default().mixed = true;
    }
}

fn count(counter: &mut Counter, delta: i64, number: Option<i64>) {
    match number {
        Some(value) => {
            counter.told += delta;
            counter.mixed |= delta != 1;
            if delta == 1 && !counter.values.insert(value) {
                counter.repeated.insert(value);
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

/// Each update once. Requests of one operation-key group with one action are one update: all must be told the same, and
/// this update is told what any of them was told. Only one action of a group may run.
fn distinct_updates<'a>(history: &'a History, violations: &mut Vec<String>) -> Vec<(&'a Action, &'a Told)> {
    let mut groups: BTreeMap<(u64, &Action), &Operation> = BTreeMap::new();
    let mut all = Vec::new();
    for operation in history.operations() {
        let Some(group) = operation.group.filter(|_| !operation.expiring) else {
            if !operation.expiring {
                all.push((&operation.action, &operation.told));
            }
            continue;
        };
        let known = groups.entry((group, &operation.action)).or_insert(operation);
        if rank(known) >= 2 && rank(operation) >= 2 && known.told != operation.told {
            violations.push(format!(
                "executed_once: operation key {group} was answered {:?} and {:?} (R4.9)",
                known.told, operation.told
            ));
        }
        if rank(operation) > rank(known) {
            *known = operation;
        }
    }
    check_groups(&groups, violations);
    let told =
        |operation: &'a Operation| if operation.told.is_mismatch() { &Told::NotExecuted } else { &operation.told };
    all.extend(groups.into_values().map(|operation| (&operation.action, told(operation))));
    all
}

/// How much a client knows of an update: nothing, perhaps something, that it was refused, its result.
fn rank(operation: &Operation) -> u8 {
    match operation.told {
        Told::NotExecuted => 0,
        Told::Executed { .. } if operation.told.is_mismatch() => 2,
        Told::Executed { .. } => 3,
        Told::Unknown | Told::TableDone(_) | Told::TableExists(_) | Told::TableNotFound => 1,
    }
}

fn check_groups(groups: &BTreeMap<(u64, &Action), &Operation>, violations: &mut Vec<String>) {
    let mut by_group: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for ((group, _), operation) in groups {
        by_group.entry(*group).or_default().push(operation);
    }
    for (group, operations) in by_group {
        let count = |wanted: u8| operations.iter().filter(|operation| rank(operation) == wanted).count();
        if count(3) > 1 {
            violations.push(format!("executed_once: operation key {group} ran {} actions (R4.9)", count(3)));
        }
        // Over several shards: one shard may have kept that a check failed, though another one met something else, and the client was
        // told that.
        let is_kept = |operation: &&&Operation| {
            let slots: BTreeSet<_> = operation.action.keys().into_iter().map(slot_of).collect();
            operation.told == Told::NotExecuted && slots.len() > 1
        };
        if count(2) > 0 && count(3) + count(1) == 0 && !operations.iter().any(|operation| is_kept(&operation)) {
            violations.push(format!("executed_once: operation key {group} was called used, but nothing ran (R4.9)"));
        }
    }
}

/// The results that were told, each with its operation key, and how often the update may have run at most.
type Runs<'h> = (BTreeSet<(u64, &'h [u8])>, i64);

/// Counters whose operation keys may run again. Each told result is one run, and each request is at most one run.
fn check_expiring(history: &History, last: &BTreeMap<Key, Vec<u8>>, violations: &mut Vec<String>) {
    let mut runs: BTreeMap<&[u8], Runs<'_>> = BTreeMap::new();
    for operation in history.operations().iter().filter(|operation| operation.expiring) {
        let (Some(Update::Increment { key, delta: 1, .. }), Some(group)) = (operation.action.update(), operation.group)
        else {
            continue;
        };
        let (told, most) = runs.entry(key).or_default();
        if let Told::Executed { bytes, .. } = &operation.told {
            told.insert((group, bytes));
        }
        *most += i64::from(operation.told != Told::NotExecuted);
    }
    for (key, (told, most)) in runs {
        let Some(shown) = last.get(key).map(|value| number(value)) else { continue };
        let least = i64::try_from(told.len()).expect("few");
        if shown < least || shown > most {
            let name = String::from_utf8_lossy(key);
            violations.push(format!(
                "executed_once: counter {name} shows {shown}; {least} runs were told, and {most} may have run"
            ));
        }
    }
}

fn number(value: &[u8]) -> i64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The result of the last get of each key, which was asked for after every update had been told or given up.
fn last_values(history: &History) -> BTreeMap<Key, Vec<u8>> {
    let last_update = history.operations().iter().filter(|operation| !operation.action.is_read());
    let quiet = last_update.map(|operation| operation.told_at.unwrap_or(operation.asked)).max();
    let mut values = BTreeMap::new();
    for operation in history.operations() {
        if let (Some(Read::Get { key }), Told::Executed { outcome, .. }) = (operation.action.read(), &operation.told)
            && quiet.is_none_or(|quiet| operation.asked >= quiet)
        {
            match outcome {
                Outcome::Value(_, value) => values.insert(key.to_vec(), value.clone()),
                _ => values.insert(key.to_vec(), Vec::new()),
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
        let id = history.ask(0, Action::get(b"k"), None, SimTime(1000));
        let outcome = Outcome::Value(1, last.into());
        history.tell(id, Told::Executed { outcome, bytes: Vec::new() }, SimTime(1001)).expect("told once");
        check(&history)
    }

    fn increment(value: Option<i64>) -> (Action, Option<u64>, Told) {
        let told = value.map_or(Told::Unknown, |value| {
            let outcome = Outcome::Number(value, 1);
            Told::Executed { bytes: value.to_le_bytes().to_vec(), outcome }
        });
        (Action::count(b"k"), None, told)
    }

    fn append(token: &str, told: bool) -> (Action, Option<u64>, Told) {
        let outcome = Outcome::Length(1, 1);
        let told = if told { Told::Executed { outcome, bytes: Vec::new() } } else { Told::Unknown };
        (Update::append(b"k", token.as_bytes()).into(), None, told)
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
        // Found by a sweep (`zombie` 2840870576): a value that is appended to a register has no end of its own.
        assert!(run(&[append("v1", true), append("v2", true)], "v1v2").is_empty());
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

    #[test]
    fn an_operation_key_runs_one_action() {
        let mismatch = Told::Executed { outcome: Outcome::OperationKeyMismatch, bytes: vec![7] };
        let (increment, _, told) = increment(Some(1));
        let other = Action::from(Update::increment(b"k", 2));
        let ran = (increment.clone(), Some(9), told);
        let refused = (other.clone(), Some(9), mismatch.clone());
        assert!(run(&[ran.clone(), refused.clone()], "1").is_empty());
        assert_eq!(run(&[refused], "").len(), 1, "used by nothing");
        let outcome = Outcome::Number(3, 2);
        let ran_too = (other, Some(9), Told::Executed { outcome, bytes: vec![0] });
        assert_eq!(run(&[ran.clone(), ran_too], "3").len(), 1);
        // Another first key: another operation, which nobody has used.
        let elsewhere = Action::from(Update::append(b"l", b"x;"));
        let mismatch = Told::Executed { outcome: Outcome::OperationKeyMismatch, bytes: vec![7] };
        assert_eq!(run(&[ran, (elsewhere, Some(9), mismatch)], "1").len(), 1);
    }

    #[test]
    fn a_short_lived_key_may_run_again() {
        let check = |shown: &str| {
            let mut history = History::default();
            for at in 0..3 {
                let (action, _, told) = increment(Some(if at == 0 { 1 } else { 2 }));
                let id = history.ask(0, action, Some(9), SimTime(at));
                history.expires(id);
                history.tell(id, told, SimTime(at)).expect("told once");
            }
            let id = history.ask(0, Action::get(b"k"), None, SimTime(1000));
            let outcome = Outcome::Value(1, shown.into());
            history.tell(id, Told::Executed { outcome, bytes: Vec::new() }, SimTime(1001)).expect("told once");
            super::check(&history)
        };
        assert!(check("2").is_empty());
        assert!(check("3").is_empty());
        assert_eq!(check("1").len(), 1, "two different results were told");
        assert_eq!(check("4").len(), 1, "three asked");
    }
}
