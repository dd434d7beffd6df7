//! What the group replicates, and what its members remember of rounds.

use kasha_types::Tick;

/// The state that the group replicates. The same operations in the same order make the same state everywhere.
pub trait State: Clone {
    /// Whether the operation is possible. A member asks before it takes an operation: one bad operation must not stop all
    /// members at each replay (R9.11).
    ///
    /// # Errors
    /// Why it is not.
    fn permits(&self, operation: &[u8]) -> Result<(), String>;

    /// Applies an operation that is permitted.
    fn apply(&mut self, operation: &[u8]);

    /// A checksum of the state. Members compare theirs (R9.11).
    fn digest(&self) -> u64;

    /// The state as bytes.
    fn snapshot(&self) -> Vec<u8>;

    /// The state that these bytes are.
    ///
    /// # Errors
    /// Why these bytes are none.
    fn restore(bytes: &[u8]) -> Result<Self, String>;
}

/// What is no part of the log, and yet must not be forgotten when the leader changes: a clock, leases. Rounds carry it (R9.4).
pub trait Memory {
    /// A round of ours begins: what all are to remember.
    fn ask(&mut self, now: Tick) -> Vec<u8>;

    /// A round of the leader has come.
    fn hear(&mut self, now: Tick, value: &[u8]);

    /// The view changes: what is remembered, by our clock now. `knows_all`: all that a quorum does, but for what is too long for a vote.
    fn recall(&self, now: Tick, knows_all: bool) -> Vec<u8>;

    /// This member begins to lead. What it remembers itself may be less than a quorum does, until its user has heard of
    /// [`crate::Output::Leads`] and told it more: rounds before that must not pass it on. `knew_all`: it remembered what a quorum does.
    fn begins(&mut self, _knew_all: bool) {}

    /// Whether what a leader remembers can be taught by now.
    fn may_teach(&self) -> bool {
        true
    }

    /// What is too long for a vote, from this key on: a piece that fits in a message, and the key of the next one. The first key is 0.
    fn piece(&self, _now: Tick, _behind: u64) -> (Vec<u8>, Option<u64>) {
        (Vec::new(), None)
    }

    /// A piece of what another member remembers. Returns whether it could be read.
    fn merge(&mut self, _now: Tick, _piece: &[u8]) -> bool {
        true
    }

    /// All pieces of a quorum are here: whoever leads knows what anybody was told before. It has worked with a bound since
    /// [`crate::Output::Leads`].
    fn gathered(&mut self) {}
}

/// Nothing is remembered.
impl Memory for () {
    fn ask(&mut self, _: Tick) -> Vec<u8> {
        Vec::new()
    }

    fn hear(&mut self, _: Tick, _: &[u8]) {}

    fn recall(&self, _: Tick, _: bool) -> Vec<u8> {
        Vec::new()
    }
}
