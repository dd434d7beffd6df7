//! Bounds of the searches: how much may happen in each program (terms, losses, list changes), and what each program is
//! for.

/// What "hold" means (R5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In the page cache.
    Replicated,
    /// On the disk, except the entries of a primary's fast answers, which may be in its page cache.
    Fsync,
}

/// Bounds of one search.
#[derive(Debug)]
pub struct Bounds {
    /// The name of the program.
    pub name: &'static str,
    /// What the program is for.
    pub about: &'static str,
    /// f. There are f + 1 members.
    pub faults: u8,
    /// The least number of backups with which the shard serves.
    pub min_backups: u8,
    /// Decides what a loss of power may take.
    pub durability: Durability,
    /// Number of updates.
    pub updates: u8,
    /// Terms after the first.
    pub terms: u8,
    /// Kills of a primary's process. Its files stay, and any part of a write that is under way.
    pub kills: u8,
    /// Whether witnesses' files may be lost.
    pub witness_losses: bool,
    /// Whether machines may be lost.
    pub deaths: bool,
    /// Whether power may be lost.
    pub power_losses: bool,
    /// Whether the last bytes of a log may be damaged while its process is down.
    pub damage: bool,
    /// Changes of the list within a term.
    pub list_changes: u8,
    /// Number of orderly stops.
    pub stops: u8,
    /// Whether the program is searched in the small bounds, too.
    pub is_small: bool,
}

const PLAIN: Bounds = Bounds {
    name: "",
    about: "",
    faults: 1,
    min_backups: 1,
    durability: Durability::Replicated,
    updates: 1,
    terms: 2,
    kills: 1,
    witness_losses: true,
    deaths: false,
    power_losses: false,
    damage: false,
    list_changes: 0,
    stops: 0,
    is_small: true,
};

/// The witness is lost.
pub static WITNESS_LOST: Bounds = Bounds {
    name: "witness-lost",
    about: "f = 1; one update; a kill, two recoveries, the witness may be lost",
    ..PLAIN
};

/// The same, with what a torn write can leave between two updates.
pub static TWO_UPDATES: Bounds = Bounds {
    name: "witness-lost-two-updates",
    about: "f = 1; two updates; a kill, two recoveries, the witness may be lost",
    updates: 2,
    is_small: false,
    ..PLAIN
};

/// The same, with more recoveries.
pub static MANY_TERMS: Bounds = Bounds {
    name: "many-terms",
    about: "f = 1; one update; two kills, three recoveries, the witness may be lost",
    terms: 3,
    kills: 2,
    is_small: false,
    ..PLAIN
};

/// A shard that may serve with one member.
pub static ONE_MEMBER: Bounds = Bounds {
    name: "one-member",
    about: "f = 1, min_backups 0; one update; a kill, two recoveries; a witness or a machine may be lost",
    min_backups: 0,
    deaths: true,
    ..PLAIN
};

/// The list is replaced while a term serves.
pub static LIST_CHANGE: Bounds = Bounds {
    name: "list-change",
    about: "f = 1; one update; the list changes once; two recoveries, a witness may be lost",
    list_changes: 1,
    kills: 0,
    ..PLAIN
};

/// The same, with another recovery.
pub static LIST_CHANGE_TWICE: Bounds = Bounds {
    name: "list-change-two-recoveries",
    about: "f = 1; one update; the list changes once; a kill, two recoveries, a witness may be lost",
    list_changes: 1,
    is_small: false,
    ..PLAIN
};

/// An orderly stop.
pub static STOP: Bounds = Bounds {
    name: "orderly-stop",
    about: "f = 1, min_backups 0; one update; an orderly stop, a kill, a recovery; a witness or a machine may be lost",
    min_backups: 0,
    deaths: true,
    stops: 1,
    terms: 1,
    ..PLAIN
};

/// A machine loses power, under `replicated`.
pub static POWER: Bounds = Bounds {
    name: "power-loss",
    about: "f = 1; one update; two recoveries; a witness or power may be lost",
    power_losses: true,
    kills: 0,
    ..PLAIN
};

/// A machine loses power, under `fsync`.
pub static POWER_FSYNC: Bounds = Bounds {
    name: "power-loss-fsync",
    about: "the same under fsync; the page cache holds what was answered fast",
    durability: Durability::Fsync,
    power_losses: true,
    kills: 0,
    ..PLAIN
};

/// A log's last bytes are damaged.
pub static DAMAGE: Bounds = Bounds {
    name: "damage",
    about: "f = 1; one update; a kill, two recoveries; a witness may be lost, or a log's last entry damaged",
    damage: true,
    ..PLAIN
};

/// f = 2, so three members.
pub static THREE_MEMBERS: Bounds = Bounds {
    name: "three-members",
    about: "f = 2; one update; a kill, one recovery; both witnesses may be lost",
    faults: 2,
    min_backups: 2,
    terms: 1,
    ..PLAIN
};

/// f = 2, with fewer members in a set.
pub static THREE_MEMBERS_FEWER: Bounds = Bounds {
    name: "three-members-fewer",
    about: "f = 2, min_backups 1; one update; a kill, a recovery; witnesses or machines may be lost",
    faults: 2,
    min_backups: 1,
    terms: 1,
    deaths: true,
    is_small: false,
    ..PLAIN
};

/// f = 2, and another recovery.
pub static THREE_MEMBERS_TWICE: Bounds = Bounds {
    name: "three-members-twice",
    about: "f = 2; one update; two recoveries; both witnesses may be lost",
    faults: 2,
    min_backups: 2,
    kills: 0,
    is_small: false,
    ..PLAIN
};

/// Everything at once.
pub static WIDE: Bounds = Bounds {
    name: "any-loss",
    about: "f = 1, min_backups 0; one update; a kill, two recoveries, a list change, a stop, any loss",
    min_backups: 0,
    deaths: true,
    power_losses: true,
    damage: true,
    list_changes: 1,
    stops: 1,
    is_small: false,
    ..PLAIN
};

/// All programs of this model.
pub static PROGRAMS: &[&Bounds] = &[
    &WITNESS_LOST,
    &TWO_UPDATES,
    &MANY_TERMS,
    &ONE_MEMBER,
    &LIST_CHANGE,
    &LIST_CHANGE_TWICE,
    &STOP,
    &POWER,
    &POWER_FSYNC,
    &DAMAGE,
    &THREE_MEMBERS,
    &THREE_MEMBERS_FEWER,
    &THREE_MEMBERS_TWICE,
    &WIDE,
];
