//! What a state of the model consists of: the coordinator's word, and each node's files and memory.

use arrayvec::ArrayVec;

/// Nodes.
pub const NODES_MAX: usize = 4;
/// Entries of a log.
pub const LOG_MAX: usize = 7;

/// A node, from 0.
pub type NodeIx = u8;

/// A log.
pub type Log = ArrayVec<Entry, LOG_MAX>;

/// An entry: what a primary's process wrote at this place. Two entries of one epoch at one place are taken for the same
/// by the code, which compares histories; `writer` says whether they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The term it was written in.
    pub epoch: u8,
    /// The process that wrote it, by its restarts.
    pub writer: u8,
}

/// A member of the committed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// Its copy is complete; it may be elected.
    pub complete: bool,
    /// The configuration that made it a member (decision 0004).
    pub since: u8,
}

/// The members of a set, by node.
pub type Members = [Option<Member>; NODES_MAX];

/// The committed configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Committed {
    /// Its version, as far as sets and terms go.
    pub version: u8,
    /// The newest term.
    pub epoch: u8,
    /// Its primary.
    pub primary: NodeIx,
    /// It serves.
    pub serving: bool,
    /// Its set.
    pub members: Members,
    /// Complete members of the set that last served, while a term recovers; a bit each.
    pub recover_from: u8,
}

/// What a member reported to a fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// Its log, as far as its history and its end tell.
    pub log: Log,
    /// It surely holds all that it ever acknowledged.
    pub intact: bool,
    /// Its older data is all there.
    pub complete: bool,
}

impl Report {
    /// How great it is: its last entry's epoch, and its end.
    pub fn greatness(&self) -> (u8, usize) {
        (self.log.last().map_or(0, |entry| entry.epoch), self.log.len())
    }
}

/// Where a term is (`primary::Stage`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Members promise and report.
    Fencing,
    /// Another member's log is fetched.
    Fetching { from: NodeIx, until: Report },
    /// The log is known, and nothing is written in this epoch yet.
    Replaying,
    /// Everything goes to the committed set.
    Syncing { target: u8 },
    /// Clients are served.
    Serving,
}

/// A member as its primary sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer {
    /// It was attached, as far as we know.
    pub attached: bool,
    /// Up to where it holds the log, by its words in this attachment.
    pub acked: u8,
    /// What it said in earlier ones and may still arrive.
    pub late: u8,
    /// It has been sent all older data.
    pub copied: bool,
}

/// A primary's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Primary {
    /// Its term.
    pub epoch: u8,
    /// Where it is.
    pub stage: Stage,
    /// The members of the set that last served.
    pub electorate: u8,
    /// Who has reported.
    pub reports: [Option<Report>; NODES_MAX],
    /// The set, as it knows.
    pub members: Members,
    /// Its members.
    pub peers: [Peer; NODES_MAX],
    /// Where its epoch begins in the log.
    pub epoch_start: u8,
    /// Every member holds the log so far.
    pub synced: u8,
}

/// What a node is to the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It holds files.
    Idle,
    /// It follows the primary of an epoch; `attached`: its log joins that primary's.
    Backup { epoch: u8, attached: bool },
    /// See [`Node::primary`].
    Primary,
}

/// A node: its files, and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// It is not dead for good.
    pub up: bool,
    /// Restarts of its process.
    pub restarts: u8,
    /// No smaller epoch is obeyed; on file.
    pub promised: u8,
    /// Its log. What is below `base` is only what it would be: a joiner lacks it.
    pub log: Log,
    /// Where a joiner's log begins.
    pub base: u8,
    /// How much of a primary's log its own file holds.
    pub held: u8,
    /// R5.5.
    pub intact: bool,
    /// R7.2.
    pub complete: bool,
    /// When it holds this much it is intact again.
    pub must_hold: u8,
    /// Its role.
    pub role: Role,
    /// Its memory as a primary.
    pub primary: Option<Box<Primary>>,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The coordinator's word.
    pub committed: Committed,
    /// The nodes.
    pub nodes: ArrayVec<Node, NODES_MAX>,
    /// What serving primaries called synced, and so answered.
    pub told: Log,
    /// Two of them disagreed.
    pub told_twice: bool,
    /// One of them counted what fewer than f + 1 nodes held.
    pub thin: bool,
    /// Nodes that died for good, and copies that a living primary was let go of; a bit each.
    pub lost: u8,
    /// What may still happen.
    pub left: Left,
}

/// Budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// New terms.
    pub terms: u8,
    /// Updates.
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
    /// A node.
    pub fn node(&self, node: NodeIx) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// A node, to be changed.
    pub fn node_mut(&mut self, node: NodeIx) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// A primary's memory.
    pub fn primary(&self, node: NodeIx) -> Option<&Primary> {
        self.node(node).primary.as_deref()
    }

    /// All nodes.
    pub fn all(&self) -> impl Iterator<Item = NodeIx> + use<> {
        0..self.nodes.len() as u8
    }
}

impl Node {
    /// Its log's end.
    pub fn end(&self) -> u8 {
        self.log.len() as u8
    }

    /// What it reports to a fence.
    pub fn report(&self) -> Report {
        Report { log: self.log.clone(), intact: self.intact, complete: self.complete }
    }

    /// Gives up whatever role it has.
    pub fn lose_role(&mut self) {
        if self.primary.take().is_some() {
            self.held = self.end();
        }
        self.role = Role::Idle;
    }

    /// Whether an entry is here, where it should be.
    pub fn holds(&self, at: u8, entry: Entry) -> bool {
        at >= self.base && self.log.get(usize::from(at)) == Some(&entry)
    }
}

impl Primary {
    /// It has begun to write in its epoch.
    pub fn has_begun(&self) -> bool {
        match self.stage {
            Stage::Fencing | Stage::Fetching { .. } | Stage::Replaying => false,
            Stage::Syncing { .. } | Stage::Serving => true,
        }
    }

    /// The members besides itself.
    pub fn others(&self, own: NodeIx) -> impl Iterator<Item = (NodeIx, Member)> + '_ {
        let members = (0..).zip(&self.members);
        members.filter_map(move |(node, member)| Some((node, (*member)?)).filter(|_| node != own))
    }
}

/// Up to where two logs are equal as far as their histories say.
pub fn common_prefix(a: &Log, b: &Log) -> u8 {
    a.iter().zip(b).take_while(|(a, b)| a.epoch == b.epoch).count() as u8
}
