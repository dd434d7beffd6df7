//! The cluster's configuration: what the coordinator commits, and everybody else obeys.

use std::net::SocketAddr;

use kasha_types::{
    ClusterId, ConfigVersion, CoreId, Epoch, Incarnation, ListVersion, MemberId, NodeId, ShardId, Slot, TableId, limits,
};

use crate::{DecodeError, Reader, Wire, wire_struct};

/// What "holds" means (R5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Written to a file's page cache: survives a crash of the process.
    #[default]
    Replicated,
    /// Fsynced: survives a loss of power.
    Fsync,
}

/// How complete a member's copy of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It holds everything synced: may be elected, and counts when the shard is recovered.
    Complete,
    /// It takes the live tail and counts for syncs, but older data is still being copied: must not be elected (R7.2).
    Joining,
}

/// A member of a shard's replica set. The primary is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node; the replica lives on core `shard % cores`.
    pub node: NodeId,
    /// How complete it is.
    pub state: MemberState,
    /// The configuration that made it a member: one that left and came back is another member, whose copy begins anew.
    pub since: ConfigVersion,
}

/// Where a shard is in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardPhase {
    /// The primary fences, replays the log and one witness, and reports `Recovered`.
    Recovering,
    /// The primary serves.
    Serving,
}

/// The term that last served, and whose it was (R7.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The epoch of the term.
    pub epoch: Epoch,
    /// The primary of that term. Only this node's own file must hold every update that the term answered.
    pub primary: NodeId,
}

/// One shard's committed configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// The shard's number.
    pub shard: ShardId,
    /// The epoch of the present term.
    pub epoch: Epoch,
    /// The node that executes requests in this term.
    pub primary: NodeId,
    /// Whether the primary serves already.
    pub phase: ShardPhase,
    /// The committed replica set: syncs count against it and nothing else (R7.2).
    pub members: Vec<Member>,
    /// The configuration that last changed this set. Each member notes it in its folder, so that a coordinator whose memory is
    /// from before the change is found out (R9.13).
    pub members_since: ConfigVersion,
    /// While recovering: the complete members of the set that last served, of which one is enough to recover (section
    /// 7, step 2). Empty for a shard that never served.
    pub recover_from: Vec<NodeId>,
    /// The witness list; exactly `faults` nodes, or empty: no fast path and nothing to replay (R6.1).
    pub witnesses: Vec<NodeId>,
    /// The version of the witness list.
    pub list: ListVersion,
    /// The list is being changed: the primary refuses it, syncs, and reports `ListClosed` (R6.2).
    pub closing: bool,
    /// The term that last served: set when a term is reported recovered, and kept by a promotion (R7.7). `None`: none has.
    pub served: Option<Served>,
}

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's number.
    pub node: NodeId,
    /// The node's running process, as far as the coordinator has heard.
    pub incarnation: Incarnation,
    /// One address per core.
    pub cores: Vec<SocketAddr>,
    /// Whether the coordinator counts on the node: false once it has declared the node lost.
    pub alive: bool,
}

/// A named table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The table's number, never used again for another table.
    pub table: TableId,
    /// The table's name, at most `TABLE_NAME_BYTES_MAX` bytes.
    pub name: String,
}

/// A table's slot range, owned by one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tablet {
    /// The table whose slots these are.
    pub table: TableId,
    /// The first slot of the range.
    pub first: Slot,
    /// The last slot of the range, which belongs to it.
    pub last: Slot,
    /// The shard that owns the keys of these slots.
    pub shard: ShardId,
}

/// Everything that nodes and clients need to know. Sent whole: it is small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The cluster that is configured.
    pub cluster: ClusterId,
    /// Grows by one with each committed change.
    pub version: ConfigVersion,
    /// `f`: backups and witnesses of each shard.
    pub faults: u8,
    /// When a member counts as holding the log (R5.3).
    pub durability: Durability,
    /// Fewest members beside the primary for updates to be taken (section 7).
    pub min_backups: u8,
    /// Nodes that must be there before a new cluster begins. Until then it has no shard and no table.
    pub nodes_wanted: u16,
    /// Where the leader of the group of coordinators listens.
    pub coordinator: SocketAddr,
    /// The members of that group, and those that are to become members; in order of member.
    pub group: Vec<GroupMember>,
    /// In order of node.
    pub nodes: Vec<NodeInfo>,
    /// In order of shard; index = shard id.
    pub shards: Vec<ShardConfig>,
    /// In order of table.
    pub tables: Vec<TableInfo>,
    /// In order of table and slot; together they cover every slot of every table once.
    pub tablets: Vec<Tablet>,
}

/// A member of the group of coordinators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Which one.
    pub member: MemberId,
    /// The node of its process.
    pub node: NodeId,
    /// The identity of its process's data folder: only a process with this folder is the member.
    pub folder: u32,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Configuration {
    /// What is known of a node.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodeInfo> {
        self.nodes.iter().find(|info| info.node == node)
    }

    /// A shard's configuration.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<&ShardConfig> {
        self.shards.get(usize::from(shard.0))
    }

    /// The core of `node` that hosts replicas and witnesses of `shard`.
    #[must_use]
    pub fn core_of(&self, node: NodeId, shard: ShardId) -> Option<CoreId> {
        let cores = u16::try_from(self.node(node)?.cores.len()).ok().filter(|&cores| cores > 0)?;
        Some(CoreId { node, core: u8::try_from(shard.0 % cores).ok()? })
    }

    /// Where that core listens.
    #[must_use]
    pub fn address_of(&self, core: CoreId) -> Option<SocketAddr> {
        self.node(core.node)?.cores.get(usize::from(core.core)).copied()
    }

    /// The owner of a slot of a table.
    #[must_use]
    pub fn owner(&self, table: TableId, slot: Slot) -> Option<ShardId> {
        let index = self.tablets.partition_point(|tablet| (tablet.table, tablet.last) < (table, slot));
        self.tablets.get(index).filter(|t| t.table == table && t.first <= slot).map(|t| t.shard)
    }

    /// The tablets of a table, in the order of their slots.
    pub fn tablets_of(&self, table: TableId) -> impl Iterator<Item = &Tablet> {
        let index = self.tablets.partition_point(|tablet| tablet.table < table);
        self.tablets[index..].iter().take_while(move |tablet| tablet.table == table)
    }

    /// How many more nodes must come before the cluster begins: it has no shard and no table until then. `None`: it has begun.
    #[must_use]
    pub fn missing_to_begin(&self) -> Option<u16> {
        let alive = self.nodes.iter().filter(|info| info.alive).count();
        let missing = self.nodes_wanted.saturating_sub(u16::try_from(alive).unwrap_or(u16::MAX));
        self.shards.is_empty().then_some(missing)
    }

    /// Whether there is this table.
    #[must_use]
    pub fn has_table(&self, table: TableId) -> bool {
        self.tables.iter().any(|info| info.table == table)
    }

    /// A table by name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<TableId> {
        self.tables.iter().find(|info| info.name == name).map(|info| info.table)
    }
}

impl ShardConfig {
    /// Whether the fast path exists (R6.1): exactly `faults` witnesses, at least one, none of them the primary's.
    #[must_use]
    pub fn has_fast_path(&self, faults: u8) -> bool {
        faults > 0
            && self.witnesses.len() == usize::from(faults)
            && !self.witnesses.contains(&self.primary)
            && !self.closing
            && self.phase == ShardPhase::Serving
    }

    /// A node's membership.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.members.iter().copied().find(|member| member.node == node)
    }
}

macro_rules! wire_enum {
    ($($name:ident, $what:literal { $($variant:ident = $value:literal),* $(,)? })*) => {$(
        impl $crate::codec::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $(Self::$variant => $value),* });
            }
            fn take(from: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match from.take::<u8>()? {
                    $($value => Ok(Self::$variant),)*
                    _ => Err($crate::codec::DecodeError::Invalid($what)),
                }
            }
        }
    )*};
}

pub(crate) use wire_enum;

wire_enum! {
    Durability, "a durability" { Replicated = 0, Fsync = 1 }
    MemberState, "a member's state" { Complete = 0, Joining = 1 }
    ShardPhase, "a shard's phase" { Recovering = 0, Serving = 1 }
}

wire_struct! {
    Member { node, state, since }
    Served { epoch, primary }
    ShardConfig { shard, epoch, primary, phase, members, members_since, recover_from, witnesses, list, closing, served }
    NodeInfo { node, incarnation, cores, alive }
    TableInfo { table, name }
    Tablet { table, first, last, shard }
    GroupMember { member, node, folder, address }
}

impl Wire for Configuration {
    fn put(&self, out: &mut Vec<u8>) {
        self.cluster.put(out);
        self.version.put(out);
        self.faults.put(out);
        self.durability.put(out);
        self.min_backups.put(out);
        self.nodes_wanted.put(out);
        self.coordinator.put(out);
        self.group.put(out);
        self.nodes.put(out);
        self.shards.put(out);
        self.tables.put(out);
        self.tablets.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::take_with(from, |from| from.take())
    }
}

impl Configuration {
    /// As files hold it that were written before there was a group.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn take_without_group(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::take_with(from, |_| Ok(Vec::new()))
    }

    fn take_with(
        from: &mut Reader<'_>,
        group: impl FnOnce(&mut Reader<'_>) -> Result<Vec<GroupMember>, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let config = Self {
            cluster: from.take()?,
            version: from.take()?,
            faults: from.take()?,
            durability: from.take()?,
            min_backups: from.take()?,
            nodes_wanted: from.take()?,
            coordinator: from.take()?,
            group: group(from)?,
            nodes: from.take()?,
            shards: from.take()?,
            tables: from.take()?,
            tablets: from.take()?,
        };
        if config.faults > limits::FAULTS_MAX || config.shards.len() > usize::from(limits::SHARDS_MAX) {
            return Err(DecodeError::TooLarge("the configuration"));
        }
        if config.shards.iter().enumerate().any(|(index, shard)| usize::from(shard.shard.0) != index) {
            return Err(DecodeError::Invalid("the order of shards"));
        }
        if !config.group.is_sorted_by(|a, b| a.member < b.member) {
            return Err(DecodeError::Invalid("the order of members"));
        }
        if !config.tablets.is_sorted_by_key(|tablet| (tablet.table, tablet.first)) {
            return Err(DecodeError::Invalid("the order of tablets"));
        }
        Ok(config)
    }
}
