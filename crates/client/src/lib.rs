//! Client of a Kasha cluster.
//!
//! A [`Client`] is a session with a cluster, a [`Table`] has the operations on its keys, a [`Transaction`] is sent whole, and an
//! [`Interactive`] one reads before it writes.
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example() -> Result<(), kasha_client::Error> {
//! use kasha_client::{Answer, Client};
//! use std::time::Duration;
//!
//! let client = Client::connect(["127.0.0.1:7400"]).await?;
//! let table = client.create_table("accounts").await?;
//! let version = table.put("alice", "100").await?;
//! table.put_if_version("alice", version, "90").await?;
//!
//! // If this program crashes and sends the update again, the update still happens once, with the same answer.
//! let spent = table.increment("spent:alice", 10).once("order-42").remember_for(Duration::from_secs(3600)).await?;
//! println!("{} spent so far", spent.value);
//!
//! match table.append("journal", "a line").deadline(Duration::from_millis(200)).answer().await? {
//!     Answer::Known(appended) => println!("{} bytes", appended.length),
//!     // Later, or in another task: the same result, or the same error.
//!     Answer::Unknown(call) => println!("in the end: {} bytes", call.resolve().await?.length),
//! }
//! # Ok(())
//! # }
//! ```

pub mod limits;
// The protocol, a deterministic state machine without input or output: for shells of other kinds, as those of the simulator and the
// benchmarks. Programs use the client, so that it does not stand beside that on the first page.
#[doc(hidden)]
pub mod session;
#[cfg(feature = "tokio")]
mod tokio_client;

/// What a cluster tells of itself: [`Configuration`], and the status of its cores.
pub mod cluster {
    pub use kasha_types::{
        ClusterId, ConfigVersion, CoreId, Epoch, Incarnation, ListVersion, LogEnd, LogPosition, NodeId, RpcId,
        SegmentId, ShardId, Slot, Work, WorkSet,
    };
    pub use kasha_wire::configuration::*;
    pub use kasha_wire::status::*;
}

pub use cluster::Configuration;
pub use kasha_types::{ClusterId, CoreId, TableId};
pub use kasha_wire::message::TableOutcome;
pub use kasha_wire::operation::Condition;
pub use kasha_wire::outcome::ScannedPage;
pub use kasha_wire::{DecodeError, Outcome};
pub use kasha_witness::Path;
pub use session::{
    Commit, Conflict, Cursor, NoCursor, SessionStats, TimeToLive, WaitsFor, WhyFailed, WhyNot, WhyUnknown,
};
#[cfg(feature = "tokio")]
pub use tokio_client::*;
