//! Ids of the things in a cluster. Each is a type of its own, and a plain number on the wire and in the log.

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
    /// One cluster. The id is drawn at random when the cluster is created, stored in every data folder, and sent in
    /// every handshake.
    ClusterId(u64), "cluster-"
);
id!(
    /// One node of the cluster, from 1. The number survives restarts: the data folder stores it.
    NodeId(u16), "node-"
);
id!(
    /// One member of the group of coordinators, and one life of its folder: a member that has lost its files comes back under
    /// another id. Never used again.
    MemberId(u64), "member-"
);
id!(
    /// One start of a server process. It is greater than every earlier one of the same node (DESIGN section 1). It
    /// consists of the number of starts, and then the identity of the data folder.
    Incarnation(u64), "incarnation-"
);
id!(
    /// The kernel's boot id of a machine. If it has changed, the content of memory and page cache was lost (R5.5).
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
    /// Version of a shard's witness list; changes with the list (CURP 3.5). 0 means "recorded on no witness: gate my
    /// answer".
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
    /// "I have the result of every sequence below this one": the acknowledgement that a client sends with its requests
    /// (RIFL).
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
    /// Counts a primary's attempts to attach one member within its epoch. Every frame of an attachment carries the
    /// number, so that a late frame of an earlier attempt is recognized.
    AttachId(u32), "attach-"
);
id!(
    /// A view of the group of coordinators: one of its members leads it. Later views have greater numbers.
    ViewNumber(u64), "view-"
);
id!(
    /// One transport connection of one event loop; never reused within a process.
    ConnId(u64), "conn-"
);

impl Incarnation {
    /// The `starts`-th start, from 1, with the data folder of this identity. The identity is drawn at random when the
    /// folder is made. So a node whose folder was lost does not pass for its former self.
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
    /// The id of no boot: it stands in a replica's marks after its process has ended in good order.
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
    /// The client that sent the update.
    pub client: ClientId,
    /// The update's number within the client.
    pub sequence: Sequence,
}

impl RpcId {
    /// Before all others.
    pub const MIN: Self = Self { client: ClientId(u64::MIN), sequence: Sequence(u64::MIN) };
    /// Behind all others.
    pub const MAX: Self = Self { client: ClientId(u64::MAX), sequence: Sequence(u64::MAX) };
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
    /// The node that the loop belongs to.
    pub node: NodeId,
    /// The number of the loop within the node, from 0.
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
