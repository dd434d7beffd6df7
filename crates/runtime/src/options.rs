//! What an event loop is told when it is made.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kasha_types::{ClusterId, CoreId, CorePort, Incarnation};
use kasha_wire::WireVersions;

use crate::limits::Limits;
use crate::{HeapUse, Listener, Names, TrashThread};

/// The cluster that this process belongs to, shared by its loops. 0 until it is known; then it never changes.
#[derive(Clone, Debug, Default)]
pub struct ClusterCell(Arc<AtomicU64>);

impl ClusterCell {
    /// A process of this cluster; of none yet if it is 0.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self(Arc::new(AtomicU64::new(cluster.0)))
    }

    /// The cluster; 0 if it is not known yet.
    #[must_use]
    pub fn get(&self) -> ClusterId {
        ClusterId(self.0.load(Ordering::Acquire))
    }

    /// Joins a cluster, if this process is in none.
    ///
    /// # Errors
    /// The cluster that it is in, if that is another one.
    pub fn join(&self, cluster: ClusterId) -> Result<(), ClusterId> {
        match self.0.compare_exchange(0, cluster.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(ours) if ours == cluster.0 => Ok(()),
            Err(ours) => Err(ClusterId(ours)),
        }
    }
}

/// What a loop tells its peers about itself.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The cluster. A loop that is in none joins the cluster of the first peer that it dials.
    pub cluster: ClusterCell,
    /// The core of a node; `None`: a client, or the coordinator.
    pub core: Option<CoreId>,
    /// The start of the process; 0 for a client.
    pub incarnation: Incarnation,
    /// The versions of the wire that it speaks: those of this crate, but in tests.
    pub versions: WireVersions,
}

/// Faults injected on received frames, handshakes excepted: for demonstrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFaults {
    /// Of a thousand frames, how many are lost.
    pub drop_per_mille: u16,
    /// Of a thousand frames, how many come twice.
    pub duplicate_per_mille: u16,
    /// The seed that chooses these frames.
    pub seed: u64,
}

/// Everything that an event loop is told.
#[derive(Debug, Default)]
pub struct LoopOptions {
    /// The loop's name in the log, and in the name of its log thread.
    pub name: String,
    /// The sockets on which the loop accepts connections, each with its framing.
    pub listen: Vec<Listener>,
    /// What the loop tells its peers about itself.
    pub identity: Identity,
    /// How long to poll before blocking. 0 where loops outnumber processors, else 10–20 µs (section 12).
    pub spin: Duration,
    /// This loop's own folder; `None` if its machine has no files.
    pub data_dir: Option<PathBuf>,
    /// How much later than received a frame is given to the machine (a stand-in for the network's delay).
    pub link_delay: Duration,
    /// Faults to inject.
    pub faults: Option<FrameFaults>,
    /// How the program's allocator tells what the present thread has allocated, if it does.
    pub heap: Option<fn() -> HeapUse>,
    /// Peers whose names are looked up at each dial (R12.38). No effect of the machine says where these are.
    pub names: Option<Names>,
    /// The thread that frees the content of removed files; `None`: the loop waits for that.
    pub trash: Option<TrashThread>,
    /// The limits of this loop's connections, files and queues.
    pub limits: Limits,
    /// Where it notes what it counts of connections of the Redis protocol.
    pub port: Option<CorePort>,
}
