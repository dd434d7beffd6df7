//! Tables: creating and dropping a name has one order (the coordinator's), numbers are never used again, and nothing is
//! read or written in a table once somebody was told that it is dropped.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::TableId;

use crate::clock::SimTime;
use crate::history::{Action, DEFAULT_TABLE, History, Operation, Told};

/// Requests for one name that are searched for an order; more are not.
const REQUESTS_MAX: usize = 60;

/// Ways that are tried for a name; where many requests wait at once there are more than anybody can try.
const STATES_MAX: usize = 100_000;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Nothing,
    Table(TableId),
    /// Created by a request whose outcome nobody was told.
    SomeTable,
}

/// Checks a history.
#[must_use]
pub fn check(history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    let mut created = BTreeSet::new();
    let mut dropped: BTreeMap<TableId, SimTime> = BTreeMap::new();
    for operation in history.operations() {
        let (Action::CreateTable(name) | Action::DropTable(name)) = &operation.action else { continue };
        by_name.entry(name).or_default().push(operation);
        match (&operation.action, &operation.told) {
            (Action::CreateTable(_), Told::TableDone(table)) if !created.insert(*table) => {
                violations.push(format!("tables: {table:?} was created twice"));
            }
            (Action::DropTable(_), Told::TableDone(table)) => {
                let at = operation.told_at.expect("told");
                let first = dropped.entry(*table).or_insert(at);
                *first = at.min(*first);
            }
            _ => {}
        }
    }
    for (name, requests) in by_name {
        let told = requests.iter().filter(|request| request.told_at.is_some()).count();
        if requests.len() <= REQUESTS_MAX && !Search::default().has_order(&requests, 0, told, State::Nothing) {
            let list: Vec<_> = requests.iter().map(|r| (r.asked, r.told_at, &r.action, &r.told)).collect();
            violations.push(format!("tables: no order explains the requests for {name:?}: {list:#?}"));
        }
    }
    let used = history.operations().iter().filter(|operation| operation.table != DEFAULT_TABLE);
    for operation in used.filter(|operation| matches!(operation.told, Told::Executed { .. })) {
        if dropped.get(&operation.table).is_some_and(|&at| at < operation.asked) {
            violations.push(format!("tables: used after it was dropped: {operation:?}"));
        }
    }
    violations
}

#[derive(Default)]
struct Search {
    seen: BTreeSet<(u64, State)>,
}

impl Search {
    /// Whether the requests not in `done`, of which so many were told something, can follow `state`, for all that is tried.
    fn has_order(&mut self, requests: &[&Operation], done: u64, told: usize, state: State) -> bool {
        if told == 0 || self.seen.len() >= STATES_MAX {
            return true;
        }
        if !self.seen.insert((done, state)) {
            return false;
        }
        let open = |index: &usize| done & (1 << *index) == 0;
        let horizon = (0..requests.len()).filter(open).filter_map(|index| requests[index].told_at).min();
        let may_be_next = |index: &usize| horizon.is_none_or(|horizon| requests[*index].asked <= horizon);
        let candidates: Vec<usize> = (0..requests.len()).filter(open).filter(may_be_next).collect();
        candidates.into_iter().any(|index| {
            let left = told - usize::from(requests[index].told_at.is_some());
            after(state, requests[index]).is_some_and(|state| self.has_order(requests, done | 1 << index, left, state))
        })
    }
}

/// The state after a request; `None`: it cannot have had its outcome here.
fn after(state: State, request: &Operation) -> Option<State> {
    let creates = matches!(request.action, Action::CreateTable(_));
    let absent = state == State::Nothing;
    let may_be = |table: TableId| state == State::Table(table) || state == State::SomeTable;
    match &request.told {
        Told::TableDone(table) if creates => absent.then_some(State::Table(*table)),
        Told::TableDone(table) => may_be(*table).then_some(State::Nothing),
        Told::TableExists(table) => may_be(*table).then_some(State::Table(*table)),
        Told::TableNotFound => absent.then_some(state),
        Told::NotExecuted => Some(state),
        Told::Unknown if creates && absent => Some(State::SomeTable),
        Told::Unknown if creates => Some(state),
        Told::Unknown => Some(State::Nothing),
        Told::Executed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(requests: &[(Action, u64, Told)]) -> usize {
        let mut history = History::default();
        for (action, at, told) in requests {
            let id = history.ask(0, action.clone(), None, SimTime(*at));
            history.tell(id, told.clone(), SimTime(at + 5)).expect("told once");
        }
        check(&history).len()
    }

    fn create(at: u64, told: Told) -> (Action, u64, Told) {
        (Action::CreateTable("red".into()), at, told)
    }

    fn drop_it(at: u64, told: Told) -> (Action, u64, Told) {
        (Action::DropTable("red".into()), at, told)
    }

    const TWO: TableId = TableId(2);

    #[test]
    fn requests_have_an_order() {
        let created = create(10, Told::TableDone(TWO));
        assert_eq!(found(&[created.clone(), create(20, Told::TableExists(TWO)), drop_it(30, Told::TableDone(TWO))]), 0);
        assert_eq!(found(&[created.clone(), create(20, Told::TableDone(TableId(3)))]), 1, "it was there");
        assert_eq!(found(&[created.clone(), drop_it(20, Told::TableNotFound)]), 1, "it was there");
        assert_eq!(found(&[created.clone(), drop_it(20, Told::Unknown), drop_it(30, Told::TableNotFound)]), 0);
        assert_eq!(found(&[create(10, Told::Unknown), drop_it(20, Told::TableDone(TWO))]), 0);
        assert_eq!(found(&[drop_it(20, Told::TableDone(TWO))]), 1, "nobody created it");
        let again = create(40, Told::TableDone(TWO));
        assert_eq!(found(&[created, drop_it(20, Told::TableDone(TWO)), again]), 1, "a number used twice");
    }

    #[test]
    fn a_dropped_table_is_gone() {
        let mut history = History::default();
        let told = Told::Executed { outcome: kasha_wire::outcome::Outcome::NotFound, bytes: vec![2] };
        for (action, at, told) in [create(10, Told::TableDone(TWO)), drop_it(20, Told::TableDone(TWO))] {
            let id = history.ask(0, action, None, SimTime(at));
            history.tell(id, told, SimTime(at + 5)).expect("told once");
        }
        let id = history.ask_in(TWO, 0, Action::Get(b"k".to_vec()), None, SimTime(24));
        history.tell(id, told.clone(), SimTime(30)).expect("told once");
        assert_eq!(check(&history), Vec::<String>::new(), "both under way");
        let id = history.ask_in(TWO, 0, Action::Get(b"k".to_vec()), None, SimTime(26));
        history.tell(id, told, SimTime(30)).expect("told once");
        assert_eq!(check(&history).len(), 1);
    }
}
