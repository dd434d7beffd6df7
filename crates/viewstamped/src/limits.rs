//! Limits, and why they are what they are.

use std::time::Duration;

/// Members of a group, newcomers included: five survive the loss of two, and each more makes every round slower.
pub const MEMBERS_MAX: usize = 8;

/// Others of which a member remembers when it heard them: members, newcomers, and who has left.
pub(crate) const HEARD_MAX: usize = 64;

/// Bytes of entries in one message, but for the first one: a member that lacks more asks again.
pub(crate) const PIECE_BYTES_MAX: usize = 256 * 1024;

/// Digests of the last operations that a member keeps, to be compared with the others'.
pub(crate) const DIGESTS_MAX: usize = 1024;

/// How long an operation may be uncommitted, though rounds complete (R9.10). A lease would elect at each slow fsync (0012).
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// Elections of so many leases make the next one wait longer (R9.7).
pub(crate) const ELECTIONS_REMEMBERED_LEASES: u32 = 64;

/// The longest wait is so many leases (R9.7).
pub(crate) const LEASES_MAX: u32 = 8;
