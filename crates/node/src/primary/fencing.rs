//! Fencing the members of the set that last served, and taking a log (section 7, step 2).

use kasha_machine::Effects;
use kasha_replication::{Choice, Election, FenceReport, Quorum};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, NodeId, ShardId, Tick};
use kasha_wire::message::Report;

use crate::primary::Stage;
use crate::primary::fetching::Fetching;
use crate::shard::copy::receive::LOG_END_MAX;
use crate::shard::site::Site;
use crate::shard::term::{Term, is_overdue};

/// The questions of a term to the members.
#[derive(Debug)]
pub(crate) struct Fencing {
    pub election: Election,
    /// When they were asked first.
    began: Option<Tick>,
    /// When they were asked last.
    pub asked: Option<Tick>,
    /// The members that are called alive have reported, or have had the time for it, and there is no log to take.
    waits: bool,
}

impl Term {
    /// An election without reports.
    pub(super) fn fence_anew(&self) -> Fencing {
        Fencing::new(Election::new(self.epoch, self.recover_from.clone(), self.quorum))
    }

    /// Asks all again: a member does not answer, or no longer holds what it reported, or more reports are needed.
    pub(super) fn fence_again(&self) -> Stage {
        hit(Probe::FenceAgain);
        Stage::Fencing(self.fence_anew())
    }
}

impl Fencing {
    pub fn new(election: Election) -> Self {
        Self { election, began: None, asked: None, waits: false }
    }

    /// The members that have not reported, if there is no log to take before they do.
    fn unheard(&self) -> Vec<NodeId> {
        if self.waits { self.election.missing().collect() } else { Vec::new() }
    }

    /// What the coordinator is told of a term that waits for members, and for whom.
    pub fn needs_members(&self, shard: ShardId, epoch: Epoch) -> Option<Report> {
        let (unheard, has_copy) = (self.unheard(), self.election.has_copy());
        (!unheard.is_empty()).then_some(Report::NeedsMembers { shard, epoch, unheard, has_copy })
    }

    /// What it waits for, for a person.
    pub fn describe(&self, quorum: Quorum) -> String {
        let (mut text, unheard) = match quorum {
            Quorum::OneSure => ("fencing: waits for a member that surely holds the log".to_string(), self.unheard()),
            // That is rare, and never over at once: who is missing is said before it is known whether they come.
            Quorum::Everyone => {
                ("no witness is sure: waits for every member".to_string(), self.election.missing().collect())
            }
        };
        if !unheard.is_empty() {
            let unheard: Vec<String> = unheard.iter().map(ToString::to_string).collect();
            text += &format!("; start {}", unheard.join(", "));
        }
        if self.waits && self.election.has_copy() && self.election.missing().next().is_some() {
            text += "; if lost for good: kasha admin give-up";
        }
        text
    }

    /// A member promised our epoch, and says what it holds.
    pub fn on_report(&mut self, term: &Term, exists: bool, report: FenceReport) {
        let sure = exists && report.end.epoch <= term.epoch && report.end.offset <= LOG_END_MAX;
        self.election.on_report(FenceReport {
            intact: report.intact && sure,
            complete: report.complete && sure,
            ..report
        });
    }

    pub fn advance(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) -> Option<Stage> {
        let core = &*site.core;
        let is_promised = core.local_durable >= term.promise;
        if is_promised {
            self.election.on_report(site.copy.fence_report(core.id().node, term.served, term.list));
        }
        // Nothing is cut or fetched before our own log has its say, and every member that is called alive, for a moment: one
        // log that is sure is enough, but a disk may lie, and a longer log of another member tells.
        let has_waited = self.began.is_some_and(|began| now.since(began) >= core.options.pace.hearing)
            || planted::is_on(Bug::ChosenTooEarly);
        let may_choose = is_promised && (has_waited || !self.election.missing().any(|node| core.calls_alive(node)));
        let choice = if may_choose { self.election.choice() } else { Choice::Wait };
        self.waits = may_choose && choice == Choice::Wait;
        match choice {
            Choice::Take(node) => {
                term.is_whole = self.election.takes_whole(node);
                if node == core.id().node {
                    take_own(site, out);
                    return Some(Stage::Replaying);
                }
                let best = self.election.report(node).expect("a report was taken");
                Some(Stage::Fetching(Fetching::cut_to_match(term, site, best, out)))
            }
            Choice::Wait if is_overdue(core, now, self.asked) => {
                self.began.get_or_insert(now);
                self.asked = Some(now);
                term.send_fences(core, site.copy.shard, out);
                None
            }
            Choice::Wait => None,
        }
    }
}

/// Our own log is taken.
fn take_own(Site { copy, core, .. }: &mut Site<'_>, out: &mut Effects) {
    if !copy.meta.intact {
        hit(Probe::IntactByAllReports);
        copy.meta.intact = true; // everybody has reported: what we hold is all there is (R5.5)
        copy.meta.acknowledged = copy.meta.acknowledged.min(copy.log.end().offset);
        copy.save_meta(core, out);
    }
}
