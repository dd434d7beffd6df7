//! How much may happen, program by program.

use crate::cleaner::state::KeyIx;

/// A change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It gets a value.
    Put(KeyIx),
    /// It is removed, if it is there.
    Delete(KeyIx),
}

/// An update of the client: its sequence is its place in the program, from 1.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// When the client's lease ended, as it said in the body.
    pub lease: u8,
    /// The results below have arrived.
    pub acknowledgement: u8,
    /// The change that it makes, in the group of its record.
    pub change: Option<Change>,
}

/// What keeps an expiry floor's copy from forgetting what came after the floor (R5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorCopy {
    /// It names no client.
    NamesNobody,
    /// It says where the floor stood first.
    FirstPlace,
}

/// What keeps an older floor's copy from taking the place of a later floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorOrder {
    /// No floor is copied while another is pending; a replay takes the last.
    NoneBehindPending,
    /// A replay takes the greatest; floors are copied at any time.
    GreatestInReplay,
}

/// When a reference moves to the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// In the step that appends the copy.
    AtOnce,
    /// In a later one, before or after the copy is synced (R5.6).
    Later,
}

/// Bounds of one search.
#[derive(Debug)]
pub struct Bounds {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Changes of keys under no client's name, in this order.
    pub changes: &'static [Change],
    /// The client's updates, which come in any order and at any time.
    pub updates: &'static [Update],
    /// Runs under one operation key: the time until which each is to be remembered.
    pub runs: &'static [u8],
    /// ClusterTime ends here.
    pub time_max: u8,
    /// Expiry floors.
    pub floors: u8,
    /// Version floors.
    pub version_floors: u8,
    /// Segments.
    pub segments: u8,
    /// Copies.
    pub copies: u8,
    /// Restarts of the follower.
    pub restarts: u8,
    /// Fail-overs.
    pub fail_overs: u8,
    /// When references move.
    pub moves: Moves,
    /// How R5.8 is kept.
    pub floor_copy: FloorCopy,
    /// How a floor's copy is kept from replacing a later floor.
    pub floor_order: FloorOrder,
    /// Searched in the small bounds, too.
    pub is_small: bool,
}

const PLAIN: Bounds = Bounds {
    name: "",
    about: "",
    changes: &[],
    updates: &[],
    runs: &[],
    time_max: 1,
    floors: 0,
    version_floors: 0,
    segments: 4,
    copies: 2,
    restarts: 0,
    fail_overs: 1,
    moves: Moves::AtOnce,
    floor_copy: FloorCopy::NamesNobody,
    floor_order: FloorOrder::NoneBehindPending,
    is_small: true,
};

const fn update(lease: u8, acknowledgement: u8) -> Update {
    Update { lease, acknowledgement, change: None }
}

/// A key comes and goes.
pub static DELETED: Bounds = Bounds {
    name: "deleted-key",
    about: "one key is put and deleted; four segments, two copies, a version floor, a fail-over",
    changes: &[Change::Put(0), Change::Delete(0)],
    version_floors: 1,
    ..PLAIN
};

/// The same, and references move later.
pub static DELETED_LATER: Bounds =
    Bounds { name: "deleted-key-later", about: "the same; references move later", moves: Moves::Later, ..DELETED };

/// A key is overwritten before it goes.
pub static OVERWRITTEN: Bounds = Bounds {
    name: "overwritten-key",
    about: "one key is put twice and deleted; three segments, two copies, a version floor, a fail-over",
    changes: &[Change::Put(0), Change::Put(0), Change::Delete(0)],
    segments: 3,
    ..DELETED
};

/// A key comes, goes, and comes again.
pub static RECREATED: Bounds = Bounds {
    name: "re-created-key",
    about: "one key is put, deleted, put and deleted; four segments, two copies, two version floors, a fail-over",
    changes: &[Change::Put(0), Change::Delete(0), Change::Put(0), Change::Delete(0)],
    version_floors: 2,
    is_small: false,
    ..PLAIN
};

/// Two keys, and one floor for their versions.
pub static TWO_KEYS: Bounds = Bounds {
    name: "two-keys",
    about: "two keys are put and deleted; four segments, two copies, a version floor, a fail-over",
    changes: &[Change::Put(0), Change::Put(1), Change::Delete(0), Change::Delete(1)],
    is_small: false,
    ..DELETED
};

/// There and back again.
pub static FAIL_OVERS: Bounds = Bounds {
    name: "two-fail-overs-later",
    about: "one key is put and deleted; four segments, two copies, a version floor, a restart, two fail-overs",
    moves: Moves::Later,
    restarts: 1,
    fail_overs: 2,
    is_small: false,
    ..DELETED
};

/// A change and its record.
pub static GROUPS: Bounds = Bounds {
    name: "groups",
    about: "two updates of one client put and delete one key; three segments, two copies, a version floor, a fail-over",
    updates: &[
        Update { lease: 1, acknowledgement: 1, change: Some(Change::Put(0)) },
        Update { lease: 1, acknowledgement: 2, change: Some(Change::Delete(0)) },
    ],
    version_floors: 1,
    segments: 3,
    ..PLAIN
};

/// Records and what the client has acknowledged.
pub static RECORDS: Bounds = Bounds {
    name: "records",
    about: "three updates of one client, the third acknowledges the first; three segments, two copies, a fail-over",
    updates: &[update(1, 1), update(1, 1), update(1, 2)],
    segments: 3,
    ..PLAIN
};

/// The same, with more room, and references move later.
pub static RECORDS_LATER: Bounds = Bounds {
    name: "records-later",
    about: "the same; four segments, a restart, and references move later",
    moves: Moves::Later,
    segments: 4,
    restarts: 1,
    is_small: false,
    ..RECORDS
};

/// A client is forgotten.
pub static FLOOR: Bounds = Bounds {
    name: "floor",
    about: "two updates of one client with leases 1 and 2; a floor, three segments, two copies, a fail-over",
    updates: &[update(1, 1), update(2, 1)],
    floors: 1,
    segments: 3,
    ..PLAIN
};

/// The same, with the other way to copy a floor.
pub static FLOOR_FIRST_PLACE: Bounds = Bounds {
    name: "floor-first-place",
    about: "the same; a floor's copy says where the floor stood first",
    floor_copy: FloorCopy::FirstPlace,
    ..FLOOR
};

/// The same, and references move later.
pub static FLOOR_LATER: Bounds = Bounds {
    name: "floor-later",
    about: "the same; a floor's copy names nobody, and references move later",
    moves: Moves::Later,
    ..FLOOR
};

/// Two floors.
pub static FLOORS: Bounds =
    Bounds { name: "two-floors", about: "the same, moved at once; two floors", floors: 2, ..FLOOR };

/// Two floors, of which the greatest counts.
pub static FLOORS_GREATEST: Bounds = Bounds {
    name: "two-floors-greatest",
    about: "the same; floors are copied at any time, and a replay takes the greatest",
    floor_order: FloorOrder::GreatestInReplay,
    ..FLOORS
};

/// Two floors, and a third update.
pub static FLOORS_WIDE: Bounds = Bounds {
    name: "two-floors-three-updates",
    about: "three updates of one client with leases 1, 2 and 2; two floors, three segments, two copies, a fail-over",
    updates: &[update(1, 1), update(2, 1), update(2, 2)],
    is_small: false,
    ..FLOORS
};

/// An operation key expires, and is used again.
pub static OPERATION_KEY: Bounds = Bounds {
    name: "operation-key",
    about: "two runs under one operation key, until 1 and 2; time to 2, three segments, two copies, a fail-over",
    runs: &[1, 2],
    time_max: 2,
    segments: 3,
    ..PLAIN
};

/// The same, with more time and room.
pub static OPERATION_KEY_LATER: Bounds = Bounds {
    name: "operation-key-later",
    about: "the same; time to 3, four segments, a restart, and references move later",
    moves: Moves::Later,
    time_max: 3,
    segments: 4,
    restarts: 1,
    is_small: false,
    ..OPERATION_KEY
};

/// All of them.
pub static PROGRAMS: &[&Bounds] = &[
    &DELETED,
    &DELETED_LATER,
    &OVERWRITTEN,
    &RECREATED,
    &TWO_KEYS,
    &FAIL_OVERS,
    &GROUPS,
    &RECORDS,
    &RECORDS_LATER,
    &FLOOR,
    &FLOOR_FIRST_PLACE,
    &FLOOR_LATER,
    &FLOORS,
    &FLOORS_GREATEST,
    &FLOORS_WIDE,
    &OPERATION_KEY,
    &OPERATION_KEY_LATER,
];
