//! Ids, positions, clocks and limits that every Kasha crate shares.
//!
//! Each quantity is its own type, so that an epoch cannot be passed where a list version is meant. The protocols live in
//! the crates above.

mod checksum;
mod clock;
mod ids;
mod keys;
pub mod limits;
pub mod planted;
mod port;
mod position;
pub mod probe;
mod work;

pub use checksum::{chained, crc32c, crc32c_append};
pub use clock::{ClusterTime, Tick, TimeBounds, UnixMillis};
pub use ids::{
    AckedBelow, AttachId, BodyHash, BootId, ClientId, ClusterId, ConfigVersion, ConnId, CoreId, Epoch, Incarnation,
    ListVersion, MemberId, NodeId, RpcId, Sequence, ShardId, TableId, ViewNumber,
};
pub use keys::{KeyHash, OperationName, Slot, body_hash, key_hash, slot_of};
pub use port::{CorePort, PortUse};
pub use position::{ENTRY_HEADER_BYTES, EntryOffset, LocalPosition, LogEnd, LogPosition, LogSlice, Round, SegmentId};
pub use work::{Work, WorkSet};
