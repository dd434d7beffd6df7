//! Fencing: which log a new primary must take (section 7, step 2).
//!
//! Every sync counted against the whole committed set. So *one* intact and complete member of the set holds everything
//! that was synced, and fencing one is enough to keep an older primary from syncing anything more. Of the intact logs
//! the greatest by (last entry's epoch, end) is taken. It may hold more than was synced, never less. A log that may
//! have lost something is never preferred to an intact one, however long it is: the lost part need not be at its end
//! (R5.5).
//!
//! A log is *whole* if it surely holds every update that was answered, on the fast path too (R7.7). The greatest whole
//! log is taken even against logs of later epochs: their terms never served. A recovery from a whole log needs no
//! witness.

use kasha_log::common_prefix;
use kasha_types::planted::{self, Bug};
use kasha_types::{Epoch, LogPosition, NodeId};

/// What a member of the fenced set holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceReport {
    /// The member that reports.
    pub node: NodeId,
    /// The epoch of the member's last log entry, and the end of its log.
    pub end: LogPosition,
    /// Where each epoch begins in the member's log, in order of epochs.
    pub history: Vec<LogPosition>,
    /// The member surely holds all that it ever acknowledged (R5.5).
    pub intact: bool,
    /// The member's copy is complete: no older segment is still to be copied.
    pub complete: bool,
    /// The member's log surely holds every update that was answered (R7.7).
    pub whole: bool,
}

impl FenceReport {
    /// Whether this log is the other one, or goes on where the other one ends.
    fn contains(&self, other: &FenceReport) -> bool {
        let spans = |report: &FenceReport| report.history.iter().map(|at| (at.epoch, at.offset)).collect::<Vec<_>>();
        common_prefix(&spans(self), self.end.offset, &spans(other), other.end.offset) == other.end.offset
    }
}

/// What is known of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// No log can be taken yet: wait for more reports.
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

    /// The reports of complete copies that the fence asked for.
    fn complete(&self) -> impl Iterator<Item = &FenceReport> {
        self.reports.iter().filter(|report| report.complete && self.electorate.contains(&report.node))
    }

    /// Whether somebody has reported a complete copy, be it whole or not.
    #[must_use]
    pub fn has_copy(&self) -> bool {
        self.complete().next().is_some()
    }

    fn is_whole(&self, report: &FenceReport) -> bool {
        let mut whole = self.complete().filter(|other| other.intact && other.whole);
        report.intact && whole.any(|whole| report.contains(whole) || planted::is_on(Bug::UnservedTermPreferred))
    }

    /// Whether this member's log holds every update that was answered: so it says, or it goes on where such a log ends
    /// (R7.7).
    #[must_use]
    pub fn takes_whole(&self, node: NodeId) -> bool {
        self.complete().any(|report| report.node == node && self.is_whole(report))
    }

    /// Which log to take: the greatest whole one (R7.7); else the greatest of those that surely hold all that was synced;
    /// else the greatest of all, once every member has reported and none is sure (R5.5).
    #[must_use]
    pub fn choice(&self) -> Choice {
        let greatest = |report: &&FenceReport| (report.end.epoch, report.end.offset);
        if let Some(whole) = self.complete().filter(|report| self.is_whole(report)).max_by_key(greatest) {
            return Choice::Take(whole.node);
        }
        let all = self.missing().next().is_none() || planted::is_on(Bug::ChosenTooEarly);
        if self.quorum == Quorum::Everyone && !all {
            return Choice::Wait;
        }
        let sure = self.complete().filter(|report| report.intact).max_by_key(greatest);
        match sure.or_else(|| self.complete().max_by_key(greatest).filter(|_| all)) {
            Some(best) => Choice::Take(best.node),
            None => Choice::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::LogEnd;

    use super::*;

    fn report(node: u16, epoch: u32, offset: u64, intact: bool, complete: bool) -> FenceReport {
        let end = LogPosition { epoch: Epoch(epoch), offset: LogEnd(offset) };
        FenceReport { node: NodeId(node), end, history: Vec::new(), intact, complete, whole: false }
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

    /// A log of these epochs, each beginning where its number says, with this end.
    fn log(node: u16, spans: &[(u32, u64)], end: u64, whole: bool) -> FenceReport {
        let at = |&(epoch, offset): &(u32, u64)| LogPosition { epoch: Epoch(epoch), offset: LogEnd(offset) };
        let last = spans.last().expect("a log has an epoch").0;
        let end = LogPosition { epoch: Epoch(last), offset: LogEnd(end) };
        let history = spans.iter().map(at).collect();
        FenceReport { node: NodeId(node), end, history, intact: true, complete: true, whole }
    }

    #[test]
    fn r7_7_a_whole_log_beats_a_later_epoch_that_lacks_some_of_it() {
        let mut election = election();
        election.on_report(log(2, &[(1, 0), (4, 50)], 200, false));
        assert_eq!((election.choice(), election.takes_whole(NodeId(2))), (Choice::Take(NodeId(2)), false));
        election.on_report(log(1, &[(1, 0)], 100, true));
        assert_eq!((election.choice(), election.takes_whole(NodeId(1))), (Choice::Take(NodeId(1)), true));
        assert!(!election.takes_whole(NodeId(2)));
    }

    #[test]
    fn r7_7_a_log_that_goes_on_where_a_whole_one_ends_is_whole() {
        let mut election = election();
        election.on_report(log(1, &[(1, 0)], 100, true));
        election.on_report(log(2, &[(1, 0), (4, 100)], 200, false));
        assert_eq!((election.choice(), election.takes_whole(NodeId(2))), (Choice::Take(NodeId(2)), true));
    }

    #[test]
    fn r7_7_of_two_whole_logs_the_greatest_is_taken_and_one_that_lost_something_is_none() {
        let mut election = election();
        election.on_report(log(1, &[(1, 0)], 100, true));
        election.on_report(FenceReport { intact: false, ..log(2, &[(1, 0), (4, 50)], 200, true) });
        assert_eq!(election.choice(), Choice::Take(NodeId(1)));
        election.on_report(log(2, &[(1, 0), (4, 50)], 200, true));
        assert_eq!(election.choice(), Choice::Take(NodeId(2)));
    }

    #[test]
    fn r5_5_what_may_lack_something_does_not_beat_what_is_intact() {
        let mut election = election();
        election.on_report(report(1, 3, 100, false, true));
        election.on_report(report(2, 3, 90, true, true));
        assert_eq!(election.choice(), Choice::Take(NodeId(2)));
    }
}
