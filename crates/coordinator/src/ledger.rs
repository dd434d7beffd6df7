//! What is decided, and what is committed (0054).
//!
//! A command is *decided* when it is appended to the log. The decided state has it at once, since the next decision
//! begins before this one is committed, and must not contradict it. A command is *committed* when the log says so: only
//! then does the committed state have it. In between, a crash loses the command, so nobody may have heard of it. What the
//! coordinator tells is therefore read from the committed state, or waits for every decision before it ([`Basis`]).
//!
//! **D3** A [`Basis`] is made here only. In one process a command is committed when the coordinator's own file has it. A
//! group of coordinators asks its members in between; the rest of this crate does not see the difference.

use std::collections::VecDeque;

use kasha_machine::{Effects, Gate};
use kasha_types::LocalPosition;

use crate::storage::{Found, Log};
use crate::{Command, State};

/// What a message follows from. It leaves when that is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Basis(Option<LocalPosition>);

impl Basis {
    /// No command: a message that follows from what has just come in.
    pub(crate) const NO_COMMAND: Self = Self(None);

    /// The gate of a message that follows from this.
    pub(crate) fn gate(self) -> Gate {
        self.0.map_or(Gate::Now, Gate::Durable)
    }
}

/// The commands of the coordinator, on their way from decided to committed.
#[derive(Debug)]
pub(crate) struct Ledger {
    decided: State,
    committed: State,
    /// Commands that are decided and not committed, in order, and the commit of our file that holds each.
    in_flight: VecDeque<(LocalPosition, Command)>,
    decided_to: LocalPosition,
    committed_to: LocalPosition,
    log: Log,
}

impl Ledger {
    /// Goes on from what the files were `found` to hold, which is this state; or a new cluster begins with it.
    pub(crate) fn start(found: Found, state: State, out: &mut Effects) -> Self {
        Self {
            decided: state.clone(),
            committed: state,
            in_flight: VecDeque::new(),
            decided_to: LocalPosition(0),
            committed_to: LocalPosition(0),
            log: Log::start(found, out),
        }
    }

    /// Begins a new file. Its snapshot has what is decided by now.
    pub(crate) fn begin_file(&mut self, out: &mut Effects) {
        self.log.begin_file(&self.decided, out);
        self.decided_to = self.log.end();
    }

    /// What the next decision begins from.
    pub(crate) fn decided(&self) -> &State {
        &self.decided
    }

    /// What anybody may know.
    pub(crate) fn committed(&self) -> &State {
        &self.committed
    }

    /// Decides a command. What is told from now on may follow from it.
    pub(crate) fn decide(&mut self, command: Command) {
        self.decided.apply(&command);
        self.log.append(&command);
        self.decided_to = self.log.end();
        self.in_flight.push_back((self.decided_to, command));
    }

    /// All that is decided by now: the basis of a message that may follow from any of it.
    pub(crate) fn all_decided(&self) -> Basis {
        Basis((self.committed_to < self.decided_to).then_some(self.decided_to))
    }

    /// Everything up to here is committed.
    pub(crate) fn commit(&mut self, up_to: LocalPosition) {
        assert!(up_to <= self.decided_to, "D3: only what was decided is committed");
        self.committed_to = self.committed_to.max(up_to);
        while let Some((_, command)) = self.in_flight.pop_front_if(|&mut (position, _)| position <= up_to) {
            self.committed.apply(&command);
        }
    }

    /// Whether what waits for this position may leave.
    pub(crate) fn is_committed(&self, position: LocalPosition) -> bool {
        position <= self.committed_to
    }

    /// Whether what follows from this may leave.
    pub(crate) fn has_committed(&self, basis: Basis) -> bool {
        basis.0.is_none_or(|position| self.is_committed(position))
    }

    /// Whether nothing decided waits to be committed.
    pub(crate) fn is_all_committed(&self) -> bool {
        self.committed_to == self.decided_to
    }

    /// Whether too much waits for a stuck disk.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.log.is_backed_up()
    }

    /// Our own file holds everything up to this position.
    pub(crate) fn on_durable(&mut self, position: LocalPosition, out: &mut Effects) {
        self.log.on_durable(position, out);
    }

    /// Writes what is decided to our own file.
    pub(crate) fn flush(&mut self, out: &mut Effects) {
        self.log.flush(&self.decided, out);
    }

    /// Panics if the two states do not differ by just what is in flight.
    pub(crate) fn assert_invariants(&self) {
        self.decided.assert_invariants();
        let in_flight = self.in_flight.len() as u64;
        assert_eq!(self.decided.applied(), self.committed.applied() + in_flight, "D3: a decision is committed once");
        assert!(in_flight > 0 || self.decided == self.committed, "D3: what is committed is what was decided");
    }
}
