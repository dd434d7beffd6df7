//! Bounds of the searches: how much may happen in each program (views, operations, changes of members, restarts,
//! questions), and what each program is for.

/// A change of the list of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This member joins.
    Add(u8),
    /// This member leaves.
    Remove(u8),
    /// One becomes three: the list is this one.
    Grow(u8),
}

/// Bounds of one search.
#[derive(Debug)]
pub struct Bounds {
    /// The name of the program.
    pub name: &'static str,
    /// What the program is for.
    pub about: &'static str,
    /// Number of members, of all lists.
    pub nodes: u8,
    /// The first list, one bit each.
    pub list: u8,
    /// Views beyond the first.
    pub views: u8,
    /// Who wishes for these views; anybody wishes for the others.
    pub wishes: &'static [u8],
    /// Operations besides those with which leaders begin.
    pub operations: u8,
    /// Changes of the list. Each may be made once, by any leader.
    pub changes: &'static [Change],
    /// Questions of nodes and clients.
    pub questions: u8,
    /// How far ClusterTime goes.
    pub time_max: u8,
    /// How far the true time goes. 0: there are no leases.
    pub now_max: u8,
    /// The length of a node's lease.
    pub lease: u8,
    /// Leases may be made shorter (a length of 1).
    pub shortens: bool,
    /// Restarts of processes.
    pub restarts: u8,
    /// Restarts of machines.
    pub reboots: u8,
    /// Losses of a member's files.
    pub files_lost: u8,
    /// New files that begin with a snapshot.
    pub snapshots: u8,
    /// Whether the program is searched in the small bounds, too.
    pub is_small: bool,
}

const PLAIN: Bounds = Bounds {
    name: "",
    about: "",
    nodes: 3,
    list: 0b111,
    views: 2,
    wishes: &[],
    operations: 0,
    changes: &[],
    questions: 0,
    time_max: 0,
    now_max: 0,
    lease: 1,
    shortens: false,
    restarts: 0,
    reboots: 0,
    files_lost: 0,
    snapshots: 0,
    is_small: true,
};

/// Views change.
pub static VIEWS: Bounds = Bounds { name: "views", about: "two views; two operations", operations: 2, ..PLAIN };

/// Views change, and processes end.
pub static RESTARTS: Bounds = Bounds {
    name: "restarts",
    about: "two views; one operation; a process restarts with its disk",
    operations: 1,
    restarts: 1,
    ..PLAIN
};

/// The same with another operation.
pub static RESTARTS_TWO_OPERATIONS: Bounds = Bounds {
    name: "restarts-two-operations",
    about: "two views; two operations; a process restarts with its disk",
    operations: 2,
    restarts: 1,
    is_small: false,
    ..PLAIN
};

/// The same with another restart.
pub static RESTARTS_TWICE: Bounds = Bounds {
    name: "restarts-twice",
    about: "two views; two operations; processes restart twice with their disks",
    operations: 2,
    restarts: 2,
    is_small: false,
    ..PLAIN
};

/// Files begin with a snapshot.
pub static SNAPSHOT: Bounds = Bounds {
    name: "snapshot",
    about: "two views; one operation; a leader begins a new file; a process restarts",
    operations: 1,
    restarts: 1,
    snapshots: 1,
    ..PLAIN
};

/// A member loses its files.
pub static FILES_LOST: Bounds = Bounds {
    name: "files-lost",
    about: "two views; one operation; a member loses its files",
    operations: 1,
    files_lost: 1,
    ..PLAIN
};

/// Answers wait for rounds.
pub static ROUNDS: Bounds =
    Bounds { name: "rounds", about: "two views; one operation; two questions", operations: 1, questions: 2, ..PLAIN };

/// A node's lease, which an old leader may still renew.
pub static LEASE: Bounds = Bounds {
    name: "lease",
    about: "two views; a node asks once for its lease, and may be declared lost; time to 2",
    questions: 1,
    now_max: 2,
    ..PLAIN
};

/// The same, and leases are made shorter.
pub static SHORTER_LEASE: Bounds = Bounds {
    name: "shorter-lease",
    about: "a view; the same; leases of 2 become leases of 1; time to 3",
    views: 1,
    questions: 1,
    now_max: 3,
    lease: 2,
    shortens: true,
    is_small: false,
    ..PLAIN
};

/// ClusterTime goes on across elections.
pub static TIME: Bounds = Bounds {
    name: "time",
    about: "two views; two questions; ClusterTime to 1; a machine restarts",
    questions: 2,
    time_max: 1,
    reboots: 1,
    ..PLAIN
};

/// The same, and a process restarts.
pub static TIME_RESTARTS: Bounds = Bounds {
    name: "time-restarts",
    about: "two views; two questions; ClusterTime to 2; a process and a machine restart",
    time_max: 2,
    restarts: 1,
    is_small: false,
    ..TIME
};

/// Members change, and one misses both changes.
pub static MEMBERS: Bounds = Bounds {
    name: "members",
    about: "a view; one operation; a fourth member joins {1, 2, 3}, and the third leaves, in either order",
    nodes: 4,
    views: 1,
    operations: 1,
    changes: &[Change::Add(3), Change::Remove(2)],
    ..PLAIN
};

/// The same with another view.
pub static MEMBERS_TWO_VIEWS: Bounds = Bounds {
    name: "members-two-views",
    about: "the same with two views, and no operation",
    views: 2,
    operations: 0,
    is_small: false,
    ..MEMBERS
};

/// Four members, of which one leaves while another joins.
pub static FOUR_MEMBERS: Bounds = Bounds {
    name: "four-members",
    about: "members 2 and 1 lead; a fifth member joins {1, 2, 3, 4}, and the first leaves",
    nodes: 5,
    list: 0b1111,
    wishes: &[1, 0],
    changes: &[Change::Add(4), Change::Remove(0)],
    ..PLAIN
};

/// One becomes three.
pub static ONE_BECOMES_THREE: Bounds = Bounds {
    name: "one-becomes-three",
    about: "two views; {1} becomes {1, 2, 3} in one operation; another operation; a process restarts",
    list: 0b1,
    operations: 1,
    changes: &[Change::Grow(0b111)],
    restarts: 1,
    ..PLAIN
};

/// All programs of this model.
pub static PROGRAMS: &[&Bounds] = &[
    &VIEWS,
    &RESTARTS,
    &RESTARTS_TWO_OPERATIONS,
    &RESTARTS_TWICE,
    &SNAPSHOT,
    &FILES_LOST,
    &ROUNDS,
    &LEASE,
    &SHORTER_LEASE,
    &TIME,
    &TIME_RESTARTS,
    &MEMBERS,
    &MEMBERS_TWO_VIEWS,
    &FOUR_MEMBERS,
    &ONE_BECOMES_THREE,
];
