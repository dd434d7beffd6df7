//! Names of the things in a cluster. All are plain numbers on the wire and in the log.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// One cluster: drawn at random when it is created, stored in every data folder, carried in every handshake.
    ClusterId(u64), "cluster-"
);
id!(
    /// One server process's place in the cluster: survives restarts (its data folder belongs to it). From 1.
    NodeId(u16), "node-"
);
id!(
    /// One start of a server process: greater than every earlier one of the same node (DESIGN section 1). The number of
    /// starts, then the data folder's identity.
    Incarnation(u64), "incarnation-"
);
id!(
    /// The kernel's boot id of the machine: another one means that memory and page cache were lost (R5.5).
    BootId(u128), "boot-"
);
id!(
    /// The unit of ordering: one log, one executor, one epoch. From 0.
    ShardId(u16), "shard-"
);
id!(
    /// A shard's primary term. Only grows (F2); every message that changes state carries it.
    Epoch(u32), "epoch-"
);
id!(
    /// Changes with a shard's witness set (CURP 3.5). 0 means "recorded on no witness: gate my answer".
    ListVersion(u64), "list-"
);
id!(
    /// Version of the cluster's configuration. Grows by one with each committed change.
    ConfigVersion(u64), "config-"
);
id!(
    /// A client's identity, granted with a lease by the coordinator. From 1, never reused (R4.7).
    ClientId(u64), "client-"
);
id!(
    /// Number of an update within its client: from 1, monotonic.
    Sequence(u64), "#"
);
id!(
    /// "Every sequence below this one has its result": piggybacked on requests (RIFL).
    AckedBelow(u64), "<#"
);
id!(
    /// A named table's number; never reused after a drop.
    TableId(u32), "table-"
);
id!(
    /// Hash of a request's body: a reused [`RpcId`] with another body is refused, never answered (R4.1).
    BodyHash(u64), "body-"
);
id!(
    /// Counts a primary's attempts to attach one member within its epoch. Every frame of an attachment carries it, so that
    /// what was said of an earlier one is known for what it is.
    AttachId(u32), "attach-"
);
id!(
    /// One transport connection of one event loop; never reused within a process.
    ConnId(u64), "conn-"
);

impl Incarnation {
    /// The `starts`-th start, from 1, with the data folder of this identity, drawn at random when the folder was made:
    /// so a node whose folder was lost is not taken for its old self.
    #[must_use]
    pub fn new(starts: u32, identity: u32) -> Self {
        Self(u64::from(starts) << 32 | u64::from(identity))
    }

    /// How often a process was started with its data folder.
    #[must_use]
    pub fn starts(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its data folder's identity.
    #[must_use]
    pub fn identity(self) -> u32 {
        self.0 as u32
    }
}

impl Epoch {
    /// The epoch after this one.
    ///
    /// # Panics
    /// After 2³² - 1 fail-overs of one shard.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("epochs are exhausted"))
    }
}

impl BootId {
    /// No boot of any machine: what a replica's marks say once its process has ended in good order.
    pub const ENDED: Self = Self(0);
}

impl ListVersion {
    /// "Recorded on no witness": the primary gates the answer (R6.1).
    pub const NONE: Self = Self(0);

    /// The list version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl AttachId {
    /// The attempt after this one.
    ///
    /// # Panics
    /// After 2³² - 1 attempts in one epoch.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("attempts are exhausted"))
    }
}

impl ConfigVersion {
    /// The configuration after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Names one update everywhere: in the client, the witnesses, the log and the completion record (RIFL 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcId {
    /// Who asked.
    pub client: ClientId,
    /// Which of its updates.
    pub sequence: Sequence,
}

impl fmt::Display for RpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.client, self.sequence)
    }
}

impl fmt::Debug for RpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One event loop of one node, with its own listening address. A shard's replica on a node always lives on the core
/// `shard % cores`, so that clients and peers connect to the owning core and nothing hops between cores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CoreId {
    /// The process.
    pub node: NodeId,
    /// The loop within it, from 0.
    pub core: u8,
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.core)
    }
}

impl fmt::Debug for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
