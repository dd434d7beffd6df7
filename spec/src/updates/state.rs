//! What a state of the model consists of.
//!
//! Frames are not kept: whatever was sent may arrive at any time, any number of times, or never. So an attempt that was
//! begun is a request and its records that can be delivered for ever; what an answer or an acceptance says is kept as a
//! fact that its client may or may not come to know. That is delay, loss, duplication and reordering in one.

use arrayvec::ArrayVec;

/// Updates of one program.
pub const CALLS_MAX: usize = 4;
/// Entries of a log.
pub const LOG_MAX: usize = 10;
/// Terms of primaries.
pub const TERMS_MAX: usize = 3;
/// Witness lists.
pub const LISTS_MAX: usize = 4;
/// Witnesses of a list.
pub const FAULTS_MAX: usize = 2;

/// An update, by its place in the program.
pub type CallIx = u8;

/// What an update came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The counter after it.
    Count(u8),
    /// Its operation key was used for something else.
    Mismatch,
    /// It was given up.
    Cancelled,
}

/// What its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Not called yet.
    Waiting,
    /// Under way.
    Running,
    /// *Executed, with this result.*
    Executed(Outcome),
    /// *Not executed.*
    NotExecuted,
    /// *Unknown.*
    Unknown,
}

/// Where an attempt went: a witness list from 1, or, beyond [`LISTS_MAX`], a term from 1 without a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt(pub u8);

impl Attempt {
    /// No attempt.
    pub const NONE: Self = Self(0);

    /// To the primary of `epoch`, and to no witness.
    pub fn without_list(epoch: u8) -> Self {
        Self(LISTS_MAX as u8 + epoch)
    }

    /// The list, 0 if there is none.
    pub fn list(self) -> u8 {
        if usize::from(self.0) > LISTS_MAX { 0 } else { self.0 }
    }
}

/// One call of a client, and what the network carries for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// What its caller knows.
    pub stage: Stage,
    /// In its body: every sequence below has its result.
    pub acknowledgement: u8,
    /// In its body: the end of its client's lease.
    pub lease: u8,
    /// The calls that had ended when it began.
    pub before: u8,
    /// The attempts that were sent, a bit each.
    pub sent: u16,
    /// The one that is running.
    pub current: Attempt,
    /// What a primary answered without a sync, by list.
    pub answers: [Option<Outcome>; LISTS_MAX + 1],
    /// Which witnesses accepted it, by list.
    pub accepted: [u8; LISTS_MAX + 1],
    /// A read's value, the term that read it, and what must be synced before it may be told.
    pub read: Option<(u8, u8, u8)>,
    /// It was given up by its caller: only a recorded outcome ends it.
    pub cancelled: bool,
    /// Its client was told that its lease is over, when it had not been executed.
    pub told_over: bool,
}

/// An entry group of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A completion record, with the change if there was one.
    Record(Record),
    /// The expiry floor: leases that end up to here are over.
    Floor(u8),
    /// The operation key has expired, at this time.
    KeyDropped(u8),
}

/// A completion record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Whose.
    pub call: CallIx,
    /// The acknowledgement that it carries.
    pub acknowledgement: u8,
    /// The one that a later replay of the log reads (the same, but for a broken rule).
    pub stored: u8,
    /// The lease in its body.
    pub lease: u8,
    /// What it came to.
    pub outcome: Outcome,
    /// It changed something. A hit of an operation key, a mismatch and a cancellation do not.
    pub executed: bool,
}

/// Where a term is (`primary::Stage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TermStage {
    /// The log is replayed; a witness is waited for.
    Witnessing,
    /// Everything goes to the committed set.
    Syncing,
    /// Clients are served.
    Serving,
}

/// A primary: it may be deposed and not know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// Where it is.
    pub stage: TermStage,
    /// Its log.
    pub log: ArrayVec<Entry, LOG_MAX>,
    /// Entries that it took over.
    pub base: u8,
    /// Entries that every member holds, as it knows.
    pub synced: u8,
    /// A member of its set obeys a later term: it can sync nothing any more.
    pub deposed: bool,
    /// The list that it serves under, 0 while that is being closed.
    pub list: u8,
    /// The list is closed when this is synced.
    pub closing_at: Option<u8>,
    /// Client 1's records before this are forgotten, by an expiry floor.
    pub forgotten: u8,
}

/// A witness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// The requests that it holds, a bit each.
    pub held: u8,
    /// A recovery has read it.
    pub frozen: bool,
    /// Its machine lost power: it may have forgotten what it accepted.
    pub power_lost: bool,
}

/// A witness list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WitnessList {
    /// The term it was opened in.
    pub epoch: u8,
    /// Its witnesses.
    pub witnesses: [Witness; FAULTS_MAX],
}

/// Client 1's lease, as the coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// The first one runs.
    Held,
    /// It is over.
    Over,
    /// The client is back with a later one (a restarted coordinator extends all leases).
    Back,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The program's calls.
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
    /// ClusterTime.
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

    /// A call.
    pub fn call(&self, call: CallIx) -> &Call {
        &self.calls[usize::from(call)]
    }

    /// A call, to be changed.
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
    /// Its log's end.
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
