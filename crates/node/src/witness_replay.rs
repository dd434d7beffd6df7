//! Asking the witnesses of the current list, and what their answers allow (section 7, step 4; CURP 3.3).
//!
//! A term whose log is whole (R7.7) needs no witness. The term asks all the same, and hears those out who are called alive
//! ([`kasha_replication::Pace::hearing`]): a witness that answers covers what a disk that lies has taken from the log. Any other
//! term waits for a sure witness, and meanwhile fences the members again and again: one of them, the primary that served last
//! above all, may bring a whole log. What it waits for it tells the coordinator, for an operator who gives that up.

use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::{FenceReport, Quorum};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, Epoch, ListVersion, NodeId, ShardId, Tick};
use kasha_wire::codec::Bytes;
use kasha_wire::message::{Holding, Message, Report};

use crate::core::{Core, send};
use crate::primary::{Primary, Stage};
use crate::replica::Replica;

/// What a witness handed out.
#[derive(Debug)]
pub(crate) struct WitnessAnswer {
    pub node: NodeId,
    pub holding: Holding,
    pub requests: Vec<Bytes>,
}

/// The questions of a term to the witnesses of its list.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// When they were asked last.
    pub asked: Option<Tick>,
    /// When they were asked first.
    began: Option<Tick>,
    answers: Vec<WitnessAnswer>,
    /// Members that have said meanwhile that their logs are not whole.
    not_whole: Vec<NodeId>,
    /// The witnesses that are called alive have answered, or have had the time for it.
    goes_on: bool,
}

impl Asking {
    /// Whether a witness has said that it lost something.
    fn has_heard(&self, node: NodeId) -> bool {
        let lost = |answer: &WitnessAnswer| matches!(answer.holding, Holding::PowerLost | Holding::Damaged);
        self.answers.iter().any(|answer| answer.node == node && lost(answer))
    }

    /// What the coordinator is told of a term that waits for a witness, and for whom.
    pub fn needs_witness(&self, primary: &Primary, shard: ShardId) -> Option<Report> {
        let members = primary.recover_from.iter().copied().filter(|node| !self.not_whole.contains(node));
        let witnesses = primary.witnesses.iter().map(|core| core.node).filter(|&node| !self.has_heard(node));
        (self.goes_on && !primary.is_whole).then(|| Report::NeedsWitness {
            shard,
            epoch: primary.epoch,
            unheard_members: members.collect(),
            unheard_witnesses: witnesses.collect(),
        })
    }
}

/// What a term replays, and what it may say of its log then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// Everything that was answered under the list: a whole log, or a sure witness to its end.
    Everything,
    /// All that there is.
    Remains,
}

/// What the answers of a list's witnesses allow. The rule stands in `witnessing`.
#[derive(Debug, PartialEq, Eq)]
enum Replayable {
    /// This answer is sure.
    Sure(usize),
    /// All have answered, none is sure, and this one holds the most (R5.5).
    Fullest(usize),
    /// All have answered, and none of them is of any use.
    Useless,
    /// Something better may come.
    None,
}

fn replayable(answers: &[WitnessAnswer], witnesses: usize) -> Replayable {
    if let Some(sure) = answers.iter().position(|answer| answer.holding == Holding::Sure) {
        return Replayable::Sure(sure);
    }
    let all = answers.iter().filter(|answer| answer.holding != Holding::NeverHad).count() == witnesses;
    if !all {
        return Replayable::None;
    }
    (answers.iter().enumerate())
        .filter(|(_, answer)| answer.holding == Holding::PowerLost)
        .max_by_key(|(_, answer)| answer.requests.len())
        .map_or(Replayable::Useless, |(index, _)| Replayable::Fullest(index))
}

impl Primary {
    /// What a term waits for that no witness has helped yet, for a person.
    pub fn describe_witnesses(&self, asking: &Asking) -> String {
        let each = self.witnesses.iter().map(|core| {
            let answer = asking.answers.iter().find(|answer| answer.node == core.node);
            let says = match answer.map(|answer| answer.holding) {
                None => "does not answer: start it",
                Some(Holding::NeverHad) => "does not know the current configuration yet",
                Some(Holding::PowerLost) => {
                    "lost power, and counts when all have answered and every member has reported"
                }
                Some(Holding::Damaged) => "has lost the witness files: restore them, and start it again",
                Some(Holding::Sure) => "is being replayed",
            };
            format!("{} {says}", core.node)
        });
        let each = each.collect::<Vec<_>>().join("; ");
        // Its log may have been given up, or have turned out to lack something.
        let may_help = |node: &NodeId| self.recover_from.contains(node) && !asking.not_whole.contains(node);
        let last = self.served.map(|served| served.primary).filter(may_help);
        let instead = last.map_or(String::new(), |node| {
            format!("; or start {node}, the last primary, whose log may need no witness")
        });
        let command = "if they are lost for good: kasha admin give-up";
        format!("waits for a witness of the current list: {each}{instead}; {command}")
    }

    /// Asks the members that last served for a promise of our epoch, and for what they hold.
    pub fn send_fences(&self, core: &Core, shard: ShardId, out: &mut Effects) {
        let (epoch, served, list) = (self.epoch, self.served, self.list);
        for &to in self.electorate.iter().filter(|&&to| to != core.id()) {
            let attach = kasha_types::AttachId(0);
            let message = Message::Fence { shard, epoch, primary: core.id(), attach, served, list };
            send(Endpoint::Core(to), &message, Gate::Now, out);
        }
    }
}

impl Replica {
    pub fn ask_witnesses(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let shard = self.shard;
        let Some(primary) = self.primary_mut() else { return };
        let (epoch, list, is_whole) = (primary.epoch, primary.list, primary.is_whole);
        let witnesses = primary.witnesses.clone();
        let Stage::Witnessing(asking) = &mut primary.stage else { return };
        if !Primary::overdue(core, now, asking.asked) {
            return;
        }
        asking.asked = Some(now);
        let has_waited = now.since(*asking.began.get_or_insert(now)) >= core.options.pace.hearing;
        let is_awaited = |witness: &CoreId| !asking.has_heard(witness.node) && core.calls_alive(witness.node);
        asking.goes_on = has_waited || !witnesses.iter().any(is_awaited);
        if is_whole && asking.goes_on {
            return self.go_on_without_witness(core, out);
        }
        if !is_whole && !asking.not_whole.contains(&core.id().node) {
            asking.not_whole.push(core.id().node);
        }
        let fence_too = !is_whole && asking.goes_on;
        // What was lost with the power stays lost; all else may get better.
        let is_settled = |node| asking.answers.iter().any(|a| a.node == node && a.holding == Holding::PowerLost);
        for to in witnesses.into_iter().filter(|core| !is_settled(core.node)) {
            send(Endpoint::Core(to), &Message::FreezeWitness { shard, list, epoch }, Gate::Now, out);
        }
        if fence_too {
            primary.send_fences(core, shard, out);
        }
    }

    /// The log is whole: what the witnesses hold was never answered, or is in the log (R7.7).
    fn go_on_without_witness(&mut self, core: &mut Core, out: &mut Effects) {
        hit(Probe::NoWitnessNeeded);
        self.begin_epoch(core, &[], Took::Everything, out);
    }

    /// A member brings a whole log while no witness can be had: the election begins anew with this report (R7.7).
    pub fn on_report_while_witnessing(&mut self, report: FenceReport) {
        let Some(primary) = self.primary_mut() else { return };
        let Stage::Witnessing(asking) = &mut primary.stage else { return };
        if !report.whole && !asking.not_whole.contains(&report.node) {
            asking.not_whole.push(report.node);
        }
        if report.whole && !primary.is_whole {
            hit(Probe::WholeLogFound);
            primary.fence_anew().on_report(report);
        }
    }

    /// A witness froze and handed out what it holds: replay one, and only one (step 4).
    pub fn on_witness_holds(
        &mut self,
        core: &mut Core,
        epoch: Epoch,
        list: ListVersion,
        answer: WitnessAnswer,
        out: &mut Effects,
    ) {
        let Some(primary) = self.primary_mut().filter(|primary| primary.epoch == epoch && primary.list == list) else {
            return;
        };
        let is_witness = primary.witnesses.iter().any(|core| core.node == answer.node);
        let (all, is_whole) = (primary.witnesses.len(), primary.is_whole);
        let Stage::Witnessing(Asking { answers, .. }) = &mut primary.stage else { return };
        match answers.iter_mut().find(|known| known.node == answer.node) {
            Some(known) => *known = answer,
            None if is_witness => answers.push(answer),
            None => return,
        }
        let (chosen, took) = match replayable(answers, all) {
            Replayable::Sure(chosen) => (chosen, Took::Everything),
            Replayable::Fullest(_) | Replayable::Useless if is_whole => return self.go_on_without_witness(core, out),
            Replayable::Fullest(chosen) if primary.quorum == Quorum::Everyone => {
                hit(Probe::FullestWitness);
                (chosen, Took::Remains)
            }
            Replayable::Fullest(_) => {
                // What it lost may be in the log of a member that nobody has asked yet (R5.5).
                hit(Probe::EveryoneMustReport);
                primary.quorum = Quorum::Everyone;
                return self.fence_again();
            }
            Replayable::Useless | Replayable::None => return,
        };
        let requests = std::mem::take(&mut answers[chosen].requests);
        self.begin_epoch(core, &requests, took, out);
    }
}
