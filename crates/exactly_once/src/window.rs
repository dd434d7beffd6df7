//! The client half: numbers updates, and knows below which sequence every result has arrived (RIFL 3).
//!
//! Sequences start at 1. At most `OUTSTANDING_MAX` sequences lie between the acknowledgement and the next sequence. A
//! session waits rather than exceed that, since a shard would refuse the update (R4.3). A sequence cannot be cancelled,
//! on purpose: a call that its caller has abandoned is finished by its session in the background, and acknowledged only
//! then (pitfall 1). Otherwise the shard could forget an update that is still on its way, and run it when it arrives.

use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{AckedBelow, Sequence};

const WORDS: usize = OUTSTANDING_MAX as usize / 64;
const _: () = assert!(OUTSTANDING_MAX.is_multiple_of(64), "the ring of bits has whole words");

/// The two numbers that become part of an update's body, and never change with a retry (R2.1).
#[must_use = "an assigned sequence holds up the acknowledgement until it is finished"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The update's own number.
    pub sequence: Sequence,
    /// Every sequence below has its result.
    pub acknowledgement: AckedBelow,
}

/// One client's sequences.
#[derive(Clone, Debug)]
pub struct ClientWindow {
    next: Sequence,
    acknowledgement: AckedBelow,
    max: u64,
    /// Bit `sequence % OUTSTANDING_MAX`: finished, though a lower one is not.
    finished: [u64; WORDS],
}

impl Default for ClientWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientWindow {
    /// The window of a client id that was never used.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max(OUTSTANDING_MAX)
    }

    /// The same, for a client that wants no more than so many sequences outstanding.
    ///
    /// # Panics
    /// If that is none, or more than `OUTSTANDING_MAX`.
    #[must_use]
    pub fn with_max(max: u64) -> Self {
        assert!((1..=OUTSTANDING_MAX).contains(&max), "a window of {max}");
        Self { next: Sequence(1), acknowledgement: AckedBelow(1), max, finished: [0; WORDS] }
    }

    /// The next update's numbers; `None` while the window is full: wait for the lowest outstanding one.
    pub fn assign(&mut self) -> Option<Assigned> {
        if !self.has_room() {
            return None;
        }
        let sequence = self.next;
        self.next = Sequence(sequence.0 + 1);
        Some(Assigned { sequence, acknowledgement: self.acknowledgement })
    }

    /// Whether [`Self::assign`] has a sequence to give.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.unacknowledged() < self.max
    }

    /// The result of `sequence` has arrived, or it was certainly not executed and never will be (R2.2).
    ///
    /// # Panics
    /// If `sequence` was not assigned, or is finished already.
    pub fn finish(&mut self, sequence: Sequence) {
        let assigned = sequence.0 >= self.acknowledgement.0 && sequence < self.next;
        assert!(assigned && !self.is_finished(sequence), "{sequence} is not outstanding");
        let (word, bit) = Self::bit_of(sequence);
        self.finished[word] |= bit;
        loop {
            let lowest = Sequence(self.acknowledgement.0);
            if !self.is_finished(lowest) {
                return;
            }
            let (word, bit) = Self::bit_of(lowest);
            self.finished[word] &= !bit;
            self.acknowledgement.0 += 1;
        }
    }

    /// Every sequence below this one has its result.
    #[must_use]
    pub fn acknowledgement(&self) -> AckedBelow {
        self.acknowledgement
    }

    /// How much of the window is in use, sequences finished above an unfinished one included.
    #[must_use]
    pub fn unacknowledged(&self) -> u64 {
        self.next.0 - self.acknowledgement.0
    }

    fn is_finished(&self, sequence: Sequence) -> bool {
        let (word, bit) = Self::bit_of(sequence);
        self.finished[word] & bit != 0
    }

    fn bit_of(sequence: Sequence) -> (usize, u64) {
        let index = (sequence.0 % OUTSTANDING_MAX) as usize;
        (index / 64, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_window_is_full_earlier() {
        let mut window = ClientWindow::with_max(2);
        let first = window.assign().expect("room");
        assert!(window.has_room());
        let _ = window.assign().expect("room");
        assert!(!window.has_room() && window.assign().is_none());
        window.finish(first.sequence);
        assert!(window.has_room());
    }

    #[test]
    fn sequences_start_at_one_and_the_window_is_bounded() {
        let mut window = ClientWindow::new();
        for expected in 1..=OUTSTANDING_MAX {
            let expected = Assigned { sequence: Sequence(expected), acknowledgement: AckedBelow(1) };
            assert_eq!(window.assign(), Some(expected));
        }
        assert_eq!(window.assign(), None);
        window.finish(Sequence(2));
        assert_eq!(window.assign(), None, "the lowest one still holds the window");
        window.finish(Sequence(1));
        assert_eq!(window.acknowledgement(), AckedBelow(3));
        assert_eq!(window.unacknowledged(), OUTSTANDING_MAX - 2);
        let next = window.assign().expect("two are free");
        assert_eq!(next, Assigned { sequence: Sequence(513), acknowledgement: AckedBelow(3) });
    }

    #[test]
    fn pitfall_1_an_abandoned_call_is_not_acknowledged() {
        let mut window = ClientWindow::new();
        let abandoned = window.assign().expect("free");
        for _ in 1..OUTSTANDING_MAX {
            let other = window.assign().expect("free");
            window.finish(other.sequence);
        }
        assert_eq!(window.acknowledgement(), AckedBelow(abandoned.sequence.0));
        window.finish(abandoned.sequence);
        assert_eq!(window.acknowledgement(), AckedBelow(OUTSTANDING_MAX + 1));
    }

    #[test]
    #[should_panic(expected = "is not outstanding")]
    fn nothing_finishes_twice() {
        let mut window = ClientWindow::new();
        let _held = window.assign();
        let second = window.assign().expect("free");
        window.finish(second.sequence);
        window.finish(second.sequence);
    }
}
