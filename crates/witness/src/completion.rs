//! When an update is complete (CURP 3.2.1, R2.1): the client's side of the one round trip.
//!
//! Collects what one attempt is told. It knows neither time nor connections: giving up on a silent witness and asking
//! for a sync, or starting a new attempt, is the session's business.

use kasha_types::planted::{self, Bug};
use kasha_types::{Epoch, ListVersion};

/// The primary's answer and the witnesses' words for **one** attempt: one epoch, one list version.
///
/// A new attempt is a new value; what the old one collected is gone with it (R2.1 \[M\]). Messages of another epoch or
/// list version are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    epoch: Epoch,
    list: ListVersion,
    witnesses: u8,
    accepted: u8,
    rejected: u8,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    None,
    Unsynced,
    Synced,
}

/// How an update became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Every witness of the list holds it: one round trip.
    Fast,
    /// Every member of the replica set holds it.
    Synced,
}

/// What the client is to do about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer may be given to the caller.
    Complete(Path),
    /// Messages that could complete it are still missing.
    Wait,
    /// The answer is there but the fast path is lost: ask the primary to sync.
    NeedSync,
}

impl Attempt {
    /// An attempt that is about to be sent to the primary of `epoch` and to the `witnesses` nodes of list `list`.
    /// Without witnesses, or with [`ListVersion::NONE`], only a synced answer completes it (R6.1).
    ///
    /// # Panics
    /// With more than 8 witnesses.
    #[must_use]
    pub fn new(epoch: Epoch, list: ListVersion, witnesses: u8) -> Self {
        assert!(u32::from(witnesses) <= u8::BITS, "a list of {witnesses} witnesses");
        let witnesses = if list == ListVersion::NONE { 0 } else { witnesses };
        Self { epoch, list, witnesses, accepted: 0, rejected: 0, answer: Answer::None }
    }

    /// The primary of `epoch` answered, or confirmed a sync (`synced`). Once synced, always synced.
    pub fn on_answer(&mut self, epoch: Epoch, synced: bool) {
        if epoch != self.epoch {
            return;
        }
        if synced {
            self.answer = Answer::Synced;
        } else if self.answer == Answer::None {
            self.answer = Answer::Unsynced;
        }
    }

    /// Witness number `witness` (from 0, in the list's order) of list `list` accepted or rejected the record. A
    /// witness counts once; one that ever rejected counts as rejecting, which costs a sync and never safety.
    ///
    /// # Panics
    /// If the list has no such witness: the session numbers them itself.
    pub fn on_recorded(&mut self, list: ListVersion, witness: u8, accepted: bool) {
        if list != self.list || self.witnesses == 0 {
            return;
        }
        assert!(witness < self.witnesses, "witness {witness} of {}", self.witnesses);
        let bit = 1 << witness;
        if accepted {
            self.accepted |= bit;
        } else {
            self.rejected |= bit;
        }
    }

    /// Whether the primary answered: without an answer a silent attempt must be repeated, with one it can be synced.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.answer != Answer::None
    }

    /// Whether the witness of this number has accepted.
    #[must_use]
    pub fn has_accepted(&self, witness: u8) -> bool {
        self.accepted & 1 << witness != 0
    }

    /// Whether the witness of this number has accepted or rejected.
    #[must_use]
    pub fn has_spoken(&self, witness: u8) -> bool {
        (self.accepted | self.rejected) & 1 << witness != 0
    }

    /// Judges by the messages so far.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.answer {
            Answer::None => Verdict::Wait,
            Answer::Synced => Verdict::Complete(Path::Synced),
            Answer::Unsynced if self.rejected != 0 => Verdict::NeedSync,
            Answer::Unsynced if self.witnesses == 0 && !planted::is_on(Bug::ShortListFast) => Verdict::NeedSync,
            Answer::Unsynced if self.accepted.count_ones() == u32::from(self.witnesses) => {
                Verdict::Complete(Path::Fast)
            }
            Answer::Unsynced => Verdict::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch(4);
    const LIST: ListVersion = ListVersion(7);

    fn attempt() -> Attempt {
        Attempt::new(EPOCH, LIST, 3)
    }

    #[test]
    fn curp_3_2_1_all_acceptances_and_the_answer_complete_in_any_order() {
        for answer_at in 0..=3 {
            let mut attempt = attempt();
            for step in 0..=3 {
                assert_eq!(attempt.verdict(), Verdict::Wait);
                if step == answer_at {
                    attempt.on_answer(EPOCH, false);
                } else {
                    attempt.on_recorded(LIST, if step < answer_at { step } else { step - 1 }, true);
                }
            }
            assert_eq!(attempt.verdict(), Verdict::Complete(Path::Fast));
        }
    }

    #[test]
    fn curp_3_2_1_acceptances_without_an_answer_complete_nothing() {
        let mut attempt = attempt();
        (0..3).for_each(|witness| attempt.on_recorded(LIST, witness, true));
        assert_eq!(attempt.verdict(), Verdict::Wait);
        assert!(!attempt.is_answered());
    }

    #[test]
    fn curp_3_2_1_a_rejection_asks_for_a_sync_as_soon_as_there_is_an_answer() {
        let mut attempt = attempt();
        attempt.on_recorded(LIST, 1, false);
        assert_eq!(attempt.verdict(), Verdict::Wait);
        attempt.on_answer(EPOCH, false);
        assert_eq!(attempt.verdict(), Verdict::NeedSync);
        (0..3).for_each(|witness| attempt.on_recorded(LIST, witness, true));
        assert_eq!(attempt.verdict(), Verdict::NeedSync, "a rejection sticks");
        attempt.on_answer(EPOCH, true);
        assert_eq!(attempt.verdict(), Verdict::Complete(Path::Synced));
        attempt.on_answer(EPOCH, false);
        assert_eq!(attempt.verdict(), Verdict::Complete(Path::Synced), "a late duplicate takes nothing back");
    }

    #[test]
    fn r2_1_one_witness_counts_once() {
        let mut attempt = attempt();
        attempt.on_answer(EPOCH, false);
        (0..5).for_each(|_| attempt.on_recorded(LIST, 2, true));
        assert_eq!(attempt.verdict(), Verdict::Wait);
    }

    #[test]
    fn r2_1_messages_of_another_attempt_do_not_count() {
        let mut attempt = attempt();
        attempt.on_answer(Epoch(3), true);
        assert_eq!(attempt.verdict(), Verdict::Wait);
        attempt.on_answer(EPOCH, false);
        (0..3).for_each(|witness| attempt.on_recorded(ListVersion(6), witness, true));
        (0..3).for_each(|witness| attempt.on_recorded(ListVersion(8), witness, false));
        assert_eq!(attempt.verdict(), Verdict::Wait);
    }

    #[test]
    fn r6_1_without_a_list_only_a_synced_answer_completes() {
        for mut attempt in [Attempt::new(EPOCH, ListVersion::NONE, 3), Attempt::new(EPOCH, LIST, 0)] {
            assert_eq!(attempt.verdict(), Verdict::Wait);
            attempt.on_recorded(attempt.list, 0, true);
            attempt.on_answer(EPOCH, false);
            assert_eq!(attempt.verdict(), Verdict::NeedSync);
            attempt.on_answer(EPOCH, true);
            assert_eq!(attempt.verdict(), Verdict::Complete(Path::Synced));
        }
    }
}
