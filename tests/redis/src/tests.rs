use std::collections::BTreeSet;

use kasha_commands::{Class, Command, Row, find};
use kasha_machine::Rng;

use crate::draw::{Drawer, form_of, why_not};

fn is_executed_by_shards(row: &Row) -> bool {
    match row.class {
        Class::Reads(_) | Class::Changes(_) => true,
        Class::Local | Class::Composed => false,
    }
}

#[test]
fn every_command_is_drawn_or_has_a_reason() {
    for row in Command::ALL {
        assert_ne!(form_of(row.command).is_some(), why_not(row.command).is_some(), "{}", row.name);
    }
}

#[test]
fn what_shards_execute_is_compared() {
    let left_out = Command::ALL.iter().filter(|row| is_executed_by_shards(row) && form_of(row.command).is_none());
    assert_eq!(left_out.map(|row| row.name).collect::<Vec<_>>(), ["object|encoding", "object|refcount"]);
}

#[test]
fn every_command_with_a_form_is_drawn() {
    let mut drawer = Drawer::new(Rng::new(1));
    let drawn: BTreeSet<_> = (0..10_000).filter_map(|_| find(&drawer.request()[0])).map(|row| row.command).collect();
    let named = |row: &Row| row.container().map_or(row.name, |(container, _)| container);
    let all: BTreeSet<_> = Command::ALL
        .iter()
        .filter(|row| form_of(row.command).is_some())
        .map(|row| find(named(row).as_bytes()).expect("a command").command)
        .collect();
    assert_eq!(drawn, all);
}
