//! `LCS`: the longest sequence of bytes that two strings have in common.

use kasha_commands::{LCS_CELLS_MAX, LikenessOptions, lcs_cells};
use kasha_wire::operation::Words;

use super::{CommandError, Replied};
use crate::run::Run;

/// Products of two lengths that one request may compare, of all its commands together: more would hold up everybody else for longer than a turn
/// may (R11.14). Fronts send an `LCS` that stands in no transaction alone.
const CELLS_OF_ALL_MAX: usize = 4 * LCS_CELLS_MAX;

impl<'a> Run<'_, 'a> {
    pub(super) fn longest_common(&mut self, mut words: Words<'a>) -> Replied {
        let [first, second] = words.take_array().expect("its arity");
        let (first, second) = (self.see(first), self.see(second));
        let options = LikenessOptions::parse(words).map_err(CommandError::of)?;
        let (first, second) = (self.string(&first).into_owned(), self.string(&second).into_owned());
        let cells = lcs_cells(&first, &second);
        self.cells = self.cells.saturating_add(cells);
        if self.cells > CELLS_OF_ALL_MAX && cells <= LCS_CELLS_MAX {
            return Err(CommandError::of("ERR LCS compares too much in one transaction; send it alone"));
        }
        options.reply([&first, &second], self.draft.replies());
        Ok(())
    }
}
