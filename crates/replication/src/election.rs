//! Fencing: which log a new primary must take (section 7, step 2).
//!
//! Every sync counted against the whole committed set, so *one* intact and complete member of it holds all that was
//! synced; fencing one is enough to keep an older primary from syncing anything more. Of those that are intact the greatest
//! (last entry's epoch, end) is taken: it may hold more than was synced, never less. One that may have lost something
//! never beats one that has not, however long it is: what it lost need not be at its end (R5.5).

use kasha_types::planted::{self, Bug};
use kasha_types::{Epoch, LogPosition, NodeId};

/// What a member of the fenced set holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceReport {
    /// Who.
    pub node: NodeId,
    /// Its last entry's epoch, and its end.
    pub end: LogPosition,
    /// Where each epoch begins in its log.
    pub history: Vec<LogPosition>,
    /// It surely holds all that it ever acknowledged (R5.5).
    pub intact: bool,
    /// Its older data is all there.
    pub complete: bool,
}

/// What is known of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nobody yet: wait for more reports. Never fall through.
    Wait,
    /// This member's log.
    Take(NodeId),
}

/// Whose reports an election waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// One member that surely holds all that was synced.
    OneSure,
    /// Every member. No witness surely holds what was not synced, and any of them may (R5.5).
    Everyone,
}

/// The reports of one epoch's fence.
#[derive(Clone, Debug)]
pub struct Election {
    epoch: Epoch,
    electorate: Vec<NodeId>,
    quorum: Quorum,
    reports: Vec<FenceReport>,
}

impl Election {
    /// `electorate`: the complete members of the set that last served.
    #[must_use]
    pub fn new(epoch: Epoch, electorate: Vec<NodeId>, quorum: Quorum) -> Self {
        Self { epoch, electorate, quorum, reports: Vec::new() }
    }

    /// The members that have not reported.
    pub fn missing(&self) -> impl Iterator<Item = NodeId> {
        self.electorate.iter().copied().filter(|&node| self.report(node).is_none())
    }

    /// Takes a report of this epoch's fence. A repeated one replaces the former: the member may have restarted.
    pub fn on_report(&mut self, report: FenceReport) {
        if report.end.epoch > self.epoch {
            return; // its log is of a later term: ours is over, and the configuration will say so
        }
        match self.reports.iter_mut().find(|known| known.node == report.node) {
            Some(known) => *known = report,
            None => self.reports.push(report),
        }
    }

    /// A member's report.
    #[must_use]
    pub fn report(&self, node: NodeId) -> Option<&FenceReport> {
        self.reports.iter().find(|report| report.node == node)
    }

    /// Which log to take: the greatest of those that surely hold all that was synced; the greatest of all once every
    /// member has reported and none is sure (R5.5).
    #[must_use]
    pub fn choice(&self) -> Choice {
        let complete = || self.reports.iter().filter(|r| r.complete && self.electorate.contains(&r.node));
        let greatest = |report: &&FenceReport| (report.end.epoch, report.end.offset);
        let all = self.missing().next().is_none() || planted::is_on(Bug::ChosenTooEarly);
        if self.quorum == Quorum::Everyone && !all {
            return Choice::Wait;
        }
        let sure = complete().filter(|report| report.intact).max_by_key(greatest);
        match sure.or_else(|| complete().max_by_key(greatest).filter(|_| all)) {
            Some(best) => Choice::Take(best.node),
            None => Choice::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: u16, epoch: u32, offset: u64, intact: bool, complete: bool) -> FenceReport {
        let end = LogPosition { epoch: Epoch(epoch), offset };
        FenceReport { node: NodeId(node), end, history: Vec::new(), intact, complete }
    }

    fn election() -> Election {
        Election::new(Epoch(9), vec![NodeId(1), NodeId(2)], Quorum::OneSure)
    }

    #[test]
    fn one_intact_member_is_enough_and_the_greatest_is_taken() {
        let mut election = election();
        assert_eq!(election.choice(), Choice::Wait);
        election.on_report(report(1, 3, 100, true, true));
        assert_eq!(election.choice(), Choice::Take(NodeId(1)));
        election.on_report(report(2, 4, 50, true, true));
        assert_eq!(election.choice(), Choice::Take(NodeId(2)), "a later epoch beats a longer log");
    }

    #[test]
    fn r7_2_a_joiner_is_not_elected() {
        let mut election = election();
        election.on_report(report(3, 8, 900, true, true));
        assert_eq!(election.choice(), Choice::Wait, "not of the set that served");
        election.on_report(report(1, 8, 900, true, false));
        assert_eq!(election.choice(), Choice::Wait, "its copy is not complete");
    }

    #[test]
    fn r5_5_after_a_power_loss_every_member_must_report() {
        let mut election = election();
        election.on_report(report(1, 3, 100, false, true));
        assert_eq!(election.choice(), Choice::Wait);
        election.on_report(report(2, 3, 90, false, true));
        assert_eq!(election.choice(), Choice::Take(NodeId(1)));
    }

    #[test]
    fn r5_5_without_a_sure_witness_every_member_must_report() {
        let mut election = Election::new(Epoch(9), vec![NodeId(1), NodeId(2)], Quorum::Everyone);
        election.on_report(report(1, 3, 90, true, true));
        assert_eq!(election.choice(), Choice::Wait);
        assert_eq!(election.missing().collect::<Vec<_>>(), [NodeId(2)]);
        election.on_report(report(2, 3, 100, true, true));
        assert_eq!(election.choice(), Choice::Take(NodeId(2)), "it may hold what was never synced");
    }

    #[test]
    fn r5_5_what_may_lack_something_does_not_beat_what_is_intact() {
        let mut election = election();
        election.on_report(report(1, 3, 100, false, true));
        election.on_report(report(2, 3, 90, true, true));
        assert_eq!(election.choice(), Choice::Take(NodeId(2)));
    }
}
