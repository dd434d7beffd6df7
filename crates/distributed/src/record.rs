//! The record of one transaction at one participant, and the list of what is to be done about which of them, and when.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use kasha_types::{LogEnd, RpcId, ShardId};

use crate::{Behind, GateId, Proposal, Said, Timestamp, Why};

/// How far a transaction is here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// It has proposed this.
    Pending(Timestamp),
    /// It is executed.
    Executed(Executed),
    /// It does not happen.
    Against(Why),
}

/// A transaction that is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executed {
    pub at: Timestamp,
    /// The gate of its answer, while it is closed.
    pub gate: Option<GateId>,
    /// Every participant has executed it, and every gate has opened.
    pub is_settled: bool,
    /// All were told once what its gate waits for. That the outcome is recorded is said in any case, and says it again.
    pub told_gate: bool,
}

/// What a transaction does to others that touch its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// Others wait for it, or go before it by their place among what is pending. This is its own place: what it has proposed, or its final
    /// timestamp, or the first of all if it does not happen and that is not sure ([`crate::Participant::ended`]).
    InLine(Timestamp),
    /// Its keys are free, and its outcome is not synced.
    Fresh,
    /// Its keys are free, and nobody has to look at it.
    Free,
}

/// What is to be done about a transaction, or what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Something of it has changed.
    Look,
    /// Its next step finds no room.
    PutOff,
    /// Nobody needs it any more.
    Forget,
    /// Something of it ends here in the log, and is not durable.
    NotDurable(LogEnd),
    /// Its gate at `told_by` waits for `awaited`, as that participant has told.
    WaitsFor { awaited: RpcId, told_by: ShardId },
    /// `to` hears that it never happens here, once the log is durable up to `until`.
    Never { to: ShardId, body: u64, until: LogEnd },
}

/// What is to be done about which transactions, and what they wait for: the one list of what is to be looked at, and when. Of
/// equal work, the first by their ids come first.
#[derive(Debug, Default)]
pub(crate) struct WorkList(BTreeSet<(Work, RpcId)>);

impl WorkList {
    pub fn add(&mut self, work: Work, rpc: RpcId) {
        self.0.insert((work, rpc));
    }

    pub fn remove(&mut self, work: Work, rpc: RpcId) {
        self.0.remove(&(work, rpc));
    }

    /// The first that is to be looked at. (These come before all other work.)
    pub fn next_look(&self) -> Option<RpcId> {
        let &(work, rpc) = self.0.first()?;
        (work == Work::Look).then_some(rpc)
    }

    pub fn first(&self, work: Work) -> Option<RpcId> {
        self.of(work..=work).next().map(|(_, rpc)| rpc)
    }

    /// What is to be done of these kinds.
    pub fn of(&self, works: RangeInclusive<Work>) -> impl Iterator<Item = (Work, RpcId)> {
        let (first, last) = works.into_inner();
        self.0.range((first, RpcId::MIN)..=(last, RpcId::MAX)).copied()
    }

    /// The same, which need not be done any more.
    pub fn take(&mut self, works: RangeInclusive<Work>) -> Vec<(Work, RpcId)> {
        let (first, last) = works.into_inner();
        self.0.extract_if((first, RpcId::MIN)..=(last, RpcId::MAX), |_| true).collect()
    }

    /// Who hears *never* of which transaction and body, when the log is durable up to there. By id.
    pub fn take_nevers(&mut self, durable: LogEnd) -> Vec<(RpcId, ShardId, u64)> {
        if !matches!(self.0.last(), Some((Work::Never { .. }, _))) {
            return Vec::new(); // they come after all other work
        }
        let first = Work::Never { to: ShardId(0), body: 0, until: LogEnd::START };
        let is_sure = |(work, _): &(Work, RpcId)| matches!(work, Work::Never { until, .. } if *until <= durable);
        let sure = self.0.extract_if((first, RpcId::MIN).., is_sure);
        let hears = |(work, rpc)| match work {
            Work::Never { to, body, .. } => Some((rpc, to, body)),
            Work::Look | Work::PutOff | Work::Forget | Work::NotDurable(_) | Work::WaitsFor { .. } => None,
        };
        let mut hear: Vec<_> = sure.filter_map(hears).collect();
        hear.sort_unstable();
        hear
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What another participant has said.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub shard: ShardId,
    pub voted: Option<Timestamp>,
    /// The final timestamp, from a participant that has executed it.
    pub executed: Option<Timestamp>,
    pub against: Option<Why>,
    pub says_never: bool,
    pub recorded: bool,
    /// Its gate there has opened: the other said so, or what it waited for is known to be settled.
    pub settled: bool,
    /// What its gate there waits for, as far as that was told and is not settled.
    pub behind: Vec<Behind>,
}

/// A transaction that is known here.
#[derive(Debug)]
pub(crate) struct Distributed {
    pub proposal: Proposal,
    pub phase: Phase,
    pub keys: Keys,
    /// Where the entry of its proposal ends, or of the outcome if it never proposed.
    pub proposed_until: LogEnd,
    /// Where the entry of its outcome ends.
    pub outcome_until: LogEnd,
    /// Where the entry ends that says that the client has the result, or that its lease is over.
    pub let_go_until: Option<LogEnd>,
    pub peers: Vec<Peer>,
    /// What was last said to all.
    pub said: Option<Said>,
    /// Its next step has found no room: it waits in the work list.
    pub is_put_off: bool,
    /// How often the others had time to speak since it is here ([`crate::Participant::ask_again`]).
    pub age: u32,
    /// The next word to all asks for an answer: a new primary knows nothing of what was said before.
    pub asks: bool,
}
