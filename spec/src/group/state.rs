//! The parts of a state: each member's files and memory, views with the frames that were sent in them, the lease of a
//! node, and what was told.
//!
//! Sets of members are bit masks, so that states are small and compare fast.

use arrayvec::ArrayVec;

/// The greatest number of members, of all lists.
pub const NODES_MAX: usize = 5;
/// The greatest number of views.
pub const VIEWS_MAX: usize = 3;
/// The greatest number of entries in a log.
pub const LOG_MAX: usize = 9;

/// A member, from 0.
pub type NodeIx = u8;
/// A view, from 1, in the order of (number, leader). 0: none.
pub type ViewIx = u8;
/// The entries of a log, in order.
pub type Log = ArrayVec<Entry, LOG_MAX>;

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A leader begins.
    Start,
    /// An operation; no other has this number.
    Operation(u8),
    /// The list of members, one bit each.
    List(u8),
    /// The node is lost.
    Lost,
    /// Leases are shorter from now on.
    ShorterLease,
    /// All leases that may still run are shorter.
    ShorterBound,
    /// Not there: a newcomer took what came after it.
    Hole,
}

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The view in which it was appended.
    pub view: ViewIx,
    /// What it is about.
    pub kind: Kind,
}

/// What a member says when it enters a view.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Report {
    /// The view whose log it has.
    pub log_view: ViewIx,
    /// Its log.
    pub log: Log,
    /// The greatest ClusterTime that it knows to have been told. `None`: it has forgotten.
    pub time: Option<u8>,
}

/// A view, and the frames that were sent in it. A frame that was sent may arrive at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// The member that wished to lead it.
    pub leader: Option<NodeIx>,
    /// The time of that wish.
    pub wished: u8,
    /// Nobody will ever lead it.
    pub over: bool,
    /// What members said when they entered it.
    pub reports: [Option<Report>; NODES_MAX],
    /// Its leader's log, as far as it was sent. Empty: the leader has not merged logs yet.
    pub log: Log,
    /// How much of it is the merged log, with the leader's first operation.
    pub base: u8,
}

/// A round of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Round {
    /// The members that have confirmed it, one bit each.
    pub confirmed: u8,
    /// The time that its answers tell.
    pub time: u8,
}

/// A question that came to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Question {
    /// When it was sent.
    pub asked: u8,
    /// The number of operations that had been told by then, by any leader.
    pub told: u8,
    /// The greatest time that had been told by then, by any leader.
    pub time: u8,
    /// What is decided: the answer follows from this much of the log.
    pub basis: u8,
}

/// The memory of a leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lead {
    /// How much of the log each member has on its disk, by its acknowledgements.
    pub acked: [u8; NODES_MAX],
    /// How much of the log is committed.
    pub committed: u8,
    /// The round in flight.
    pub round: Option<Round>,
    /// The question that waits.
    pub question: Option<Question>,
    /// The greatest time that it may have told.
    pub time: u8,
    /// Before this moment the node may hold a lease.
    pub expires: u8,
    /// When shorter leases were committed.
    pub shortened: Option<u8>,
}

/// A member: its files and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// It has its files. Without them it is no member.
    pub up: bool,
    /// The view that it has entered.
    pub view: ViewIx,
    /// The same, as its file says.
    pub view_on_disk: ViewIx,
    /// The view whose log it has.
    pub log_view: ViewIx,
    /// The log in memory.
    pub log: Log,
    /// How much of it is on disk.
    pub synced: u8,
    /// The log on its disk, if that is not yet the log of its log view.
    pub behind: Option<Log>,
    /// How much of the log its file has as a snapshot. Nobody can take an operation out of a snapshot.
    pub snapshot: u8,
    /// The greatest time of the rounds that it confirmed. `None`: it has forgotten.
    pub time: Option<u8>,
    /// Its memory as a leader, if it leads its view.
    pub lead: Option<Box<Lead>>,
}

/// What may still happen: the budgets of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// Operations.
    pub operations: u8,
    /// Changes of the list, one bit each.
    pub changes: u8,
    /// Questions.
    pub questions: u8,
    /// Restarts of processes.
    pub restarts: u8,
    /// Restarts of machines.
    pub reboots: u8,
    /// Losses of files.
    pub files_lost: u8,
    /// New files that begin with a snapshot.
    pub snapshots: u8,
}

/// What was told to nodes and clients, for the properties.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Told {
    /// Everything that was told as committed.
    pub log: Log,
    /// Two leaders told different operations as committed.
    pub twice: bool,
    /// An answer lacked what had been told before its question came.
    pub stale: bool,
    /// The greatest time that was told.
    pub time: u8,
    /// An answer told a lower time than was told before its question came.
    pub back: bool,
    /// The greatest time from which a leader went on, or with which a round began.
    pub time_begun: u8,
    /// An election in which nobody had forgotten the time moved it ahead.
    pub jumped: bool,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The members, of all lists.
    pub members: ArrayVec<Member, NODES_MAX>,
    /// The views, from 1.
    pub views: ArrayVec<View, VIEWS_MAX>,
    /// The true time.
    pub now: u8,
    /// The node serves as primary until this moment.
    pub lease_ends: u8,
    /// What was told.
    pub told: Told,
    /// The budgets that are left.
    pub left: Left,
}

/// The numbers of the bits that are set.
pub fn bits(mask: u8) -> impl Iterator<Item = NodeIx> + Clone {
    (0..8).filter(move |bit| mask & 1 << bit != 0)
}

/// The length of a log, or the end of a part of it.
pub fn end(log: &Log) -> u8 {
    log.len() as u8
}

/// Whether so many members are a quorum of this list.
pub fn is_quorum(list: u8, members: u8) -> bool {
    (list & members).count_ones() * 2 > list.count_ones()
}

impl State {
    /// The member with this number.
    pub fn member(&self, node: NodeIx) -> &Member {
        &self.members[usize::from(node)]
    }

    /// The member with this number, to be changed.
    pub fn member_mut(&mut self, node: NodeIx) -> &mut Member {
        &mut self.members[usize::from(node)]
    }

    /// The memory of a leader.
    pub fn lead(&self, node: NodeIx) -> Option<&Lead> {
        self.member(node).lead.as_deref()
    }

    /// The memory of a leader, to be changed.
    pub fn lead_mut(&mut self, node: NodeIx) -> &mut Lead {
        self.member_mut(node).lead.as_mut().expect("it leads")
    }

    /// The view with this number.
    pub fn view(&self, view: ViewIx) -> &View {
        &self.views[usize::from(view) - 1]
    }

    /// The view with this number, to be changed.
    pub fn view_mut(&mut self, view: ViewIx) -> &mut View {
        &mut self.views[usize::from(view) - 1]
    }

    /// The numbers of all members, of whatever list.
    pub fn all(&self) -> impl Iterator<Item = NodeIx> + use<> {
        0..self.members.len() as u8
    }

    /// The members that have their files.
    pub fn all_up(&self) -> impl Iterator<Item = NodeIx> + '_ {
        self.all().filter(|&node| self.member(node).up)
    }

    /// The numbers of all views.
    pub fn all_views(&self) -> impl Iterator<Item = ViewIx> + use<> {
        1..=self.views.len() as u8
    }

    /// The newest view that somebody has led.
    pub fn newest_led(&self) -> Option<ViewIx> {
        self.all_views().filter(|&view| self.view(view).is_led()).last()
    }
}

impl View {
    /// Whether its leader has merged the logs of a quorum.
    pub fn is_led(&self) -> bool {
        !self.log.is_empty()
    }
}

impl Member {
    /// A member with empty files.
    pub fn empty() -> Self {
        Self {
            up: true,
            view: 0,
            view_on_disk: 0,
            log_view: 0,
            log: Log::new(),
            synced: 0,
            behind: None,
            snapshot: 0,
            time: Some(0),
            lead: None,
        }
    }

    /// The end of the log.
    pub fn end(&self) -> u8 {
        end(&self.log)
    }

    /// All that the member has goes to its disk.
    pub fn write(&mut self) {
        (self.synced, self.behind) = (self.end(), None);
    }

    /// Whether the log says so.
    pub fn says(&self, kind: Kind) -> bool {
        self.log.iter().any(|entry| entry.kind == kind)
    }
}

/// The newest list of members in a log, and its place. The first list of all is in no log.
pub fn newest_list(log: &[Entry]) -> Option<(u8, u8)> {
    log.iter().enumerate().rev().find_map(|(at, entry)| match entry.kind {
        Kind::List(list) => Some((list, at as u8)),
        Kind::Start | Kind::Operation(_) | Kind::Lost | Kind::ShorterLease | Kind::ShorterBound | Kind::Hole => None,
    })
}
