//! The parts of a state of the model.
//!
//! Frames are not kept: a frame that was sent may arrive at any time, any number of times, or never. So an attempt that
//! was begun is a request and its records, which can be delivered for ever. The content of an answer or an acceptance
//! is kept as a fact that its client may or may not learn. That covers delay, loss, duplication and reordering.

use arrayvec::ArrayVec;

/// The greatest number of updates in a program.
pub const CALLS_MAX: usize = 4;
/// The greatest number of entries in a log.
pub const LOG_MAX: usize = 10;
/// The greatest number of terms.
pub const TERMS_MAX: usize = 3;
/// The greatest number of witness lists.
pub const LISTS_MAX: usize = 4;
/// The greatest number of witnesses of a list.
pub const FAULTS_MAX: usize = 2;

/// An update, by its place in the program.
pub type CallIx = u8;

/// The outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The counter after the update.
    Count(u8),
    /// The operation key was used with another request.
    Mismatch,
    /// The update was cancelled.
    Cancelled,
}

/// What the caller of an update knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The call has not begun.
    Waiting,
    /// The call is under way.
    Running,
    /// *Executed, with this result.*
    Executed(Outcome),
    /// The caller was told: *not executed.*
    NotExecuted,
    /// The caller was told: *unknown.*
    Unknown,
}

/// The receivers of an attempt: a witness list from 1; or, above [`LISTS_MAX`], a term from 1 without a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt(pub u8);

impl Attempt {
    /// No attempt yet.
    pub const NONE: Self = Self(0);

    /// An attempt to the primary of `epoch` only, without witnesses.
    pub fn without_list(epoch: u8) -> Self {
        Self(LISTS_MAX as u8 + epoch)
    }

    /// The list of the attempt, 0 if there is none.
    pub fn list(self) -> u8 {
        if usize::from(self.0) > LISTS_MAX { 0 } else { self.0 }
    }
}

/// One call of a client, and the messages of the call that the network carries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// What the caller knows.
    pub stage: Stage,
    /// The acknowledgement in the body: every sequence below it has its result.
    pub acknowledgement: u8,
    /// The lease expiry in the body.
    pub lease: u8,
    /// The calls that had ended when this one began.
    pub before: u8,
    /// The attempts that were sent, one bit each.
    pub sent: u16,
    /// The attempt that is running.
    pub current: Attempt,
    /// Answers of primaries without a sync, by list.
    pub answers: [Option<Outcome>; LISTS_MAX + 1],
    /// The witnesses that accepted it, by list.
    pub accepted: [u8; LISTS_MAX + 1],
    /// For a read: its value, the term that read it, and what must be synced before it may be told.
    pub read: Option<(u8, u8, u8)>,
    /// The caller gave the call up: only a recorded outcome ends it.
    pub cancelled: bool,
    /// The client was told that its lease is over, when the update had not been executed.
    pub told_over: bool,
}

/// An entry group of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A completion record, with the change, if there was one.
    Record(Record),
    /// An expiry floor: leases that end up to here are over.
    Floor(u8),
    /// The operation key has expired, at this time.
    KeyDropped(u8),
}

/// A completion record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The call whose record it is.
    pub call: CallIx,
    /// The acknowledgement that it carries.
    pub acknowledgement: u8,
    /// The acknowledgement that a later replay of the log reads. It differs only if a rule is switched off.
    pub stored: u8,
    /// The lease expiry in the body.
    pub lease: u8,
    /// The outcome that is recorded.
    pub outcome: Outcome,
    /// Whether the call changed something. A hit of an operation key, a mismatch and a cancellation do not.
    pub executed: bool,
}

/// The stage of a term (`primary::Stage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TermStage {
    /// The log is replayed, and the term waits for a witness.
    Witnessing,
    /// The log is synced to the committed set.
    Syncing,
    /// Clients are served.
    Serving,
}

/// A primary and its term. It may be deposed without knowing it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The stage of the term.
    pub stage: TermStage,
    /// The log of the term.
    pub log: ArrayVec<Entry, LOG_MAX>,
    /// Number of entries that it took over.
    pub base: u8,
    /// Number of entries that every member holds, as the primary knows.
    pub synced: u8,
    /// A member of the set obeys a later term, so that this term can sync nothing any more.
    pub deposed: bool,
    /// The list under which it serves; 0 while the list is being closed.
    pub list: u8,
    /// The list is closed when the log up to here is synced.
    pub closing_at: Option<u8>,
    /// Records of client 1 before this entry are dropped, because of an expiry floor.
    pub forgotten: u8,
}

/// One witness of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// The requests that it holds, one bit each.
    pub held: u8,
    /// A recovery has read the witness.
    pub frozen: bool,
    /// The witness's machine lost power: it may have lost what it accepted.
    pub power_lost: bool,
}

/// A witness list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WitnessList {
    /// The term in which the list was opened.
    pub epoch: u8,
    /// The witnesses of the list.
    pub witnesses: [Witness; FAULTS_MAX],
}

/// Client 1's lease, as the coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// The first lease runs.
    Held,
    /// The lease is over.
    Over,
    /// The client is back with a later one (a restarted coordinator extends all leases).
    Back,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The calls of the program.
    pub calls: ArrayVec<Call, CALLS_MAX>,
    /// Terms, from epoch 1.
    pub terms: ArrayVec<Term, TERMS_MAX>,
    /// Committed lists, from version 1.
    pub lists: ArrayVec<WitnessList, LISTS_MAX>,
    /// The committed phase: the last term serves.
    pub serving: bool,
    /// The committed list is being closed.
    pub closing: bool,
    /// List changes that may still happen.
    pub list_changes: u8,
    /// Restarts of witnesses that may still happen.
    pub restarts: u8,
    /// Losses of power of witnesses that may still happen.
    pub power_losses: u8,
    /// Client 1's lease.
    pub lease: Lease,
    /// The present ClusterTime.
    pub time: u8,
}

impl State {
    /// The epoch of the newest term.
    pub fn epoch(&self) -> u8 {
        self.terms.len() as u8
    }

    /// The newest term.
    pub fn newest(&self) -> &Term {
        self.terms.last().expect("there is one from the start")
    }

    /// The term of an epoch.
    pub fn term(&self, epoch: u8) -> &Term {
        &self.terms[usize::from(epoch) - 1]
    }

    /// The term of an epoch, to be changed.
    pub fn term_mut(&mut self, epoch: u8) -> &mut Term {
        &mut self.terms[usize::from(epoch) - 1]
    }

    /// The newest committed list's version.
    pub fn list(&self) -> u8 {
        self.lists.len() as u8
    }

    /// The term to whose primary an attempt goes.
    pub fn epoch_of(&self, attempt: Attempt) -> u8 {
        match attempt.list() {
            0 => attempt.0 - LISTS_MAX as u8,
            list => self.lists[usize::from(list) - 1].epoch,
        }
    }

    /// The call with this number.
    pub fn call(&self, call: CallIx) -> &Call {
        &self.calls[usize::from(call)]
    }

    /// The call with this number, to be changed.
    pub fn call_mut(&mut self, call: CallIx) -> &mut Call {
        &mut self.calls[usize::from(call)]
    }

    /// The attempts of a call that were sent.
    pub fn sent(&self, call: CallIx) -> impl Iterator<Item = Attempt> + use<> {
        let sent = self.call(call).sent;
        (1..=(LISTS_MAX + TERMS_MAX) as u8).filter(move |bit| sent & 1 << bit != 0).map(Attempt)
    }
}

impl Term {
    /// The end of the term's log.
    pub fn end(&self) -> u8 {
        self.log.len() as u8
    }

    /// The record of a call, and where it is.
    pub fn record(&self, call: CallIx) -> Option<(u8, Record)> {
        self.records().find(|(_, record)| record.call == call)
    }

    /// All records, dead ones too.
    pub fn records(&self) -> impl Iterator<Item = (u8, Record)> + '_ {
        (0..).zip(&self.log).filter_map(|(at, entry)| match entry {
            Entry::Record(record) => Some((at, *record)),
            Entry::Floor(_) | Entry::KeyDropped(_) => None,
        })
    }

    /// The newest expiry floor, and where it is.
    pub fn floor(&self) -> Option<(u8, u8)> {
        let floors = (0..).zip(&self.log).filter_map(|(at, entry)| match entry {
            Entry::Floor(lease) => Some((at, *lease)),
            Entry::Record(_) | Entry::KeyDropped(_) => None,
        });
        floors.last()
    }
}
