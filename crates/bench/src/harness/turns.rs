//! The longest turns of a primary's event loop, as it tells of them itself.

use kasha_wire::status::LongTurn;

use crate::section::{Cell, Section, Table};

/// Shows a turn of each, and notes this of it as a figure of this name.
pub(crate) fn show<'t>(
    section: &mut Section,
    title: &str,
    of: fn(&LongTurn) -> f64,
    turns: impl IntoIterator<Item = (String, String, &'t LongTurn)>,
) {
    let columns = ["while", "µs", "elapsed µs", "frames", "hearing", "closing", "files", "sending", "did", "waited"];
    let mut table = Table::new(title, &columns);
    for (what, figure, turn) in turns {
        let part = |nanos: u64| Cell::Number(nanos as f64 / 1000.0, 0);
        table.row([
            Cell::from(what),
            part(turn.nanos),
            part(turn.elapsed_nanos),
            Cell::from(u64::from(turn.frames)),
            part(turn.hearing_nanos),
            part(turn.closing_nanos),
            part(turn.files_nanos),
            part(turn.sending_nanos),
            Cell::from(turn.work.iter().map(|work| work.name()).collect::<Vec<_>>().join(" ")),
            Cell::from(if turn.blocked { "yes" } else { "no" }),
        ]);
        section.detail(figure, of(turn));
    }
    section.tables.push(table);
}

/// What a turn took.
pub(crate) fn micros(turn: &LongTurn) -> f64 {
    turn.nanos as f64 / 1000.0
}

/// What a turn took without the time for files.
pub(crate) fn busy_micros(turn: &LongTurn) -> f64 {
    turn.nanos.saturating_sub(turn.files_nanos) as f64 / 1000.0
}

/// Notes a turn if it is longer, by this measure, than what was noted.
pub(crate) fn note(longest: &mut LongTurn, turn: &LongTurn, by: fn(&LongTurn) -> f64) {
    if by(turn) > by(longest) {
        *longest = turn.clone();
    }
}
