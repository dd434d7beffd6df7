//! Asking the witnesses of the current list, and what their answers allow (section 7, step 4; CURP 3.3).
//!
//! A term whose log is whole (R7.7) needs no witness. The term asks all the same, and hears those out who are called alive
//! ([`kasha_replication::Pace::hearing`]): a witness that answers covers what a disk that lies has taken from the log. Any other
//! term waits for a sure witness, and meanwhile fences the members again and again: one of them, the primary that served last
//! above all, may bring a whole log. What it waits for it tells the coordinator, for an operator who gives that up.

use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::{FenceReport, Quorum};
use kasha_types::probe::{Probe, hit};
use kasha_types::{CoreId, NodeId, ShardId, Tick};
use kasha_wire::message::{FreezeWitness, Holding, Report, WitnessHolds};

use crate::core::send::send;
use crate::primary::Stage;
use crate::shard::copy::receive::LOG_END_MAX;
use crate::shard::site::Site;
use crate::shard::term::{Term, is_overdue};

/// The questions of a term to the witnesses of its list.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// When they were asked last.
    pub asked: Option<Tick>,
    /// When they were asked first.
    began: Option<Tick>,
    answers: Vec<WitnessHolds>,
    /// Members that have said meanwhile that their logs are not whole.
    not_whole: Vec<NodeId>,
    /// The witnesses that are called alive have answered, or have had the time for it.
    goes_on: bool,
}

impl Asking {
    /// Whether a witness has said that it lost something.
    fn has_heard(&self, node: NodeId) -> bool {
        let lost = |answer: &WitnessHolds| matches!(answer.holding, Holding::PowerLost | Holding::Damaged);
        self.answers.iter().any(|answer| answer.node == node && lost(answer))
    }

    /// What the coordinator is told of a term that waits for a witness, and for whom.
    pub fn needs_witness(&self, term: &Term, shard: ShardId) -> Option<Report> {
        let members = term.recover_from.iter().copied().filter(|node| !self.not_whole.contains(node));
        let witnesses = term.witnesses.iter().map(|core| core.node).filter(|&node| !self.has_heard(node));
        (self.goes_on && !term.is_whole).then(|| Report::NeedsWitness {
            shard,
            epoch: term.epoch,
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

fn replayable(answers: &[WitnessHolds], witnesses: usize) -> Replayable {
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

impl Asking {
    /// What a term waits for that no witness has helped yet, for a person.
    pub fn describe(&self, term: &Term) -> String {
        let each = term.witnesses.iter().map(|core| {
            let answer = self.answers.iter().find(|answer| answer.node == core.node);
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
        let may_help = |node: &NodeId| term.recover_from.contains(node) && !self.not_whole.contains(node);
        let last = term.served.map(|served| served.primary).filter(may_help);
        let instead = last.map_or(String::new(), |node| {
            format!("; or start {node}, the last primary, whose log may need no witness")
        });
        let command = "if they are lost for good: kasha admin give-up";
        format!("waits for a witness of the current list: {each}{instead}; {command}")
    }

    pub fn advance(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) -> Option<Stage> {
        let (shard, core) = (site.copy.shard, &*site.core);
        if !is_overdue(core, now, self.asked) {
            return None;
        }
        self.asked = Some(now);
        let has_waited = now.since(*self.began.get_or_insert(now)) >= core.options.pace.hearing;
        let is_awaited = |witness: &&CoreId| !self.has_heard(witness.node) && core.calls_alive(witness.node);
        self.goes_on = has_waited || !term.witnesses.iter().any(|witness| is_awaited(&witness));
        if term.is_whole && self.goes_on {
            return go_on_without_witness(term, site, out);
        }
        if !term.is_whole && !self.not_whole.contains(&core.id().node) {
            self.not_whole.push(core.id().node);
        }
        // What was lost with the power stays lost; all else may get better.
        let is_settled = |node| self.answers.iter().any(|a| a.node == node && a.holding == Holding::PowerLost);
        for &to in term.witnesses.iter().filter(|core| !is_settled(core.node)) {
            let message = FreezeWitness { shard, list: term.list, epoch: term.epoch };
            send(Endpoint::Core(to), &message, Gate::Now, out);
        }
        if !term.is_whole && self.goes_on {
            term.send_fences(core, shard, out);
        }
        None
    }

    /// A member brings a whole log, perhaps, while no witness can be had: the election begins anew with its report (R7.7).
    pub fn on_report(&mut self, term: &Term, exists: bool, report: FenceReport) -> Option<Stage> {
        if !term.recover_from.contains(&report.node) || report.end.offset > LOG_END_MAX {
            return None;
        }
        let whole = report.whole && report.intact && report.complete && exists;
        if !whole && !self.not_whole.contains(&report.node) {
            self.not_whole.push(report.node);
        }
        (whole && !term.is_whole).then(|| {
            hit(Probe::WholeLogFound);
            let mut fencing = term.fence_anew();
            fencing.election.on_report(FenceReport { whole, ..report });
            Stage::Fencing(fencing)
        })
    }

    /// A witness froze and handed out what it holds: replay one, and only one (step 4).
    pub fn on_answer(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        answer: WitnessHolds,
        out: &mut Effects,
    ) -> Option<Stage> {
        let answers = &mut self.answers;
        match answers.iter_mut().find(|known| known.node == answer.node) {
            Some(known) => *known = answer,
            None if term.witnesses.iter().any(|core| core.node == answer.node) => answers.push(answer),
            None => return None,
        }
        let (chosen, took) = match replayable(answers, term.witnesses.len()) {
            Replayable::Sure(chosen) => (chosen, Took::Everything),
            Replayable::Fullest(_) | Replayable::Useless if term.is_whole => {
                return go_on_without_witness(term, site, out);
            }
            Replayable::Fullest(chosen) if term.quorum == Quorum::Everyone => {
                hit(Probe::FullestWitness);
                (chosen, Took::Remains)
            }
            Replayable::Fullest(_) => {
                // What it lost may be in the log of a member that nobody has asked yet (R5.5).
                hit(Probe::EveryoneMustReport);
                term.quorum = Quorum::Everyone;
                return Some(term.fence_again());
            }
            Replayable::Useless | Replayable::None => return None,
        };
        let requests = std::mem::take(&mut answers[chosen].requests);
        term.begin_epoch(site, &requests, took, out)
    }
}

/// The log is whole: what the witnesses hold was never answered, or is in the log (R7.7).
fn go_on_without_witness(term: &mut Term, site: &mut Site<'_>, out: &mut Effects) -> Option<Stage> {
    hit(Probe::NoWitnessNeeded);
    term.begin_epoch(site, &[], Took::Everything, out)
}
