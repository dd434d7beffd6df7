//! Tables: creating and dropping a name has one order (the coordinator's), table numbers are never used again, and
//! nothing is read or written in a table after a client was told that it is dropped.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::TableId;

use crate::checkers::order::{Checked, Step, search};
use crate::clock::SimTime;
use crate::history::{Action, DEFAULT_TABLE, History, Operation, Told};

/// What a table name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Nothing,
    Table(TableId),
    /// Created by a request whose outcome nobody was told.
    SomeTable,
}

/// Checks a history.
#[must_use]
pub fn check(history: &History) -> Checked {
    let mut checked = Checked::default();
    let mut by_name: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    let mut created = BTreeSet::new();
    let mut dropped: BTreeMap<TableId, SimTime> = BTreeMap::new();
    for operation in history.operations() {
        let (Action::CreateTable(name) | Action::DropTable(name)) = &operation.action else { continue };
        if operation.told == Told::NotExecuted {
            continue;
        }
        by_name.entry(name).or_default().push(operation);
        match (&operation.action, &operation.told) {
            (Action::CreateTable(_), Told::TableDone(table)) if !created.insert(*table) => {
                checked.violations.push(format!("tables: {table:?} was created twice"));
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
        let requests: Vec<_> = requests.into_iter().map(|operation| Request { operation, created: &created }).collect();
        checked.add(&search(&requests, &State::Nothing), || {
            let list: Vec<_> = requests.iter().map(|request| request.operation).collect();
            let list: Vec<_> = list.into_iter().map(|r| (r.asked, r.told_at, &r.action, &r.told)).collect();
            format!("tables: no order explains the requests for {name:?}: {list:#?}")
        });
    }
    let used = history.operations().iter().filter(|operation| operation.table != DEFAULT_TABLE);
    for operation in used.filter(|operation| matches!(operation.told, Told::Executed { .. })) {
        if dropped.get(&operation.table).is_some_and(|&at| at < operation.asked) {
            checked.violations.push(format!("tables: used after it was dropped: {operation:?}"));
        }
    }
    checked
}

/// A request for a name.
struct Request<'a> {
    operation: &'a Operation,
    /// Tables whose creators were told of them: no other request has created these.
    created: &'a BTreeSet<TableId>,
}

impl Step for Request<'_> {
    type State = State;

    fn asked(&self) -> SimTime {
        self.operation.asked
    }

    fn told_at(&self) -> Option<SimTime> {
        self.operation.told_at
    }

    fn after(&self, state: &State) -> Option<State> {
        let creates = matches!(self.operation.action, Action::CreateTable(_));
        let (state, absent) = (*state, *state == State::Nothing);
        let may_be = |table| match state {
            State::Nothing => false,
            State::Table(known) => known == table,
            State::SomeTable => !self.created.contains(&table),
        };
        match &self.operation.told {
            Told::TableDone(table) if creates => absent.then_some(State::Table(*table)),
            Told::TableDone(table) => may_be(*table).then_some(State::Nothing),
            Told::TableExists(table) => (creates && may_be(*table)).then_some(State::Table(*table)),
            Told::TableNotFound => (!creates && absent).then_some(state),
            Told::Unknown if creates && absent => Some(State::SomeTable),
            Told::Unknown if creates => Some(state),
            Told::Unknown => Some(State::Nothing),
            Told::NotExecuted | Told::Executed { .. } => None,
        }
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
        check(&history).violations.len()
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
        let exists = create(40, Told::TableExists(TWO));
        let dropped = [created.clone(), drop_it(20, Told::TableDone(TWO)), create(30, Told::Unknown)];
        assert_eq!(found(&[&dropped[..], &[exists]].concat()), 1, "a number used twice, by whom nobody knows");
        assert_eq!(found(&[create(10, Told::TableNotFound)]), 1, "nobody looked for it");
        assert_eq!(found(&[created.clone(), drop_it(20, Told::TableExists(TWO))]), 1, "nobody created it");
        let again = create(40, Told::TableDone(TWO));
        assert_eq!(found(&[created, drop_it(20, Told::TableDone(TWO)), again]), 1, "a number used twice");
    }

    #[test]
    fn many_requests_that_wait_at_once_are_searched_to_the_end() {
        let mut history = History::default();
        let created = |index: u32| create(0, Told::TableDone(TableId(index)));
        let dropped = |index: u32| drop_it(0, Told::TableDone(TableId(index)));
        let pairs = (2..50).flat_map(|index| [created(index), dropped(index)]);
        let unknown = (0..12).map(|_| create(0, Told::Unknown));
        for (at, (action, _, told)) in (0..).zip(pairs.chain(unknown)) {
            let id = history.ask(0, action, None, SimTime(at % 7));
            history.tell(id, told, SimTime(1_000 - at)).expect("told once");
        }
        let checked = check(&history);
        assert_eq!((checked.searched, checked.inconclusive, checked.violations.len()), (1, 0, 0));
    }

    #[test]
    fn a_dropped_table_is_gone() {
        let mut history = History::default();
        let told = Told::Executed { outcome: kasha_wire::outcome::Outcome::NotFound, bytes: vec![2] };
        for (action, at, told) in [create(10, Told::TableDone(TWO)), drop_it(20, Told::TableDone(TWO))] {
            let id = history.ask(0, action, None, SimTime(at));
            history.tell(id, told, SimTime(at + 5)).expect("told once");
        }
        let id = history.ask_in(TWO, 0, Action::get(b"k"), None, SimTime(24));
        history.tell(id, told.clone(), SimTime(30)).expect("told once");
        assert_eq!(check(&history).violations, Vec::<String>::new(), "both under way");
        let id = history.ask_in(TWO, 0, Action::get(b"k"), None, SimTime(26));
        history.tell(id, told, SimTime(30)).expect("told once");
        assert_eq!(check(&history).violations.len(), 1);
    }
}
