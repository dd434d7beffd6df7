//! ClusterTime for ends of values, and for nothing else (**R10.12**): what was heard last, counted on by the clock of this core.
//!
//! A value's end is a delete in the log (**R5.2**), whatever clock says that it is time. So how far a core counts decides when a value
//! ends, and never whether it has. Leases of clients, operation keys and timestamps stay with what was really heard (**R4.6**, **R4.7**).
//!
//! No value is to end early, so this is the least that ClusterTime can be. What is told was true before it came, and from there we count
//! on as if our clock were as fast as the drift bound allows, which is a twentieth of a lease in a lease (**F1**): a value ends 3 ms late before the
//! next heartbeat comes, an eighth of 500 ms later. ClusterTime may stand still, or go on from elsewhere (an election, another boot of the coordinator's
//! machine, **R9.4**). So nothing is counted from an answer that does not fit the one before. And we count for as long as a lease that is
//! granted with the answer, which is shorter by the drift bound: who hears nothing for longer knows nothing of the leader. If ClusterTime stood
//! still from that answer on, a value ends early, by as much as that at most. It never goes back: the next answers catch up.

use std::time::Duration;

use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, Tick};

const NANOS: u64 = 1_000_000;
/// So fine is what is counted: a part of the millisecond in which ClusterTime is told.
const STEP_NANOS: u64 = NANOS / 8;
/// Two clocks drift apart by this part of the time at most.
const DRIFT_PART: u64 = 20;
/// What an answer may be off besides, in milliseconds: it is cut to whole ones, and ClusterTime goes towards a clock on the wall by steps of half a
/// percent of half a second or a little more.
const STEP_MILLIS: u64 = 5;
/// Answers to questions that are closer together do not show whether ClusterTime goes on. It is more than a step, and less than what usually is between
/// two heartbeats. With a lease that is shorter the next answer is counted from.
const COMPARED_AFTER: Duration = Duration::from_millis(10);

/// An answer of the coordinator.
#[derive(Clone, Copy, Debug)]
struct Answer {
    time: ClusterTime,
    asked: Tick,
    came: Tick,
}

impl Answer {
    /// Whether ClusterTime has gone on like our clock from this answer to a later one.
    fn goes_on(&self, later: Self) -> bool {
        let millis = |passed: Duration| u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let (least, most) = (millis(later.asked.since(self.came)), millis(later.came.since(self.asked)));
        let most = most.saturating_add(most / DRIFT_PART + STEP_MILLIS);
        let told = later.time.0.checked_sub(self.time.0);
        told.is_some_and(|told| told.saturating_add(STEP_MILLIS) >= least - least / DRIFT_PART && told <= most)
    }
}

/// Counts on what the coordinator told.
#[derive(Debug, Default)]
pub(crate) struct CountedTime {
    last: Option<Answer>,
    /// For how many nanoseconds it is counted on from there.
    most: u64,
    time: ClusterTime,
    /// Before then nothing changes: most turns begin within a millisecond of the one before.
    next: Tick,
}

impl CountedTime {
    /// What it was when this turn began, or is by what was heard since.
    #[inline]
    pub fn time(&self) -> ClusterTime {
        self.time
    }

    /// The coordinator or the log told this.
    pub fn learn(&mut self, time: ClusterTime) {
        let is_known = self.time > ClusterTime(0) && planted::is_on(Bug::EndsNotCounted);
        self.time = if is_known { self.time } else { self.time.max(time) };
    }

    /// The coordinator has answered a heartbeat, and granted a lease of so many milliseconds.
    pub fn heard(&mut self, (time, lease_millis): (ClusterTime, u64), asked: Tick, now: Tick) {
        self.learn(time);
        let answer = Answer { time, asked, came: now };
        // One that was overtaken or comes twice says nothing, either.
        if self.last.is_some_and(|last| asked.since(last.asked) < COMPARED_AFTER) {
            return;
        }
        let goes_on = self.last.is_some_and(|last| last.goes_on(answer));
        self.most = if goes_on { lease_millis.saturating_mul(NANOS) } else { 0 };
        self.last = Some(answer);
        self.next = now;
    }

    /// A turn begins.
    #[inline]
    pub fn count(&mut self, now: Tick) {
        if now >= self.next {
            self.count_on(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn count_on(&mut self, now: Tick) {
        self.next = Tick(now.0.saturating_add(STEP_NANOS));
        let Some(last) = self.last else { return };
        let passed = now.0.saturating_sub(last.came.0).min(self.most);
        let passed = if planted::is_on(Bug::LeaseCountedAtOnce) { self.most } else { passed };
        self.learn(last.time.after_millis((passed - passed / DRIFT_PART) / NANOS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 475;

    fn millis(millis: u64) -> Tick {
        Tick(millis * NANOS)
    }

    /// Answers, each with when it was asked for and came, and what is counted then.
    fn counted(answers: &[(u64, u64, u64)], at: u64) -> u64 {
        let mut counted = CountedTime::default();
        for &(time, asked, came) in answers {
            counted.count(millis(came));
            counted.heard((ClusterTime(time), LEASE), millis(asked), millis(came));
        }
        counted.count(millis(at));
        counted.time().0
    }

    #[test]
    fn r10_12_it_counts_on_by_a_slow_clock_for_a_lease_at_most() {
        let answers = [(1_000, 10, 10), (1_062, 71, 73)];
        assert_eq!(counted(&answers, 73), 1_062);
        assert_eq!(counted(&answers, 74), 1_062, "95 hundredths of a millisecond");
        assert_eq!(counted(&answers, 73 + 20), 1_062 + 19);
        assert_eq!(counted(&answers, 73 + 475), 1_062 + 451);
        assert_eq!(counted(&answers, 73 + 86_400_000), 1_062 + 451, "a machine that was suspended");
    }

    #[test]
    fn r10_12_nothing_is_counted_from_an_answer_that_does_not_fit_the_one_before() {
        let begin = [(1_000, 10, 10), (1_062, 72, 72)];
        let with = |answers: &[(u64, u64, u64)], at| counted(&[&begin[..], answers].concat(), at);
        assert_eq!(counted(&begin[..1], 60), 1_000, "one alone");
        assert_eq!(with(&[(1_124, 134, 134)], 154), 1_124 + 19);
        assert_eq!(with(&[(2_100, 134, 134)], 194), 2_100, "elsewhere");
        assert_eq!(with(&[(2_100, 134, 134), (2_100, 196, 196)], 250), 2_100, "it stands still");
        assert_eq!(with(&[(2_100, 134, 134), (2_100, 135, 135)], 194), 2_100, "that soon it may");
        assert_eq!(with(&[(2_100, 134, 134), (2_100, 196, 196), (2_162, 258, 258)], 278), 2_162 + 19);
        // Clocks that drift, and a leader that steers. By the answer before it was 1,120 already.
        for (told, then) in [(53, 1_120), (54, 1_062 + 54 + 19), (70, 1_062 + 70 + 19), (71, 1_062 + 71)] {
            assert_eq!(with(&[(1_062 + told, 134, 134)], 154), then, "{told}");
        }
    }

    #[test]
    fn r10_12_it_never_goes_back() {
        let answers = [(1_000, 10, 10), (1_062, 72, 72)];
        let after = |answer| counted(&[&answers[..], &[answer]].concat(), answer.2);
        assert_eq!(after((1_063, 172, 172)), 1_062 + 95);
        assert_eq!(after((1_063, 72, 172)), 1_062 + 95, "one that comes twice");
        assert_eq!(after((900, 172, 172)), 1_062 + 95);
    }

    #[test]
    fn what_is_absurd_overflows_nothing() {
        let most = u64::MAX;
        let mut counted = CountedTime::default();
        for (time, lease, asked, came) in [(1, most, 0, most), (most, most, most, most), (0, 0, 1, 0), (5, 1, most, 0)]
        {
            counted.heard((ClusterTime(time), lease), Tick(asked), Tick(came));
            counted.count(Tick(most));
        }
        assert_eq!(counted.time(), ClusterTime(most));
    }
}
