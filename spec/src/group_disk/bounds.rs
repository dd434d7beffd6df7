//! Bounds of the searches: how much may happen in each program, and what each program is for.

/// Bounds of one search.
#[derive(Debug)]
pub struct Bounds {
    /// The name of the program.
    pub name: &'static str,
    /// What the program is for.
    pub about: &'static str,
    /// Number of operations.
    pub operations: u8,
    /// Number of views that are entered.
    pub views: u8,
    /// Number of logs of new views: each cuts the log, or not.
    pub cuts: u8,
    /// Kills of the process, also in a write.
    pub kills: u8,
    /// Losses of power.
    pub power_losses: u8,
    /// Pages of the last record that rot while the process is down.
    pub rot: u8,
    /// Whether the program is searched in the small bounds, too.
    pub is_small: bool,
}

/// Kills and losses of power.
pub static CRASHES: Bounds = Bounds {
    name: "crashes",
    about: "two files of three records of two pages; four operations, a view, a new log; two kills and a loss of power",
    operations: 4,
    views: 1,
    cuts: 1,
    kills: 2,
    power_losses: 1,
    rot: 0,
    is_small: true,
};

/// Another loss of power.
pub static POWER: Bounds = Bounds {
    name: "power-losses",
    about: "the same; four operations, a view, a new log; a kill and two losses of power",
    kills: 1,
    power_losses: 2,
    is_small: false,
    ..CRASHES
};

/// The last record rots.
pub static ROT: Bounds = Bounds {
    name: "rot",
    about: "the same; three operations, a view, a new log; two kills; a page of the last record rots",
    operations: 3,
    power_losses: 0,
    rot: 1,
    ..CRASHES
};

/// All programs of this model.
pub static PROGRAMS: &[&Bounds] = &[&CRASHES, &POWER, &ROT];
