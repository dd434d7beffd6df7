//! The tables of scenarios and of planted bugs in `docs/testing.md` are those of the code.

use kasha_sim::Scenario;
use kasha_sim::planted::{Bug, CAUGHT, Caught};

const PAGE: &str = include_str!("../../../docs/testing.md");

/// Rows of the table with this head.
fn table(head: &str) -> Vec<&'static str> {
    let start = PAGE.find(&format!("{head}\n")).unwrap_or_else(|| panic!("no table {head}"));
    PAGE[start..].lines().skip(2).take_while(|line| line.starts_with('|')).collect()
}

fn row_of(caught: &Caught) -> String {
    let Caught { bug, scenario, seeds, by } = caught;
    let (_, name, what) = Bug::TABLE.iter().find(|row| row.0 == *bug).expect("every bug is in the table");
    let is_checker = by.chars().all(|letter| letter == '_' || letter.is_ascii_lowercase());
    let by = if is_checker { format!("`{by}`") } else { format!("an assertion: “{}”", by.trim_end_matches(": ")) };
    format!("| `{name}` | {} | `{}` | {seeds} | {by} |", what.trim().trim_end_matches('.'), scenario.name())
}

#[test]
fn scenarios() {
    let ours = Scenario::TABLE.iter().map(|(_, name, what)| format!("| `{name}` | {what} |"));
    assert_eq!(table("| scenario | what happens |"), ours.collect::<Vec<_>>());
}

#[test]
fn planted_bugs() {
    let ours: Vec<_> = CAUGHT.iter().map(row_of).collect();
    assert_eq!(table("| bug | what is broken | scenario | seeds | caught by |"), ours);
}
