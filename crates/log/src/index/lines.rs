//! The lines of an index, in pieces of a fixed size: a piece that is full never moves.

use crate::EntryOffset;

/// Entries of one line.
pub(super) const PLACES: usize = 5;

/// Lines of a piece: 1 MiB. The first piece grows by doubling, so at most half of this is ever copied in one step.
const PIECE: usize = 1 << 14;

const EMPTY: EntryOffset = EntryOffset(u64::MAX);

/// A cache line of entries. Those that it has come first.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Line {
    at: [EntryOffset; PLACES],
    tags: [u32; PLACES],
    next: LineId,
}

const _: () = assert!(size_of::<Line>() == 64);

/// The number of a line: of a bucket's first, or of a further one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LineId(u32);

impl LineId {
    const NONE: Self = Self(u32::MAX);
    const FURTHER: u32 = 1 << 31;

    pub(super) fn first(bucket: usize) -> Self {
        let number = u32::try_from(bucket).ok().filter(|&number| number < Self::FURTHER - 1);
        Self(number.expect("2^31 buckets are 7 thousand million keys"))
    }

    pub(super) fn further(number: usize) -> Self {
        Self(Self::first(number).0 | Self::FURTHER)
    }

    pub(super) fn is_further(self) -> bool {
        self.0 & Self::FURTHER != 0
    }

    fn number(self) -> usize {
        (self.0 & !Self::FURTHER) as usize
    }
}

impl Line {
    const EMPTY: Self = Self { at: [EMPTY; PLACES], tags: [0; PLACES], next: LineId::NONE };

    /// Compares all tags at once: where an entry stands in its line is a coin toss to the processor.
    #[inline]
    pub(super) fn find(&self, tag: u32, mut is_it: impl FnMut(EntryOffset) -> bool) -> Option<u8> {
        let mut equal = 0u32;
        for place in 0..PLACES {
            equal |= u32::from(self.tags[place] == tag) << place;
        }
        while equal != 0 {
            let place = equal.trailing_zeros() as u8;
            let at = self.at[usize::from(place)];
            if at != EMPTY && is_it(at) {
                return Some(place);
            }
            equal &= equal - 1;
        }
        None
    }

    /// What is said there: an entry, or that there is none.
    pub(super) fn place(&self, place: u8) -> EntryOffset {
        self.at[usize::from(place)]
    }

    /// The tag and the entry there, if there is one.
    pub(super) fn get(&self, place: u8) -> Option<(u32, EntryOffset)> {
        let at = *self.at.get(usize::from(place))?;
        (at != EMPTY).then_some((self.tags[usize::from(place)], at))
    }

    /// Gives the entry there another place in the log, and says the one that it had.
    pub(super) fn set(&mut self, place: u8, at: EntryOffset) -> EntryOffset {
        std::mem::replace(&mut self.at[usize::from(place)], at)
    }

    pub(super) fn put(&mut self, place: u8, tag: u32, at: EntryOffset) {
        self.tags[usize::from(place)] = tag;
        self.at[usize::from(place)] = at;
    }

    pub(super) fn is_full(&self) -> bool {
        self.at[PLACES - 1] != EMPTY
    }

    pub(super) fn len(&self) -> u8 {
        self.at.iter().map(|&at| u8::from(at != EMPTY)).sum()
    }

    pub(super) fn push(&mut self, tag: u32, at: EntryOffset) {
        assert!(at != EMPTY, "no log is that long");
        self.put(self.len(), tag, at);
    }

    /// Takes the last entry.
    pub(super) fn pop(&mut self) -> Option<(u32, EntryOffset)> {
        let last = self.len().checked_sub(1)?;
        let entry = self.get(last);
        self.at[usize::from(last)] = EMPTY;
        entry
    }

    pub(super) fn next(&self) -> Option<LineId> {
        (self.next != LineId::NONE).then_some(self.next)
    }

    pub(super) fn set_next(&mut self, next: Option<LineId>) {
        self.next = next.unwrap_or(LineId::NONE);
    }
}

/// Lines by their numbers.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pieces: Vec<Vec<Line>>,
    count: usize,
}

impl Lines {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds an empty line and returns its number.
    pub(super) fn push(&mut self) -> usize {
        let number = self.count;
        if number.is_multiple_of(PIECE) {
            let is_first = self.pieces.is_empty();
            self.pieces.push(if is_first { Vec::new() } else { Vec::with_capacity(PIECE) });
        }
        self.pieces.last_mut().expect("pushed").push(Line::EMPTY);
        self.count += 1;
        number
    }

    pub(super) fn get(&self, id: LineId) -> &Line {
        let number = id.number();
        &self.pieces[number / PIECE][number % PIECE]
    }

    pub(super) fn get_mut(&mut self, id: LineId) -> &mut Line {
        let number = id.number();
        &mut self.pieces[number / PIECE][number % PIECE]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.capacity() * size_of::<Line>()).sum()
    }
}
