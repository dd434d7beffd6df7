//! The longest turns of a primary's event loop, as it tells of them itself.

use kasha_wire::status::LongTurn;

use crate::section::{Cell, Section, Table};

/// Shows the longest turn of each, and notes it as a figure of this name.
pub(crate) fn show<'t>(section: &mut Section, turns: impl IntoIterator<Item = (String, String, &'t LongTurn)>) {
    let columns = ["while", "µs", "elapsed µs", "frames", "hearing", "closing", "files", "sending", "did", "waited"];
    let mut table = Table::new("Longest turns of the event loop", &columns);
    for (what, figure, turn) in turns {
        let micros = |nanos: u64| Cell::Number(nanos as f64 / 1000.0, 0);
        table.row([
            Cell::from(what),
            micros(turn.nanos),
            micros(turn.elapsed_nanos),
            Cell::from(u64::from(turn.frames)),
            micros(turn.hearing_nanos),
            micros(turn.closing_nanos),
            micros(turn.files_nanos),
            micros(turn.sending_nanos),
            Cell::from(turn.work.iter().map(|work| work.name()).collect::<Vec<_>>().join(" ")),
            Cell::from(if turn.blocked { "yes" } else { "no" }),
        ]);
        section.detail(figure, turn.nanos as f64 / 1000.0);
    }
    section.tables.push(table);
}

/// Notes a turn if it is longer than what was noted.
pub(crate) fn note(longest: &mut LongTurn, turn: LongTurn) {
    if turn.nanos > longest.nanos {
        *longest = turn;
    }
}
