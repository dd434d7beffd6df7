//! What a state consists of: the coordinator's word, each member's files and memory, witnesses, and what clients know.

use arrayvec::ArrayVec;

/// Members.
pub const NODES_MAX: usize = 3;
/// Entries of a log.
pub const LOG_MAX: usize = 14;
/// Witness lists.
pub const LISTS_MAX: usize = 5;
/// Witnesses of a list.
pub const FAULTS_MAX: usize = 2;
/// Updates.
pub const UPDATES_MAX: usize = 2;

/// A member, from 0.
pub type NodeIx = u8;
/// An update, from 0. All of them commute.
pub type UpdateIx = u8;
/// A log.
pub type Log = ArrayVec<Entry, LOG_MAX>;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A term begins.
    Start,
    /// An update, executed.
    Update(UpdateIx),
    /// The log holds all that was answered under this list.
    Whole(u8),
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The term it was written in.
    pub epoch: u8,
    /// What it says.
    pub kind: Kind,
}

/// The committed configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Committed {
    /// The newest term.
    pub epoch: u8,
    /// Its primary.
    pub primary: NodeIx,
    /// It serves.
    pub serving: bool,
    /// Its set, a bit each.
    pub members: u8,
    /// The set that last served, a bit each.
    pub recover_from: u8,
    /// The newest term that was reported recovered, and its primary.
    pub served: (u8, NodeIx),
}

/// A witness of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Witness {
    /// The updates that it holds, a bit each.
    pub held: u8,
    /// A recovery has read it.
    pub frozen: bool,
    /// Its files are lost for good.
    pub lost: bool,
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct List {
    /// An orderly stop opened it: it has no witnesses, and nobody is answered under it.
    pub empty: bool,
    /// Its witnesses.
    pub witnesses: [Witness; FAULTS_MAX],
}

/// Where a term is (`primary::Stage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Members promise and report.
    Fencing,
    /// Another member's log is fetched; `whole`: it needs no witness.
    Fetching { from: NodeIx, whole: bool },
    /// The log is known, and needs no witness.
    Replaying,
    /// The log may lack something: a witness is waited for.
    Witnessing,
    /// Everything goes to the committed set.
    Syncing,
    /// The mark is on file, the coordinator is told.
    Reporting,
    /// Clients are served.
    Serving,
}

/// What a member reported to a fence. It may hold something else by now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Report {
    /// Its log.
    pub log: Log,
    /// R5.5.
    pub intact: bool,
    /// R7.7 (e): it needs no witness.
    pub whole: bool,
}

impl Report {
    /// How great its log is: its last entry's epoch, and its end.
    pub fn greatness(&self) -> (u8, usize) {
        (self.log.last().map_or(0, |entry| entry.epoch), self.log.len())
    }
}

/// A primary's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Primary {
    /// Its term.
    pub epoch: u8,
    /// Where it is.
    pub stage: Stage,
    /// Who has reported.
    pub reports: [Option<Report>; NODES_MAX],
    /// Its set, a bit each.
    pub members: u8,
    /// Up to where members that are attached acknowledged its log.
    pub acked: [Option<u8>; NODES_MAX],
    /// Every member holds the log so far.
    pub synced: u8,
    /// Its log is whole up to here, by its own entry.
    pub whole_end: u8,
    /// The list that it was promoted with, and then serves under.
    pub list: u8,
    /// The list is being closed, or it stops: answers leave when all so far is synced, and the list changes then.
    pub closing_at: Option<u8>,
    /// It gates its answers for the rest of its term.
    pub stops: bool,
    /// Updates that it executed, and may answer without a sync, a bit each.
    pub fast: u8,
}

/// A member: its files, and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// It is not dead for good.
    pub up: bool,
    /// No smaller epoch is obeyed; on file.
    pub promised: u8,
    /// Its log.
    pub log: Log,
    /// How much of it its file holds.
    pub held: u8,
    /// How much of it was fsynced under `fsync`.
    pub flushed: u8,
    /// `whole` of its `replica.meta`; 0: no mark.
    pub mark: u8,
    /// R5.5.
    pub intact: bool,
    /// The epoch that it follows, attached.
    pub attached: u8,
    /// Its memory as a primary.
    pub primary: Option<Box<Primary>>,
}

/// What is known of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Update {
    /// Lists under which a primary answered it without a sync, a bit each.
    pub answered: u8,
    /// Which witnesses accepted it, by list.
    pub accepted: [u8; LISTS_MAX],
    /// Its client may have its result.
    pub done: bool,
}

/// Budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Left {
    /// New terms.
    pub terms: u8,
    /// Kills of a primary's process.
    pub kills: u8,
    /// Losses of witnesses' files, of machines, of power, and damage.
    pub losses: u8,
    /// Changes of the list within a term.
    pub list_changes: u8,
    /// Orderly stops.
    pub stops: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The coordinator's word.
    pub committed: Committed,
    /// The members.
    pub nodes: ArrayVec<Node, NODES_MAX>,
    /// Committed lists, from version 1.
    pub lists: ArrayVec<List, LISTS_MAX>,
    /// The updates.
    pub updates: [Update; UPDATES_MAX],
    /// What may still happen.
    pub left: Left,
}

/// Members as bits.
pub fn bits(mask: u8) -> impl Iterator<Item = NodeIx> + Clone {
    (0..8).filter(move |bit| mask & 1 << bit != 0)
}

impl State {
    /// A member.
    pub fn node(&self, node: NodeIx) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// A member, to be changed.
    pub fn node_mut(&mut self, node: NodeIx) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// A primary's memory.
    pub fn primary(&self, node: NodeIx) -> Option<&Primary> {
        self.node(node).primary.as_deref()
    }

    /// A primary's memory, to be changed.
    pub fn primary_mut(&mut self, node: NodeIx) -> &mut Primary {
        self.node_mut(node).primary.as_mut().expect("it leads")
    }

    /// All members, of whatever set.
    pub fn all(&self) -> impl Iterator<Item = NodeIx> + use<> {
        0..self.nodes.len() as u8
    }

    /// The version of the list in force.
    pub fn list(&self) -> u8 {
        self.lists.len() as u8
    }

    /// The list of a version.
    pub fn list_mut(&mut self, list: u8) -> &mut List {
        &mut self.lists[usize::from(list) - 1]
    }
}

impl Node {
    /// Its log's end.
    pub fn end(&self) -> u8 {
        self.log.len() as u8
    }

    /// Where an update is in the log.
    pub fn place(&self, update: UpdateIx) -> Option<u8> {
        self.log.iter().position(|entry| entry.kind == Kind::Update(update)).map(|at| at as u8)
    }

    /// Gives up whatever role it has; what its memory holds goes to its file with the promise.
    pub fn lose_role(&mut self) {
        self.primary = None;
        self.attached = 0;
        (self.held, self.flushed) = (self.end(), self.end());
    }
}

/// Up to where two logs are equal as far as their histories say.
pub fn common_prefix(a: &Log, b: &Log) -> u8 {
    a.iter().zip(b).take_while(|(a, b)| a.epoch == b.epoch).count() as u8
}
