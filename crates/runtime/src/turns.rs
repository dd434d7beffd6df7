//! How long the turns of a loop take, and what the longest of them did (`GetTurns`).
//!
//! While a turn lasts, nothing else is heard or answered. The system may give the processor to others meanwhile, and its
//! host may give it to another machine. That tells nothing of the turn, and the kernel's clock for a thread leaves both
//! out. To ask it costs two system calls, so it is asked behind a turn that may be the longest, and otherwise now and
//! then, so that the last count is never long ago.

use kasha_types::{Tick, WorkSet};
use kasha_wire::status::{LongTurn, LoopTurns};

use crate::usage::{ThreadCounts, thread_counts};

/// A turn beyond this is counted as long.
const LONG_NANOS: u64 = 250_000;
/// The last count of a thread's use is no older than this when a turn ends: what was used before the turn is mistaken for
/// the turn's if others had the processor meanwhile.
const COUNTS_AGE_NANOS: u64 = 200_000;

/// The turn that is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    began: Tick,
    heard: Tick,
    closed: Tick,
    files_nanos: u64,
    frames: u32,
}

/// The longest turn of some time.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    turn: Current,
    ended: Tick,
    nanos: u64,
    blocked: bool,
    work: WorkSet,
}

/// The turns of one loop.
#[derive(Debug)]
pub(crate) struct Turns {
    count: u64,
    long: u64,
    current: Current,
    counts: ThreadCounts,
    counted_at: Tick,
    /// Times that the loop slept until there was something to do, since the last count.
    sleeps: u64,
    longest: Most,
    since_asked: Most,
}

/// The longest turn of a time, and the one in which the loop itself did most.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    longest: Longest,
    busiest: Longest,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            count: 0,
            long: 0,
            current: Current::default(),
            counts: ThreadCounts::default(),
            counted_at: Tick(0),
            sleeps: 0,
            longest: Most::default(),
            since_asked: Most::default(),
        }
    }

    /// Turns so far, the one under way included.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn begin(&mut self, now: Tick) {
        self.count += 1;
        self.current = Current { began: now, heard: now, closed: now, files_nanos: 0, frames: 0 };
    }

    /// All inputs of the turn were handled.
    pub(crate) fn heard(&mut self, now: Tick, frames: u32) {
        (self.current.heard, self.current.frames) = (now, frames);
    }

    /// From `from` to `now`, the turn was busy with files.
    pub(crate) fn used_files(&mut self, from: Tick, now: Tick) {
        self.current.files_nanos += nanos(from, now);
    }

    /// All effects of the turn are performed, and what is to be sent is ready.
    pub(crate) fn closed(&mut self, now: Tick) {
        self.current.closed = now;
    }

    pub(crate) fn end(&mut self, now: Tick, work: WorkSet) {
        let elapsed = nanos(self.current.began, now);
        let Most { longest, busiest } = &self.since_asked;
        let may_count = elapsed > longest.nanos.min(busiest.busy_nanos()).min(LONG_NANOS);
        if !may_count && nanos(self.counted_at, now) < COUNTS_AGE_NANOS {
            return;
        }
        let counts = thread_counts();
        let (nanos, blocked) = own_nanos(elapsed, self.counts, counts, self.sleeps);
        (self.counts, self.counted_at, self.sleeps) = (counts, now, 0);
        self.long += u64::from(nanos > LONG_NANOS);
        let turn = Longest { turn: self.current, ended: now, nanos, blocked, work };
        for Most { longest, busiest } in [&mut self.longest, &mut self.since_asked] {
            if turn.nanos > longest.nanos {
                *longest = turn;
            }
            if turn.busy_nanos() > busiest.busy_nanos() {
                *busiest = turn;
            }
        }
    }

    /// The loop slept, or would have if nothing had come.
    pub(crate) fn slept(&mut self) {
        self.sleeps += 1;
    }

    /// For whoever asks; what is the longest since then begins anew.
    pub(crate) fn tell(&mut self, now: Tick) -> LoopTurns {
        let since_asked = std::mem::take(&mut self.since_asked);
        LoopTurns {
            turns: self.count,
            long_turns: self.long,
            longest: self.longest.longest.tell(now),
            longest_since_asked: since_asked.longest.tell(now),
            busiest: self.longest.busiest.tell(now),
            busiest_since_asked: since_asked.busiest.tell(now),
        }
    }
}

impl Longest {
    /// Without what went to files.
    fn busy_nanos(&self) -> u64 {
        self.nanos.saturating_sub(self.own_part(self.turn.files_nanos))
    }

    /// A part of the turn by the clock, without the part's share of the time for which others had the processor. The kernel
    /// tells that time of the whole turn only, so each part is taken to have lost the same share.
    fn own_part(&self, part: u64) -> u64 {
        let elapsed = nanos(self.turn.began, self.ended).max(1);
        let own = u128::from(part) * u128::from(self.nanos) / u128::from(elapsed);
        u64::try_from(own).unwrap_or(u64::MAX).min(self.nanos)
    }

    fn tell(&self, now: Tick) -> LongTurn {
        let Current { began, heard, closed, files_nanos, frames } = self.turn;
        LongTurn {
            millis_ago: nanos(self.ended, now) / 1_000_000,
            nanos: self.nanos,
            elapsed_nanos: nanos(began, self.ended),
            hearing_nanos: self.own_part(nanos(began, heard)),
            closing_nanos: self.own_part(nanos(heard, closed).saturating_sub(files_nanos)),
            files_nanos: self.own_part(files_nanos),
            sending_nanos: self.own_part(nanos(closed, self.ended)),
            blocked: self.blocked,
            frames,
            work: self.work.iter().collect(),
        }
    }
}

fn nanos(from: Tick, to: Tick) -> u64 {
    to.0.saturating_sub(from.0)
}

/// What a turn took without others, and whether it waited for anything, given what the kernel counted before it (with
/// other turns, perhaps, and so many sleeps between turns) and behind it.
fn own_nanos(elapsed: u64, before: ThreadCounts, after: ThreadCounts, sleeps: u64) -> (u64, bool) {
    let blocked = after.waits.saturating_sub(before.waits) > sleeps;
    let own = if blocked { elapsed } else { elapsed.min(after.cpu_nanos.saturating_sub(before.cpu_nanos)) };
    (own, blocked)
}

#[cfg(test)]
mod tests {
    use kasha_types::Work;

    use super::*;

    fn counts(cpu_nanos: u64, waits: u64) -> ThreadCounts {
        ThreadCounts { cpu_nanos, waits }
    }

    #[test]
    fn what_others_took_is_not_the_turn_s() {
        let before = counts(1000, 5);
        assert_eq!(own_nanos(900, before, counts(1900, 6), 1), (900, false), "nobody else ran");
        assert_eq!(own_nanos(900, before, counts(1400, 6), 1), (400, false), "somebody did");
        assert_eq!(own_nanos(300, before, counts(1400, 6), 1), (300, false), "it was another turn's processor time");
        assert_eq!(own_nanos(900, before, counts(1400, 7), 1), (900, true), "it waited: that is the turn's own");
    }

    /// A turn of which the clock says this; the kernel is asked of the present thread.
    fn turn(turns: &mut Turns, at: u64, parts: [u64; 3], files: u64, work: WorkSet) {
        let [hearing, closing, sending] = parts;
        turns.begin(Tick(at));
        turns.heard(Tick(at + hearing), 3);
        turns.used_files(Tick(at), Tick(at + files));
        turns.closed(Tick(at + hearing + closing));
        turns.end(Tick(at + hearing + closing + sending), work);
    }

    /// Found by an outsider: a turn of 63 µs had a part of 400 µs, because others had the processor meanwhile.
    #[test]
    fn no_part_of_a_turn_is_told_to_be_longer_than_the_turn() {
        let ms = 1_000_000;
        let current =
            Current { began: Tick(0), heard: Tick(6 * ms), closed: Tick(9 * ms), files_nanos: 2 * ms, frames: 1 };
        for own in [0, 1, 63_000, ms, 10 * ms] {
            let longest =
                Longest { turn: current, ended: Tick(10 * ms), nanos: own, blocked: false, work: WorkSet::default() };
            let told = longest.tell(Tick(10 * ms));
            let parts = [told.hearing_nanos, told.closing_nanos, told.files_nanos, told.sending_nanos];
            assert_eq!((told.nanos, told.elapsed_nanos), (own, 10 * ms));
            assert!(parts.iter().sum::<u64>() <= own, "{parts:?} of {own}");
            assert!(longest.busy_nanos() + told.files_nanos <= own);
            // All of it was its own: the parts are what the clock says.
            assert!(own < 10 * ms || parts == [6 * ms, ms, 2 * ms, ms], "{parts:?}");
        }
    }

    #[test]
    fn the_longest_turn_is_told_with_its_parts_and_the_longest_since_the_last_question() {
        let mut turns = Turns::new();
        let mut work = WorkSet::default();
        work.add(Work::Free);
        // Longer than anything that this thread has used, so that the kernel's counts decide nothing.
        let ms = 1_000_000;
        turn(&mut turns, 1000 * ms, [1, 2, 3], 0, WorkSet::default());
        turn(&mut turns, 2000 * ms, [10_000 * ms, 20_000 * ms, 30_000 * ms], 5000 * ms, work);
        turns.longest.longest.nanos = 60_000 * ms;
        turns.since_asked.longest.nanos = 60_000 * ms;
        let told = turns.tell(Tick(63_000 * ms));
        assert_eq!(told.longest, told.longest_since_asked);
        let LongTurn { millis_ago, elapsed_nanos, hearing_nanos, closing_nanos, files_nanos, sending_nanos, .. } =
            told.longest;
        assert_eq!((millis_ago, elapsed_nanos), (1000, 60_000 * ms));
        assert_eq!((hearing_nanos, closing_nanos), (10_000 * ms, 15_000 * ms));
        assert_eq!((files_nanos, sending_nanos), (5000 * ms, 30_000 * ms));
        assert_eq!((told.longest.frames, &told.longest.work[..], told.turns), (3, &[Work::Free][..], 2));
        turn(&mut turns, 70_000 * ms, [7, 0, 0], 0, WorkSet::default());
        let told = turns.tell(Tick(80_000 * ms));
        assert_eq!((told.longest.elapsed_nanos, told.longest_since_asked.elapsed_nanos), (60_000 * ms, 7));
    }
}
