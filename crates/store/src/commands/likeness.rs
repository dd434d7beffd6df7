//! `LCS`: the longest sequence of bytes that two strings have in common.

use kasha_commands::{LCS_CELLS_MAX, LCS_CELLS_OF_ALL_MAX, LCS_TOO_MUCH, LikenessOptions, lcs_cells};
use kasha_wire::operation::Words;

use super::{CommandError, Replied};
use crate::run::Run;

impl<'a> Run<'_, 'a> {
    pub(super) fn longest_common(&mut self, mut words: Words<'a>) -> Replied {
        let [first, second] = words.take_array().expect("its arity");
        let (first, second) = (self.see(first), self.see(second));
        let options = LikenessOptions::parse(words).map_err(CommandError::of)?;
        let (first, second) = (self.string(&first).into_owned(), self.string(&second).into_owned());
        let cells = lcs_cells(&first, &second);
        self.cells = self.cells.saturating_add(cells);
        // Fronts send one that stands in no transaction alone.
        if self.cells > LCS_CELLS_OF_ALL_MAX && cells <= LCS_CELLS_MAX {
            return Err(CommandError::of(LCS_TOO_MUCH));
        }
        options.reply([&first, &second], self.draft.replies());
        Ok(())
    }
}
