//! How far a shard's log has come, as its primary sees it: all positions on one number line.
//!
//! ```text
//!             0 ─────────┬──────────────┬─────────────────────────────┬──▶ bytes since the log began
//! primary              synced    ≤   own_held            ≤           end     (epoch_start, target ≤ end)
//!                        │              └ our own file holds it
//!                        └ every member holds it, and our own file
//!
//!             0 ────┬────────────┬──────────────────┬────────────────┬──▶
//! a member     attached_at  ≤  acked       ≤       sent      ≤      end
//!                   └ its log joined ours
//!
//! rounds               round_acked  ≤  round_sent  ≤  round
//! ```
//!
//! `synced ≤ acked` is no rule: a member that is attached anew begins where its log joins ours, which may be lower, and
//! what was synced stays so. `wanted`, up to where somebody waits, may be anywhere.
//!
//! Positions of the primary only grow in a term (F2). A member's are those of one attachment.

use kasha_types::{LogEnd, Round};

/// A primary's positions.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Where our epoch begins in the log.
    epoch_start: LogEnd,
    /// Our own file holds the log up to here.
    own_held: LogEnd,
    synced: LogEnd,
    /// Somebody waits for the log to be synced up to here.
    wanted: LogEnd,
    /// The last round that began.
    round: Round,
    /// Its end, while it is in flight.
    target: Option<LogEnd>,
}

impl Progress {
    /// All members, and our own file, are known to hold the log up to `synced`.
    pub(crate) fn new(synced: LogEnd) -> Self {
        Self {
            epoch_start: LogEnd::START,
            own_held: synced,
            synced,
            wanted: LogEnd::START,
            round: Round(0),
            target: None,
        }
    }

    pub(crate) fn synced(&self) -> LogEnd {
        self.synced
    }

    pub(crate) fn round(&self) -> Round {
        self.round
    }

    /// The end of the round that is in flight.
    pub(crate) fn target(&self) -> Option<LogEnd> {
        self.target
    }

    /// The last round that is over.
    pub(crate) fn confirmed(&self) -> Round {
        if self.target.is_some() { Round(self.round.0 - 1) } else { self.round }
    }

    /// Everything that was synced or that an earlier epoch wrote lies below. A joiner counts for syncs as if it held that.
    pub(crate) fn hold_from(&self) -> LogEnd {
        self.synced.max(self.epoch_start)
    }

    /// Whether somebody waits for a sync of the log, which ends at `end`.
    pub(crate) fn is_awaited(&self, end: LogEnd) -> bool {
        self.synced < self.wanted.min(end)
    }

    pub(crate) fn begin_epoch(&mut self, at: LogEnd) {
        self.epoch_start = at;
    }

    pub(crate) fn want(&mut self, end: LogEnd) {
        self.wanted = self.wanted.max(end);
    }

    pub(crate) fn hold(&mut self, end: LogEnd) {
        self.own_held = self.own_held.max(end);
    }

    /// A round begins, which covers the log to its end.
    pub(crate) fn begin_round(&mut self, end: LogEnd) {
        self.round = self.round.next();
        self.target = Some(end);
    }

    /// Every member that counts holds the log up to `members`; `answered`: and has answered the last round.
    pub(crate) fn advance(&mut self, members: LogEnd, answered: bool) {
        self.synced = self.synced.max(members.min(self.own_held));
        if self.target.is_some_and(|target| self.synced >= target && answered) {
            self.target = None;
        }
    }

    /// The order that is drawn above, for a log that ends at `end`.
    pub(crate) fn assert_invariants(&self, end: LogEnd) {
        let Self { epoch_start, own_held, synced, target, .. } = *self;
        assert!(synced <= own_held && own_held <= end, "synced {synced}, own file {own_held}, end {end}");
        assert!(epoch_start <= end && target.is_none_or(|target| target <= end), "beyond the end {end}: {self:?}");
    }
}

/// A member's positions, as its primary sees them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberPositions {
    /// Where its log joined ours.
    attached_at: LogEnd,
    /// It holds the log up to here.
    acked: LogEnd,
    sent: LogEnd,
    /// The last round it answered: it obeyed our epoch then.
    round_acked: Round,
    /// The last round of which a frame was sent.
    round_sent: Round,
}

impl MemberPositions {
    /// The member's log joined ours here.
    pub(crate) fn joined(at: LogEnd) -> Self {
        Self { attached_at: at, acked: at, sent: at, ..Self::default() }
    }

    pub(crate) fn acked(&self) -> LogEnd {
        self.acked
    }

    pub(crate) fn sent(&self) -> LogEnd {
        self.sent
    }

    pub(crate) fn round_acked(&self) -> Round {
        self.round_acked
    }

    pub(crate) fn round_sent(&self) -> Round {
        self.round_sent
    }

    /// Whether it holds something that came in this attachment.
    pub(crate) fn has_taken(&self) -> bool {
        self.acked > self.attached_at
    }

    /// Whether log bytes are on the way to it.
    pub(crate) fn lags(&self) -> bool {
        self.acked < self.sent
    }

    /// Whether it has not answered all that it was sent.
    pub(crate) fn owes(&self) -> bool {
        self.lags() || self.round_acked < self.round_sent
    }

    /// It says that it holds the log to `end`, and answers `round`. What it was not sent is not believed. Returns whether
    /// that is news.
    pub(crate) fn acknowledge(&mut self, end: LogEnd, round: Round) -> bool {
        let is_news = end > self.acked || round > self.round_acked;
        self.acked = self.acked.max(end.min(self.sent));
        self.round_acked = self.round_acked.max(round.min(self.round_sent));
        is_news
    }

    pub(crate) fn send_to(&mut self, end: LogEnd) {
        self.sent = end;
    }

    pub(crate) fn send_round(&mut self, round: Round) {
        self.round_sent = round;
    }

    /// What it has not answered is lost, perhaps, and is sent again.
    pub(crate) fn send_again(&mut self) {
        (self.sent, self.round_sent) = (self.acked, self.round_acked);
    }

    /// The order that is drawn above.
    pub(crate) fn assert_invariants(&self, round: Round, end: LogEnd) {
        let Self { attached_at, acked, sent, round_acked, round_sent } = *self;
        assert!(attached_at <= acked && acked <= sent && sent <= end, "a log that ends at {end}: {self:?}");
        assert!(round_acked <= round_sent && round_sent <= round, "after {round:?}: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: LogEnd = LogEnd(100);

    #[test]
    fn synced_is_what_every_member_and_our_own_file_hold_and_never_falls() {
        let mut progress = Progress::new(LogEnd::START);
        progress.begin_round(END);
        progress.hold(LogEnd(60));
        progress.advance(LogEnd(80), true);
        assert_eq!((progress.synced(), progress.confirmed()), (LogEnd(60), Round(0)));
        progress.advance(LogEnd(10), true);
        assert_eq!(progress.synced(), LogEnd(60), "a member that is attached anew");
        progress.hold(END);
        progress.advance(END, false);
        assert_eq!((progress.synced(), progress.confirmed()), (END, Round(0)), "a member has not answered");
        progress.advance(END, true);
        assert_eq!(progress.confirmed(), Round(1));
        progress.assert_invariants(END);
    }

    #[test]
    #[should_panic(expected = "own file 101, end 100")]
    fn a_file_that_holds_more_than_the_log_stops_the_process() {
        let mut progress = Progress::new(LogEnd::START);
        progress.hold(LogEnd(101));
        progress.assert_invariants(END);
    }

    #[test]
    #[should_panic(expected = "a log that ends at 100")]
    fn a_member_that_was_sent_more_than_the_log_stops_the_process() {
        let mut positions = MemberPositions::joined(LogEnd(50));
        positions.send_to(LogEnd(101));
        positions.assert_invariants(Round(0), END);
    }

    #[test]
    fn a_member_is_not_believed_to_hold_what_it_was_not_sent() {
        let mut positions = MemberPositions::joined(LogEnd(50));
        positions.send_to(LogEnd(70));
        positions.send_round(Round(2));
        assert!(positions.owes() && positions.acknowledge(LogEnd::MAX, Round(9)));
        assert_eq!((positions.acked(), positions.round_acked()), (LogEnd(70), Round(2)));
        assert!(positions.has_taken() && !positions.owes());
        positions.send_to(END);
        positions.send_again();
        assert_eq!(positions.sent(), LogEnd(70));
        positions.assert_invariants(Round(2), END);
    }
}
