//! What is true in every stage of a term.

use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::{MemberCore, Quorum, Shipping};
use kasha_types::planted::{self, Bug};
use kasha_types::{AttachId, CoreId, Epoch, ListVersion, LocalPosition, LogEnd, LogPosition, NodeId, ShardId, Tick};
use kasha_wire::message;
use kasha_wire::{Durability, MemberState, Served, ShardConfig};

use crate::core::Core;
use crate::core::send::send;
use crate::node::options::Baseline;
use crate::shard::copy::LogCopy;

/// What is true in every stage of a term.
#[derive(Debug)]
pub(crate) struct Term {
    pub epoch: Epoch,
    pub shipping: Shipping,
    /// The list that is replayed, and later served under.
    pub list: ListVersion,
    /// Our promise of this epoch: nothing is written in it before the promise is on our file, or a new incarnation of
    /// this process could begin the same epoch again.
    pub(crate) promise: LocalPosition,
    /// Whose reports it needs.
    pub(crate) quorum: Quorum,
    pub(crate) witnesses: Vec<CoreId>,
    /// The term that last served, before ours.
    pub(crate) served: Option<Served>,
    /// The log that we go on with holds every update that was answered (R7.7).
    pub(crate) is_whole: bool,
    /// What our log holds was taken from another member in this term, as a whole or in part.
    pub(crate) has_fetched: bool,
    /// The members that may hold the log, and where they are.
    pub(crate) recover_from: Vec<NodeId>,
    pub(crate) electorate: Vec<CoreId>,
}

impl Term {
    /// The term that this configuration begins. Our promise of it is in this turn's commit.
    pub(crate) fn new(shard: ShardId, core: &Core, config: &ShardConfig) -> Self {
        let mut shipping = Shipping::new(shard, config.epoch, core.id(), core.options.pace, LogEnd::START);
        shipping.set_members(members_of(core, config));
        let never_served = config.recover_from.is_empty();
        let witnesses = if never_served { Vec::new() } else { config.witnesses.clone() };
        Self {
            epoch: config.epoch,
            shipping,
            list: config.list,
            promise: core.commit_position(),
            quorum: Quorum::OneSure,
            witnesses: cores_of(core, shard, witnesses),
            served: config.served,
            is_whole: false,
            has_fetched: false,
            recover_from: config.recover_from.clone(),
            electorate: cores_of(core, shard, config.recover_from.iter().copied()),
        }
    }

    /// What every member holds, as a position of this term.
    pub fn synced(&self) -> LogPosition {
        LogPosition { epoch: self.epoch, offset: self.shipping.synced() }
    }

    /// Up to where our log is synced, and our own file survives a loss of power (R8.17 \[M\]). Whatever every machine loses then, a
    /// recovery finds so much of it.
    pub fn durable(&self, core: &Core, copy: &LogCopy) -> LogEnd {
        let synced = self.shipping.synced();
        match core.durability() {
            Durability::Replicated if planted::is_on(Bug::DurableUnflushed) => synced,
            Durability::Replicated if core.options.baseline == Baseline::TwoPhase => synced, // Sinfonia promises no more
            Durability::Replicated => synced.min(copy.flushed),
            Durability::Fsync => synced, // what our own file holds is fsynced
        }
    }

    /// Whether our own file is to survive a loss of power, and does not yet.
    pub fn wants_flush(&self, core: &Core, copy: &LogCopy) -> bool {
        copy.flushed < self.shipping.flush_wanted() && core.durability() == Durability::Replicated
    }

    /// Asks the members that last served for a promise of our epoch, and for what they hold.
    pub(crate) fn send_fences(&self, core: &Core, shard: ShardId, out: &mut Effects) {
        let (epoch, served, list) = (self.epoch, self.served, self.list);
        for &to in self.electorate.iter().filter(|&&to| to != core.id()) {
            let message = message::Fence { shard, epoch, primary: core.id(), attach: AttachId(0), served, list };
            send(Endpoint::Core(to), &message, Gate::Now, out);
        }
    }
}

/// The cores of these nodes that host the shard.
pub(crate) fn cores_of(core: &Core, shard: ShardId, nodes: impl IntoIterator<Item = NodeId>) -> Vec<CoreId> {
    let configuration = core.configuration.as_ref().expect("a configuration promoted us");
    nodes.into_iter().filter_map(|node| configuration.core_of(node, shard)).collect()
}

pub(crate) fn members_of(core: &Core, config: &ShardConfig) -> Vec<MemberCore> {
    let configuration = core.configuration.as_ref().expect("a configuration named them");
    let members = config.members.iter();
    members
        .filter_map(|member| {
            let core = configuration.core_of(member.node, config.shard)?;
            let incarnation = configuration.node(member.node)?.incarnation;
            Some(MemberCore { core, joining: member.state == MemberState::Joining, since: member.since, incarnation })
        })
        .collect()
}

/// Members besides the primary without which nothing is synced while it serves.
pub(crate) fn fewest_peers(core: &Core) -> usize {
    let configuration = core.configuration.as_ref().expect("a configuration promoted us");
    usize::from(configuration.min_backups)
}

pub(crate) fn is_overdue(core: &Core, now: Tick, asked: Option<Tick>) -> bool {
    asked.is_none_or(|asked| now.since(asked) >= core.options.pace.retry)
}
