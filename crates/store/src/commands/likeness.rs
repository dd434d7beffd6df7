//! `LCS`: the longest sequence of bytes that two strings have in common.

use kasha_commands::LikenessOptions;
use kasha_wire::operation::Words;

use super::{CommandError, Replied};
use crate::run::Run;

impl<'a> Run<'_, 'a> {
    pub(super) fn longest_common(&mut self, mut words: Words<'a>) -> Replied {
        let [first, second] = words.take_array().expect("its arity");
        let (first, second) = (self.see(first), self.see(second));
        let options = LikenessOptions::parse(words).map_err(CommandError::of)?;
        let (first, second) = (self.string(&first).into_owned(), self.string(&second).into_owned());
        options.reply([&first, &second], self.draft.replies());
        Ok(())
    }
}
