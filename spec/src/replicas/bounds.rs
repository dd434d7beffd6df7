//! Bounds of the searches: how much may happen in each program (terms, writes, restarts, losses), and what each program
//! is for.

/// Bounds of one search.
#[derive(Debug)]
pub struct Bounds {
    /// The name of the program.
    pub name: &'static str,
    /// What the program is for.
    pub about: &'static str,
    /// Number of nodes. The first f + 1 are members at first.
    pub nodes: u8,
    /// f, the number of losses that the shard survives.
    pub faults: u8,
    /// Terms after the first.
    pub terms: u8,
    /// Number of updates, besides one that is synced at first.
    pub writes: u8,
    /// Changes of the set within a term.
    pub set_changes: u8,
    /// Restarts of processes.
    pub restarts: u8,
    /// Losses of power.
    pub power_losses: u8,
    /// Deaths for good.
    pub deaths: u8,
    /// Whether the program is searched in the small bounds, too.
    pub is_small: bool,
}

const PLAIN: Bounds = Bounds {
    name: "",
    about: "",
    nodes: 3,
    faults: 1,
    terms: 1,
    writes: 1,
    set_changes: 0,
    restarts: 0,
    power_losses: 0,
    deaths: 0,
    is_small: true,
};

/// Old primaries that go on, and fail-overs.
pub static FENCING: Bounds = Bounds {
    name: "fencing",
    about: "3 nodes, f = 1; two recoveries, old primaries go on; two updates",
    terms: 2,
    writes: 2,
    ..PLAIN
};

/// Processes end and start again.
pub static RESTARTS: Bounds = Bounds {
    name: "restarts",
    about: "3 nodes, f = 1; two recoveries, a process restarts; one update",
    terms: 2,
    writes: 1,
    restarts: 1,
    ..PLAIN
};

/// Members are replaced.
pub static REPLACEMENT: Bounds = Bounds {
    name: "replacement",
    about: "3 nodes, f = 1; the set changes twice, then a recovery; two updates",
    writes: 2,
    set_changes: 2,
    ..PLAIN
};

/// A machine loses power.
pub static POWER: Bounds = Bounds {
    name: "power-loss",
    about: "3 nodes, f = 1; one machine loses power and forgets any part of its log's end; a recovery; one update",
    power_losses: 1,
    ..PLAIN
};

/// A node dies for good.
pub static DEATH: Bounds = Bounds {
    name: "death",
    about: "3 nodes, f = 1; a node dies for good; the set changes once; a recovery; one update",
    set_changes: 1,
    deaths: 1,
    ..PLAIN
};

/// f = 2, so three members.
pub static THREE_MEMBERS: Bounds =
    Bounds { name: "three-members", about: "3 nodes, f = 2; two recoveries; one update", faults: 2, terms: 2, ..PLAIN };

/// f = 2, with losses of power and restarts.
pub static THREE_MEMBERS_POWER: Bounds = Bounds {
    name: "three-members-power-loss",
    about: "3 nodes, f = 2; two recoveries, a restart, a loss of power; one update",
    faults: 2,
    terms: 2,
    restarts: 1,
    power_losses: 1,
    is_small: false,
    ..PLAIN
};

/// Everything at once.
pub static WIDE: Bounds = Bounds {
    name: "wide",
    about: "3 nodes, f = 1; two recoveries, a change of the set, a restart, a loss of power; two updates",
    terms: 2,
    writes: 2,
    set_changes: 1,
    restarts: 1,
    power_losses: 1,
    is_small: false,
    ..PLAIN
};

/// Two spare nodes.
pub static FOUR_NODES: Bounds = Bounds {
    name: "four-nodes",
    about: "4 nodes, f = 1; two recoveries, two changes of the set; two updates",
    nodes: 4,
    terms: 2,
    writes: 2,
    set_changes: 2,
    is_small: false,
    ..PLAIN
};

/// All programs of this model.
pub static PROGRAMS: &[&Bounds] =
    &[&FENCING, &RESTARTS, &REPLACEMENT, &POWER, &DEATH, &THREE_MEMBERS, &THREE_MEMBERS_POWER, &WIDE, &FOUR_NODES];
