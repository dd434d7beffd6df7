//! Fencing the members of the set that last served, and taking a log (section 7, step 2).

use kasha_machine::Effects;
use kasha_replication::{Choice, Election, Quorum};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, NodeId, ShardId, Tick};
use kasha_wire::message::Report;

use crate::core::Core;
use crate::primary::{Primary, Stage};
use crate::replica::Replica;

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
}

impl Replica {
    pub fn fence(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let Some((served, list)) = self.primary().map(|primary| (primary.served, primary.list)) else { return };
        let own = self.fence_report(core.id().node, served, list);
        let shard = self.shard;
        let Some(primary) = self.primary_mut() else { return };
        let promise = primary.promise;
        let Stage::Fencing(fencing) = &mut primary.stage else { return };
        let is_promised = core.local_durable >= promise;
        if is_promised {
            fencing.election.on_report(own);
        }
        // Nothing is cut or fetched before our own log has its say, and every member that is called alive, for a moment: one
        // log that is sure is enough, but a disk may lie, and a longer log of another member tells.
        let has_waited = fencing.began.is_some_and(|began| now.since(began) >= core.options.pace.hearing)
            || planted::is_on(Bug::ChosenTooEarly);
        let may_choose = is_promised && (has_waited || !fencing.election.missing().any(|node| core.calls_alive(node)));
        let choice = if may_choose { fencing.election.choice() } else { Choice::Wait };
        fencing.waits = may_choose && choice == Choice::Wait;
        match choice {
            Choice::Take(node) if node == core.id().node => {
                primary.is_whole = fencing.election.takes_whole(node);
                primary.stage = Stage::Replaying;
                if !self.meta.intact {
                    hit(Probe::IntactByAllReports);
                    self.meta.intact = true; // everybody has reported: what we hold is all there is (R5.5)
                    self.meta.acknowledged = self.meta.acknowledged.min(self.log.end().offset);
                    self.save_meta(core, out);
                }
            }
            Choice::Take(node) => {
                primary.is_whole = fencing.election.takes_whole(node);
                let best = fencing.election.report(node).expect("a report was taken").clone();
                self.cut_to_match(core, &best, out);
            }
            Choice::Wait if Primary::overdue(core, now, fencing.asked) => {
                fencing.began.get_or_insert(now);
                fencing.asked = Some(now);
                primary.send_fences(core, shard, out);
            }
            Choice::Wait => {}
        }
    }
}
