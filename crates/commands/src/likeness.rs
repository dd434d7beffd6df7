//! What `LCS` tells of two strings, wherever they are: the longest sequence of bytes that both have.

use crate::{Item, ReplyWriter};

/// Products of the two lengths up to here are compared: more would hold up everybody else for longer than a turn may (R11.14).
pub const LCS_CELLS_MAX: usize = 1024 * 1024;

/// The same of all that is compared at once, for one request.
pub const LCS_CELLS_OF_ALL_MAX: usize = 4 * LCS_CELLS_MAX;

/// The reply to what would be more.
pub const LCS_TOO_MUCH: &str = "ERR LCS compares too much in one transaction; send it alone";

/// How many places of two strings are compared.
#[must_use]
pub fn lcs_cells(first: &[u8], second: &[u8]) -> usize {
    (first.len() + 1).saturating_mul(second.len() + 1)
}

/// A number as Redis reads one from a word.
pub(crate) fn integer(word: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == word).then_some(number)
}

/// A run of bytes that both strings have, at these places.
struct Match {
    first: std::ops::Range<usize>,
    second: std::ops::Range<usize>,
}

/// The words behind the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LikenessOptions {
    tells_length: bool,
    tells_matches: bool,
    tells_lengths: bool,
    shortest: usize,
}

impl LikenessOptions {
    /// What these words say.
    ///
    /// # Errors
    /// The text of the reply to words that are wrong.
    pub fn parse<'w>(words: impl IntoIterator<Item = &'w [u8]>) -> Result<Self, &'static str> {
        const SYNTAX: &str = "ERR syntax error";
        let (mut options, mut words) = (Self::default(), words.into_iter());
        while let Some(word) = words.next() {
            match &word.to_ascii_uppercase()[..] {
                b"IDX" => options.tells_matches = true,
                b"LEN" => options.tells_length = true,
                b"WITHMATCHLEN" => options.tells_lengths = true,
                b"MINMATCHLEN" => {
                    let shortest = integer(words.next().ok_or(SYNTAX)?);
                    let shortest = shortest.ok_or("ERR value is not an integer or out of range")?;
                    options.shortest = usize::try_from(shortest).unwrap_or(0);
                }
                _ => return Err(SYNTAX),
            }
        }
        match options.tells_matches && options.tells_length {
            true => Err("ERR If you want both the length and indexes, please just use IDX."),
            false => Ok(options),
        }
    }

    /// Writes the reply to two strings; an error if they are too long.
    ///
    /// # Panics
    /// Never: what is compared is short.
    pub fn reply(self, [first, second]: [&[u8]; 2], mut out: ReplyWriter<'_>) {
        if lcs_cells(first, second) > LCS_CELLS_MAX {
            return out
                .item(Item::Error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
        }
        let lengths = table(first, second);
        let len = i64::from(*lengths.last().expect("one cell at least"));
        if self.tells_length {
            return out.item(Item::Number(len));
        }
        let (sequence, matches) = trace(first, second, &lengths);
        match self.tells_matches {
            true => self.tell_matches(&matches, len, &mut out),
            false => out.item(Item::Bytes(&sequence)),
        }
    }

    fn tell_matches(self, matches: &[Match], len: i64, out: &mut ReplyWriter<'_>) {
        let long = |found: &&Match| found.first.len() >= self.shortest;
        let number = |at: usize| Item::Number(i64::try_from(at).expect("it is in memory"));
        let count = u32::try_from(matches.iter().filter(long).count()).expect("few cells");
        out.each(Item::Map(2), [Item::Bytes(b"matches"), Item::List(count)]);
        for found in matches.iter().filter(long) {
            out.item(Item::List(if self.tells_lengths { 3 } else { 2 }));
            for place in [&found.first, &found.second] {
                out.each(Item::List(2), [number(place.start), number(place.end - 1)]);
            }
            if self.tells_lengths {
                out.item(number(found.first.len()));
            }
        }
        out.each(Item::Bytes(b"len"), [Item::Number(len)]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Items;

    #[test]
    fn two_strings_have_a_sequence_in_common() {
        let told = |words: &[&[u8]], strings| {
            let mut reply = Vec::new();
            LikenessOptions::parse(words.iter().copied()).expect("options").reply(strings, ReplyWriter(&mut reply));
            format!("{:?}", Items::of(&reply).map(|item| item.expect("an item")).collect::<Vec<_>>())
        };
        let strings: [&[u8]; 2] = [b"ohmytext", b"mynewtext"];
        assert_eq!(told(&[], strings), format!("{:?}", [Item::Bytes(b"mytext")]));
        assert_eq!(told(&[b"len"], strings), format!("{:?}", [Item::Number(6)]));
        assert!(told(&[b"IDX", b"MINMATCHLEN", b"4"], strings).contains("Number(4), Number(7)"));
        let long = vec![b'x'; 1024];
        assert!(told(&[], [&long, &long]).contains("Insufficient memory"));
        for wrong in [&[&b"nonsense"[..]][..], &[b"MINMATCHLEN"], &[b"MINMATCHLEN", b"01"], &[b"IDX", b"LEN"]] {
            assert!(LikenessOptions::parse(wrong.iter().copied()).is_err());
        }
    }
}
