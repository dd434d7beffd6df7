//! The unacknowledged sequences of one client. It knows nothing of leases, acknowledgement rules or other clients.
//!
//! Nearly every client has exactly one such sequence (its last update), which is kept inline. More sequences spill into
//! a sorted queue. The queue's memory is reused through [`Spares`], so that a pipelining client allocates nothing in
//! steady state, and an idle client keeps nothing. Dropping a range from the front costs the length of the range
//! (pitfall 6).

use std::collections::VecDeque;

use kasha_types::{AckedBelow, BodyHash, Sequence};

use crate::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    InProgress,
    Completed(Place),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: Sequence,
    pub(crate) body_hash: BodyHash,
    pub(crate) state: State,
}

#[derive(Debug, Default)]
pub(crate) enum Outstanding {
    #[default]
    None,
    One(Entry),
    /// Two or more.
    Many(Box<Spill>),
}

/// Sorted by sequence.
#[derive(Debug, Default)]
pub(crate) struct Spill(VecDeque<Entry>);

impl Spill {
    /// Where a sequence is. A new one mostly comes behind all others, which needs no search.
    fn position(&self, sequence: Sequence) -> Option<usize> {
        self.0.back().filter(|last| sequence <= last.sequence)?;
        self.0.binary_search_by_key(&sequence, |entry| entry.sequence).ok()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.capacity() * size_of::<Entry>()
    }
}

/// Queues kept for reuse; more than this many are freed. At 512 entries each, about 1 MiB.
const SPARES_MAX: usize = 64;

/// Empty queues, and the bytes of all queues, in use or not.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    #[expect(clippy::vec_box, reason = "the box itself moves in and out of a client's state")]
    queues: Vec<Box<Spill>>,
    bytes: usize,
}

impl Spares {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.queues.capacity() * size_of::<Box<Spill>>()
    }

    fn take(&mut self) -> Box<Spill> {
        self.queues.pop().unwrap_or_else(|| {
            let fresh = Box::<Spill>::default();
            self.bytes += fresh.bytes();
            fresh
        })
    }

    fn give_back(&mut self, mut queue: Box<Spill>) {
        queue.0.clear();
        if self.queues.len() < SPARES_MAX {
            self.queues.push(queue);
        } else {
            self.bytes -= queue.bytes();
        }
    }
}

impl Outstanding {
    pub(crate) fn find(&self, sequence: Sequence) -> Option<&Entry> {
        match self {
            Self::None => None,
            Self::One(entry) => (entry.sequence == sequence).then_some(entry),
            Self::Many(queue) => queue.0.get(queue.position(sequence)?),
        }
    }

    pub(crate) fn find_mut(&mut self, sequence: Sequence) -> Option<&mut Entry> {
        match self {
            Self::None => None,
            Self::One(entry) => (entry.sequence == sequence).then_some(entry),
            Self::Many(queue) => {
                let index = queue.position(sequence)?;
                queue.0.get_mut(index)
            }
        }
    }

    /// # Panics
    /// If the sequence is there already.
    pub(crate) fn insert(&mut self, entry: Entry, spares: &mut Spares) {
        match self {
            Self::None => *self = Self::One(entry),
            Self::One(first) => {
                let first = *first;
                *self = Self::Many(spares.take());
                self.insert_spilled(first, spares);
                self.insert_spilled(entry, spares);
            }
            Self::Many(_) => self.insert_spilled(entry, spares),
        }
    }

    fn insert_spilled(&mut self, entry: Entry, spares: &mut Spares) {
        let Self::Many(queue) = self else { unreachable!("spilled before") };
        let before = queue.bytes();
        if queue.0.back().is_none_or(|last| last.sequence < entry.sequence) {
            queue.0.push_back(entry);
        } else {
            let found = queue.0.binary_search_by_key(&entry.sequence, |entry| entry.sequence);
            queue.0.insert(found.expect_err("a sequence is outstanding once"), entry);
        }
        spares.bytes += queue.bytes() - before;
    }

    /// # Panics
    /// If the sequence is not there.
    pub(crate) fn remove(&mut self, sequence: Sequence, spares: &mut Spares) {
        match self {
            Self::One(entry) if entry.sequence == sequence => *self = Self::None,
            Self::None | Self::One(_) => panic!("{sequence} is not outstanding"),
            Self::Many(queue) => {
                let found = queue.position(sequence);
                queue.0.remove(found.expect("the sequence is outstanding"));
                self.settle(spares);
            }
        }
    }

    /// What [`Self::free_below`] would report.
    pub(crate) fn completed_below(&self, acknowledged: AckedBelow) -> impl Iterator<Item = Place> {
        self.entries().take_while(move |entry| entry.sequence.0 < acknowledged.0).filter_map(|entry| {
            match entry.state {
                State::Completed(place) => Some(place),
                State::InProgress => None,
            }
        })
    }

    /// Whether all from the first sequence that is not acknowledged to this one are completed.
    pub(crate) fn is_oldest(&self, sequence: Sequence, acknowledged: AckedBelow) -> bool {
        let mut next = acknowledged.0;
        for entry in self.entries().skip_while(|entry| entry.sequence.0 < acknowledged.0) {
            if next >= sequence.0 || entry.sequence.0 != next || entry.state == State::InProgress {
                break;
            }
            next += 1;
        }
        next >= sequence.0
    }

    /// The completed sequences but this one, up to one above it that is in progress.
    pub(crate) fn completed_around(&self, sequence: Sequence) -> impl Iterator<Item = Place> {
        let others = self.entries().filter(move |entry| entry.sequence != sequence);
        others.map_while(|entry| match entry.state {
            State::Completed(place) => Some(place),
            State::InProgress => None,
        })
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(entry) => (Some(entry), None),
            Self::Many(queue) => (None, Some(&queue.0)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Drops the completed sequences below `acknowledged`. One still in progress stays, whatever its client claims: a
    /// transaction needs it (R4.6).
    #[inline(always)]
    pub(crate) fn free_below(&mut self, acknowledged: AckedBelow, spares: &mut Spares, mut dead: impl FnMut(Place)) {
        match self {
            Self::None => {}
            Self::One(entry) => {
                if entry.sequence.0 < acknowledged.0
                    && let State::Completed(place) = entry.state
                {
                    dead(place);
                    *self = Self::None;
                }
            }
            Self::Many(queue) => {
                let is_below = |entry: &Entry| entry.sequence.0 < acknowledged.0;
                while let Some(&Entry { state: State::Completed(place), .. }) =
                    queue.0.front().filter(|entry| is_below(entry))
                {
                    queue.0.pop_front();
                    dead(place);
                }
                // Those behind one that is in progress.
                let (end, mut kept) = (queue.0.partition_point(is_below), 0);
                for at in 0..end {
                    match queue.0[at].state {
                        State::Completed(place) => dead(place),
                        State::InProgress => {
                            queue.0.swap(kept, at);
                            kept += 1;
                        }
                    }
                }
                if kept < end {
                    queue.0.drain(kept..end);
                }
                self.settle(spares);
            }
        }
    }

    /// Moves back inline what fits.
    fn settle(&mut self, spares: &mut Spares) {
        if let Self::Many(queue) = self
            && queue.0.len() <= 1
        {
            let left = queue.0.front().map_or(Self::None, |entry| Self::One(*entry));
            if let Self::Many(queue) = std::mem::replace(self, left) {
                spares.give_back(queue);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let (inline, spilled) = match self {
            Self::None => (None, None),
            Self::One(entry) => (Some(entry), None),
            Self::Many(queue) => (None, Some(queue.0.iter())),
        };
        inline.into_iter().chain(spilled.into_iter().flatten())
    }

    pub(crate) fn has_in_progress(&self) -> bool {
        self.iter().any(|entry| entry.state == State::InProgress)
    }

    pub(crate) fn assert_invariants(&self) {
        assert!(self.iter().is_sorted_by(|a, b| a.sequence < b.sequence), "sequences are sorted and unique");
        if let Self::Many(queue) = self {
            assert!(queue.0.len() >= 2, "one entry belongs inline");
        }
    }
}
