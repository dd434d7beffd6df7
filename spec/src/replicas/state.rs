//! The parts of a state: the coordinator's decisions, and each node's files and memory.
//!
//! Sets of nodes are bit masks, so that states are small and compare fast.

use arrayvec::ArrayVec;

/// The greatest number of nodes.
pub const NODES_MAX: usize = 4;
/// The greatest number of entries in a log.
pub const LOG_MAX: usize = 7;

/// A node, from 0.
pub type NodeIx = u8;

/// The entries of a log, in order.
pub type Log = ArrayVec<Entry, LOG_MAX>;

/// An entry: what a primary's process wrote at this place. The code compares histories, so it treats two entries of one
/// epoch at one place as the same entry. `writer` says whether they really are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The term in which it was written.
    pub epoch: u8,
    /// The process that wrote it, by the number of its restarts.
    pub writer: u8,
}

/// A member of the committed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// The member's copy is complete, so that it may be elected.
    pub complete: bool,
    /// The configuration that made it a member (decision 0004).
    pub since: u8,
}

/// The members of a set, by node.
pub type Members = [Option<Member>; NODES_MAX];

/// The committed configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Committed {
    /// The version. Only changes of sets and terms count.
    pub version: u8,
    /// The newest term.
    pub epoch: u8,
    /// The primary of the newest term.
    pub primary: NodeIx,
    /// The newest term serves.
    pub serving: bool,
    /// The members of the set.
    pub members: Members,
    /// Complete members of the set that last served, while a term recovers; one bit each.
    pub recover_from: u8,
}

/// The report of a member to a fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// The member's log, as far as its history and its end tell.
    pub log: Log,
    /// The member surely holds everything that it ever acknowledged.
    pub intact: bool,
    /// The member's older data is all there.
    pub complete: bool,
}

impl Report {
    /// The rank of the log in an election: the epoch of its last entry, and its end.
    pub fn greatness(&self) -> (u8, usize) {
        (self.log.last().map_or(0, |entry| entry.epoch), self.log.len())
    }
}

/// The stage of a term (`primary::Stage`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Members promise the epoch and report their logs.
    Fencing,
    /// The log of another member is fetched.
    Fetching { from: NodeIx, until: Report },
    /// The log is known, and nothing is written in this epoch yet.
    Replaying,
    /// The log is synced to the committed set.
    Syncing { target: u8 },
    /// Clients are served.
    Serving,
}

/// A member, as its primary sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The member is attached, as far as the primary knows.
    pub attached: bool,
    /// Up to where the member holds the log, by its answers in this attachment.
    pub acked: u8,
    /// An acknowledgement of an earlier attachment that may still arrive.
    pub late: u8,
    /// The member has been sent all older data.
    pub copied: bool,
}

/// The memory of a primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Primary {
    /// The epoch of the term.
    pub epoch: u8,
    /// The stage of the term.
    pub stage: Stage,
    /// The members of the set that last served.
    pub electorate: u8,
    /// The reports of members.
    pub reports: [Option<Report>; NODES_MAX],
    /// The set, as the primary knows it.
    pub members: Members,
    /// The primary's view of each member.
    pub peers: [Peer; NODES_MAX],
    /// The position in the log where its epoch begins.
    pub epoch_start: u8,
    /// Up to where every member holds the log.
    pub synced: u8,
}

/// The role of a node for the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The node only holds files.
    Idle,
    /// The node follows the primary of an epoch; `attached`: its log joins that primary's.
    Backup { epoch: u8, attached: bool },
    /// The node is primary of an epoch; [`Node::primary`] has its memory.
    Primary,
}

/// A node: its files and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The node is not dead for good.
    pub up: bool,
    /// Number of restarts of its process.
    pub restarts: u8,
    /// The promised epoch, on file: no smaller epoch is obeyed.
    pub promised: u8,
    /// The log. Entries below `base` are those that the node would have: a joiner lacks them.
    pub log: Log,
    /// The position where a joiner's log begins.
    pub base: u8,
    /// How much of a primary's log its own file holds.
    pub held: u8,
    /// The node surely holds what it acknowledged (R5.5).
    pub intact: bool,
    /// The node's older data is all there (R7.2).
    pub complete: bool,
    /// The node is intact again when it holds this much.
    pub must_hold: u8,
    /// The role of the node.
    pub role: Role,
    /// Its memory as a primary, if it is one.
    pub primary: Option<Box<Primary>>,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The committed configuration.
    pub committed: Committed,
    /// The nodes, by number.
    pub nodes: ArrayVec<Node, NODES_MAX>,
    /// Everything that serving primaries called synced, and so answered.
    pub told: Log,
    /// Two primaries called different entries synced.
    pub told_twice: bool,
    /// A primary called an entry synced that fewer than f + 1 nodes held.
    pub thin: bool,
    /// Nodes that died for good, and copies that were let go while the primary lived; one bit each.
    pub lost: u8,
    /// The budgets that are left.
    pub left: Left,
}

/// What may still happen: the budgets of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// New terms that may still begin.
    pub terms: u8,
    /// Updates that may still be written.
    pub writes: u8,
    /// Changes of the set within a term.
    pub set_changes: u8,
    /// Restarts of processes.
    pub restarts: u8,
    /// Losses of power.
    pub power_losses: u8,
    /// Deaths for good.
    pub deaths: u8,
}

impl State {
    /// The node with this number.
    pub fn node(&self, node: NodeIx) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// The node with this number, to be changed.
    pub fn node_mut(&mut self, node: NodeIx) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// The memory of a primary.
    pub fn primary(&self, node: NodeIx) -> Option<&Primary> {
        self.node(node).primary.as_deref()
    }

    /// The numbers of all nodes.
    pub fn all(&self) -> impl Iterator<Item = NodeIx> + use<> {
        0..self.nodes.len() as u8
    }
}

impl Node {
    /// The end of the node's log.
    pub fn end(&self) -> u8 {
        self.log.len() as u8
    }

    /// The report of the node to a fence.
    pub fn report(&self) -> Report {
        Report { log: self.log.clone(), intact: self.intact, complete: self.complete }
    }

    /// Gives up any role.
    pub fn lose_role(&mut self) {
        if self.primary.take().is_some() {
            self.held = self.end();
        }
        self.role = Role::Idle;
    }

    /// Whether the node holds this entry at its place.
    pub fn holds(&self, at: u8, entry: Entry) -> bool {
        at >= self.base && self.log.get(usize::from(at)) == Some(&entry)
    }
}

impl Primary {
    /// Whether the primary has begun to write in its epoch.
    pub fn has_begun(&self) -> bool {
        match self.stage {
            Stage::Fencing | Stage::Fetching { .. } | Stage::Replaying => false,
            Stage::Syncing { .. } | Stage::Serving => true,
        }
    }

    /// The members of the set, except the primary itself.
    pub fn others(&self, own: NodeIx) -> impl Iterator<Item = (NodeIx, Member)> + '_ {
        let members = (0..).zip(&self.members);
        members.filter_map(move |(node, member)| Some((node, (*member)?)).filter(|_| node != own))
    }
}

/// Up to where two logs are equal, as far as their histories tell.
pub fn common_prefix(a: &Log, b: &Log) -> u8 {
    a.iter().zip(b).take_while(|(a, b)| a.epoch == b.epoch).count() as u8
}
