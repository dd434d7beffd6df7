//! Every byte that crosses a connection.
//!
//! A frame is a 16-byte header ([`frame`]) and a payload; a [`cutter`] cuts a stream into them. The payloads of the
//! hot path have fixed layouts that are read in place ([`hot`], [`body`]); everything else is one table of messages
//! ([`message`]), of which each link carries some ([`link`]), over a small codec ([`codec`]). All integers are little endian. Every decoder takes arbitrary bytes
//! and answers with a value or a [`DecodeError`]; none panics, and none allocates more than the frame that it was
//! given.
//!
//! Called by `replication`, `store`, `node`, `client`, `coordinator`, `runtime` and `sim`; knows nothing of what
//! messages mean.

mod administering;
pub mod body;
pub mod codec;
pub mod configuration;
pub mod cutter;
pub mod frame;
pub mod hot;
pub mod link;
pub mod message;
pub mod operation;
pub mod outcome;
pub mod plain;
mod report;
pub mod requests;
pub mod status;
mod tables;
mod version;
mod word;

pub use body::{Body, BodyHead, Coordination, Said};
pub use codec::{Bytes, DecodeError, Reader, Wire};
pub use configuration::{
    Configuration, Durability, GroupMember, Member, MemberState, NodeInfo, Served, ShardConfig, ShardPhase, TableInfo,
    Tablet,
};
pub use frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader, Kind};
pub use hot::{
    AnswerView, AppendView, Appended, Envelope, ReadAnswerView, ReadRefused, ReadView, Recorded, RecordedVerdict,
    Refusal, Refused, RequestView, SyncRequest, Synced, Turn,
};
pub use link::Message;
pub use message::AnyMessage;
pub use operation::{Read, Update};
pub use outcome::{Outcome, OutcomeCode};
pub use version::{Later, Level, Levels, WIRE_VERSION, WireVersion, WireVersions};
