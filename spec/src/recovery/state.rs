//! The parts of a state: the coordinator's decisions, each member's files and memory, witnesses, and what clients know.
//!
//! Sets of nodes, updates or lists are bit masks, so that states are small and compare fast.

use arrayvec::ArrayVec;

/// The greatest number of members.
pub const NODES_MAX: usize = 3;
/// The greatest number of entries in a log.
pub const LOG_MAX: usize = 14;
/// The greatest number of witness lists.
pub const LISTS_MAX: usize = 5;
/// The greatest number of witnesses of a list.
pub const FAULTS_MAX: usize = 2;
/// The greatest number of updates.
pub const UPDATES_MAX: usize = 2;

/// A member, from 0.
pub type NodeIx = u8;
/// An update, from 0. All of them commute.
pub type UpdateIx = u8;
/// The entries of a log, in order.
pub type Log = ArrayVec<Entry, LOG_MAX>;

/// The kind of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A term begins.
    Start,
    /// An update was executed.
    Update(UpdateIx),
    /// `Whole`: the log holds everything that was answered under this list.
    Whole(u8),
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The term in which it was written.
    pub epoch: u8,
    /// The kind of the entry.
    pub kind: Kind,
}

/// The committed configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Committed {
    /// The newest term.
    pub epoch: u8,
    /// The primary of the newest term.
    pub primary: NodeIx,
    /// The newest term serves.
    pub serving: bool,
    /// The members of the set, one bit each.
    pub members: u8,
    /// The members of the set that last served, one bit each.
    pub recover_from: u8,
    /// The newest term that was reported recovered, and its primary.
    pub served: (u8, NodeIx),
}

/// A witness of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Witness {
    /// The updates that it holds, one bit each.
    pub held: u8,
    /// A recovery has read the witness.
    pub frozen: bool,
    /// The files of the witness are lost for good.
    pub lost: bool,
}

/// A witness list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct List {
    /// An orderly stop opened this list: it has no witnesses, and no update is answered under it.
    pub empty: bool,
    /// The witnesses of the list.
    pub witnesses: [Witness; FAULTS_MAX],
}

/// The stage of a term (`primary::Stage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Members promise the epoch and report their logs.
    Fencing,
    /// Another member's log is fetched; `whole`: it needs no witness.
    Fetching { from: NodeIx, whole: bool },
    /// The log is known, and it needs no witness.
    Replaying,
    /// The log may lack something: the term waits for a witness.
    Witnessing,
    /// The log is synced to the committed set.
    Syncing,
    /// The mark is on file, and the coordinator is told.
    Reporting,
    /// Clients are served.
    Serving,
}

/// The report of a member to a fence. The member may hold something else by now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Report {
    /// The log that the member had.
    pub log: Log,
    /// The member surely holds what it acknowledged (R5.5).
    pub intact: bool,
    /// The log needs no witness (R7.7 (e)).
    pub whole: bool,
}

impl Report {
    /// The rank of the log in an election: the epoch of its last entry, and its end.
    pub fn greatness(&self) -> (u8, usize) {
        (self.log.last().map_or(0, |entry| entry.epoch), self.log.len())
    }
}

/// The memory of a primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Primary {
    /// The epoch of the term.
    pub epoch: u8,
    /// The stage of the term.
    pub stage: Stage,
    /// The reports of members.
    pub reports: [Option<Report>; NODES_MAX],
    /// The members of its set, one bit each.
    pub members: u8,
    /// Up to where attached members have acknowledged its log.
    pub acked: [Option<u8>; NODES_MAX],
    /// Up to where every member holds the log.
    pub synced: u8,
    /// Up to where its log is whole, by its own entry.
    pub whole_end: u8,
    /// The list with which it was promoted, and under which it later serves.
    pub list: u8,
    /// The list is being closed, or the process stops: answers leave when the log up to here is synced, and then the
    /// list changes.
    pub closing_at: Option<u8>,
    /// All its answers are gated for the rest of the term.
    pub stops: bool,
    /// Updates that it executed and may answer without a sync, one bit each.
    pub fast: u8,
}

/// A member: its files and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// The node is not dead for good.
    pub up: bool,
    /// The promised epoch, on file: no smaller epoch is obeyed.
    pub promised: u8,
    /// The log in memory.
    pub log: Log,
    /// How much of the log its file holds.
    pub held: u8,
    /// How much of the log was fsynced, under `fsync`.
    pub flushed: u8,
    /// `whole` in its `replica.meta`; 0: no mark.
    pub mark: u8,
    /// It surely holds what it acknowledged (R5.5).
    pub intact: bool,
    /// The epoch of the primary to which it is attached.
    pub attached: u8,
    /// Its memory as a primary, if it is one.
    pub primary: Option<Box<Primary>>,
}

/// What is known about an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Update {
    /// Lists under which a primary answered it without a sync, one bit each.
    pub answered: u8,
    /// The witnesses that accepted it, by list.
    pub accepted: [u8; LISTS_MAX],
    /// Its client may have the result.
    pub done: bool,
}

/// What may still happen: the budgets of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Left {
    /// New terms that may still begin.
    pub terms: u8,
    /// Kills of a primary's process.
    pub kills: u8,
    /// Losses of witnesses' files, of machines, of power, and damage.
    pub losses: u8,
    /// Changes of the list within a term.
    pub list_changes: u8,
    /// Orderly stops that may still happen.
    pub stops: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The committed configuration.
    pub committed: Committed,
    /// The members, by number.
    pub nodes: ArrayVec<Node, NODES_MAX>,
    /// Committed lists, from version 1.
    pub lists: ArrayVec<List, LISTS_MAX>,
    /// The updates, by number.
    pub updates: [Update; UPDATES_MAX],
    /// The budgets that are left.
    pub left: Left,
}

/// The numbers of the bits that are set.
pub fn bits(mask: u8) -> impl Iterator<Item = NodeIx> + Clone {
    (0..8).filter(move |bit| mask & 1 << bit != 0)
}

impl State {
    /// The member with this number.
    pub fn node(&self, node: NodeIx) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// The member with this number, to be changed.
    pub fn node_mut(&mut self, node: NodeIx) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// The memory of a primary.
    pub fn primary(&self, node: NodeIx) -> Option<&Primary> {
        self.node(node).primary.as_deref()
    }

    /// The memory of a primary, to be changed.
    pub fn primary_mut(&mut self, node: NodeIx) -> &mut Primary {
        self.node_mut(node).primary.as_mut().expect("it leads")
    }

    /// The numbers of all members, of whatever set.
    pub fn all(&self) -> impl Iterator<Item = NodeIx> + use<> {
        0..self.nodes.len() as u8
    }

    /// The version of the list in force.
    pub fn list(&self) -> u8 {
        self.lists.len() as u8
    }

    /// The list with this version.
    pub fn list_mut(&mut self, list: u8) -> &mut List {
        &mut self.lists[usize::from(list) - 1]
    }
}

impl Node {
    /// The end of the log.
    pub fn end(&self) -> u8 {
        self.log.len() as u8
    }

    /// The position of an update in the log.
    pub fn place(&self, update: UpdateIx) -> Option<u8> {
        self.log.iter().position(|entry| entry.kind == Kind::Update(update)).map(|at| at as u8)
    }

    /// Gives up any role. With the promise, the whole log in memory goes to the file.
    pub fn lose_role(&mut self) {
        self.primary = None;
        self.attached = 0;
        (self.held, self.flushed) = (self.end(), self.end());
    }
}

/// Up to where two logs are equal, as far as their histories tell.
pub fn common_prefix(a: &Log, b: &Log) -> u8 {
    a.iter().zip(b).take_while(|(a, b)| a.epoch == b.epoch).count() as u8
}
