//! `LCS`: the longest sequence of bytes that two strings have in common.

use kasha_commands::Item;
use kasha_wire::operation::Words;

use super::{CommandError, Replied, integer};
use crate::run::Run;

/// Products of the two lengths up to here are compared: more would hold up everybody else for longer than a turn may (R11.14).
const CELLS_MAX: usize = 1024 * 1024;

/// The same of all in one request. Fronts send an LCS that stands in no transaction alone.
const CELLS_OF_ALL_MAX: usize = 4 * CELLS_MAX;

/// A run of bytes that both strings have, at these places.
struct Match {
    first: std::ops::Range<usize>,
    second: std::ops::Range<usize>,
}

#[derive(Default)]
struct Options {
    tells_length: bool,
    tells_matches: bool,
    tells_lengths: bool,
    shortest: usize,
}

impl Options {
    fn parse(mut words: Words<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match &word.to_ascii_uppercase()[..] {
                b"IDX" => options.tells_matches = true,
                b"LEN" => options.tells_length = true,
                b"WITHMATCHLEN" => options.tells_lengths = true,
                b"MINMATCHLEN" => {
                    let shortest = integer(words.next().ok_or(CommandError::SYNTAX)?)?;
                    options.shortest = usize::try_from(shortest).unwrap_or(0);
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        if options.tells_matches && options.tells_length {
            return Err(CommandError::of("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

/// For each pair of beginnings how long the longest common sequence of the two is, by rows of the first.
fn table(first: &[u8], second: &[u8]) -> Vec<u32> {
    let width = second.len() + 1;
    let mut lengths = vec![0; (first.len() + 1) * width];
    for (row, byte) in first.iter().enumerate() {
        for (column, other) in second.iter().enumerate() {
            let at = (row + 1) * width + column + 1;
            lengths[at] = match byte == other {
                true => lengths[at - width - 1] + 1,
                false => lengths[at - width].max(lengths[at - 1]),
            };
        }
    }
    lengths
}

/// The sequence, and the runs that it is made of, from the last to the first, as Redis finds them.
fn trace(first: &[u8], second: &[u8], lengths: &[u32]) -> (Vec<u8>, Vec<Match>) {
    let width = second.len() + 1;
    let (mut sequence, mut matches) = (Vec::new(), Vec::<Match>::new());
    let (mut row, mut column) = (first.len(), second.len());
    while row > 0 && column > 0 {
        let at = row * width + column;
        if first[row - 1] == second[column - 1] {
            sequence.push(first[row - 1]);
            match matches.last_mut() {
                Some(last) if last.first.start == row && last.second.start == column => {
                    (last.first.start, last.second.start) = (row - 1, column - 1);
                }
                _ => matches.push(Match { first: row - 1..row, second: column - 1..column }),
            }
            (row, column) = (row - 1, column - 1);
        } else if lengths[at - width] > lengths[at - 1] {
            row -= 1;
        } else {
            column -= 1;
        }
    }
    sequence.reverse();
    (sequence, matches)
}

impl<'a> Run<'_, 'a> {
    pub(super) fn longest_common(&mut self, mut words: Words<'a>) -> Replied {
        let [first, second] = words.take_array().expect("its arity");
        let (first, second) = (self.see(first), self.see(second));
        let options = Options::parse(words)?;
        let (first, second) = (self.string(&first).into_owned(), self.string(&second).into_owned());
        let cells = (first.len() + 1).saturating_mul(second.len() + 1);
        self.cells = self.cells.saturating_add(cells);
        if self.cells > CELLS_OF_ALL_MAX && cells <= CELLS_MAX {
            return Err(CommandError::of("ERR LCS compares too much in one transaction; send it alone"));
        }
        if cells > CELLS_MAX {
            return Err(CommandError::of(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let lengths = table(&first, &second);
        let len = i64::from(*lengths.last().expect("one cell at least"));
        if options.tells_length {
            self.reply(Item::Number(len));
            return Ok(());
        }
        let (sequence, matches) = trace(&first, &second, &lengths);
        if options.tells_matches {
            self.tell_matches(&matches, &options, len);
        } else {
            self.reply(Item::Bytes(&sequence));
        }
        Ok(())
    }

    fn tell_matches(&mut self, matches: &[Match], options: &Options, len: i64) {
        let long = |found: &&Match| found.first.len() >= options.shortest;
        let number = |at: usize| Item::Number(i64::try_from(at).expect("it is in memory"));
        let count = u32::try_from(matches.iter().filter(long).count()).expect("few cells");
        let mut out = self.draft.replies();
        out.each(Item::Map(2), [Item::Bytes(b"matches"), Item::List(count)]);
        for found in matches.iter().filter(long) {
            out.item(Item::List(if options.tells_lengths { 3 } else { 2 }));
            for place in [&found.first, &found.second] {
                out.each(Item::List(2), [number(place.start), number(place.end - 1)]);
            }
            if options.tells_lengths {
                out.item(number(found.first.len()));
            }
        }
        out.each(Item::Bytes(b"len"), [Item::Number(len)]);
    }
}
