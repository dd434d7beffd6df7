//! Limits of this crate, with their reasons. Limits that several crates share are in `kasha_types::limits`.

use std::time::Duration;

use kasha_types::UnixMillis;

/// How far ahead ClusterTime is reserved on file (R4.7): two fsyncs in each second of an idle cluster. All starts in
/// another boot together skip at most so much, and values that end lose as much of their lifetime.
pub const TIME_AHEAD_MILLIS: u64 = 1_000;

/// ClusterTime goes towards the clock on the wall by this part of the time at most: half a percent (R10.12).
pub const STEERED_PART: u64 = 200;

/// A clock on the wall that shows less (September 2020) was never set.
pub const WALL_LEAST: UnixMillis = UnixMillis(1_600_000_000_000);

/// If the clock on the wall is farther away than this, ClusterTime does not follow it (R10.12).
pub const WALL_NEAR_MILLIS: u64 = 10_000;

/// Client ids reserved at a time (R4.7): one fsync for so many sessions; a restart skips at most so many ids.
pub const CLIENT_IDS_AHEAD: u64 = 1024;

/// Clients with a lease: about 40 bytes each. This bounds the memory that a flood of sessions can make us use.
pub const CLIENTS_MAX: usize = 4 * 1024 * 1024;

/// Leases that one tick examines to forget expired ones: a hundred microseconds of work.
pub const CLIENTS_SWEPT_MAX: usize = 1024;

/// Clients in one piece of what a member remembers of their leases: a hundred microseconds of work to take.
pub const CLIENTS_IN_PIECE_MAX: usize = 128;

/// Leases that one round tells the others: 256 KiB. Whoever asks beyond that asks again.
pub const GRANTS_IN_ROUND_MAX: usize = 16 * 1024;

/// Clients answered in one verdict: the asker asks again about the rest.
pub const LEASE_QUERY_MAX: usize = 4096;

/// Clients whose last table request is remembered (see `State::table_answer`).
pub const TABLE_CLIENTS_MAX: usize = 1024;

/// Table answers that wait until every core knows of the change. Beyond that the oldest is dropped, and its client asks
/// again.
pub const TABLE_ANSWERS_WAITING_MAX: usize = 4096;

/// Tables times shards: the configuration is sent whole and must stay far below a frame (10 bytes each).
pub const TABLETS_MAX: usize = 256 * 1024;

/// New terms in one lease period: recoveries read logs and witnesses, and must not starve the serving shards (pitfall
/// 9).
pub const PROMOTIONS_MAX: u32 = 64;

/// Leases for which a coordinator hears no other node before a node of its own process goes on alone (R7.8). So a cut
/// of a few seconds changes nothing, and machines that do not come back are replaced.
pub const ALONE_LEASES: u32 = 10;

/// Leases for which a coordinator that starts listens at most for nodes that do not speak, before it decides anything (R9.13): as
/// long as one that hears nobody waits for others.
pub const LISTENING_LEASES: u32 = ALONE_LEASES;

/// Clients whose wish for a session a coordinator remembers while it listens. Others ask again.
pub const SESSIONS_HEARD_MAX: usize = 256;

/// How long a file of the journal is from the beginning: when it is used up, the other one begins with a snapshot.
pub const JOURNAL_BYTES: usize = 1024 * 1024;

/// Bytes of one record of format 4; a length above is damage. A snapshot is a few megabytes at most.
pub const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Frames that may wait for one stuck commit. Beyond that, frames are dropped, which every receiver must survive
/// anyway.
pub const FRAMES_HELD_MAX: u32 = 64 * 1024;

/// Bytes of commands that may wait to be committed. Beyond that, table requests are not answered.
pub const PENDING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Versions, ids and sequences stay below this number. No cluster counts this far, so code that adds to one need not
/// check.
pub const COUNT_MAX: u64 = u64::MAX / 2;

/// Members of the group of coordinators: five survive the loss of two, and each more makes every round slower.
pub const GROUP_MAX: u8 = 5;

/// A member whose node has been lost for so long is replaced (R9.14): a restart, or a new kernel, takes less.
pub(crate) const MEMBER_REPLACED_AFTER: Duration = Duration::from_secs(300);

/// Folders that were members and are none any more, of which the state knows: the last ones.
pub(crate) const FORMER_MEMBERS_MAX: usize = 64;

/// A member from which nothing was heard for so many leases is silent: elections and stalls take less.
pub(crate) const SILENT_LEASES: u32 = 4;

/// A node that was heard so many leases before a lead begins counts as heard by the one who leads: elections take less, also several.
pub(crate) const OVERHEARD_LEASES: u32 = 16;

/// While another member hears more nodes, a leader judges none for so many leases: to take over the lead takes less than one.
pub(crate) const HEARS_LESS_LEASES: u32 = 4;

/// After so many leases these begin anew.
pub(crate) const HEARS_LESS_AFRESH_LEASES: u32 = 64;

/// A new cluster waits for so many leases for a member that was invited and says nothing, if nobody chose the size of the group.
pub(crate) const FORMING_LEASES: u32 = 20;
