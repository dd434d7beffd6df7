//! Which cores do not answer, and how long the others usually take.
//!
//! A witness that is known not to answer is not waited for: the update's sync is asked for as soon as the primary has answered
//! (R6.1: two round trips). That is known once a connection to the core has failed, or an attempt has waited for the core in
//! vain while its primary has answered, until a frame comes from it. Nothing is concluded from it but that: the record is sent all the
//! same, and whatever the core says counts.
//!
//! How long a core takes decides when silence is a reason to send again, as in TCP (RFC 6298). A request that was sent
//! twice gives no sample (Karn's rule), and what a time-out has doubled stays doubled until there is a sample. Many
//! requests are under way at once: of those that are answered within one usual answer time the slowest is the sample.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::{CoreId, Tick};

use crate::limits;

/// Doublings that are kept without a sample.
const DOUBLINGS_MAX: u32 = 6;

/// What a session has seen of the cores' silence.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Cores that did not answer when they were asked last, in order. Nearly always empty.
    absent: Vec<CoreId>,
    times: BTreeMap<CoreId, AnswerTime>,
}

impl Silence {
    /// The core did not answer, or cannot be reached.
    pub(super) fn note_absent(&mut self, core: CoreId) {
        if let Err(place) = self.absent.binary_search(&core) {
            self.absent.insert(place, core);
        }
    }

    /// Its connection has ended, which explains why nothing came.
    pub(super) fn note_unreachable(&mut self, core: CoreId) {
        self.note_absent(core);
        if let Some(time) = self.times.get_mut(&core) {
            time.end_silence();
        }
    }

    /// The core has said something.
    pub(super) fn note_heard(&mut self, core: CoreId) {
        if let Ok(place) = self.absent.binary_search(&core) {
            self.absent.remove(place);
        }
    }

    /// Whether any core is known not to answer.
    pub(super) fn is_any_absent(&self) -> bool {
        !self.absent.is_empty()
    }

    pub(super) fn is_absent(&self, core: CoreId) -> bool {
        self.absent.binary_search(&core).is_ok()
    }

    /// A request that was sent once was answered after this time. Says whether that ends a silence.
    pub(super) fn note_answer(&mut self, core: CoreId, took: Duration, now: Tick) -> bool {
        match self.times.get_mut(&core) {
            Some(time) => {
                let was_silent = time.doublings > 0;
                time.note(took, now);
                was_silent
            }
            None => {
                self.times.insert(core, AnswerTime::new(took, now));
                false
            }
        }
    }

    /// Nothing came within what the core usually takes.
    pub(super) fn note_timeout(&mut self, core: CoreId, floor: Duration, now: Tick) {
        self.times.entry(core).or_insert_with(|| AnswerTime::unknown(floor)).note_timeout(floor, now);
    }

    /// How long the core may take to answer what was sent to it then, after so many attempts of the same call that it did not, until silence is
    /// a reason to send again. Nothing, if it was never waited for: then one request is sent again, and what was sent with it waits for what comes of that.
    pub(super) fn usual(&self, core: CoreId, silent: u32, sent: Tick) -> Duration {
        self.times.get(&core).map_or(Duration::ZERO, |time| time.doubled(silent, sent))
    }

    /// How long it takes by what it has answered.
    pub(super) fn measured(&self, core: CoreId) -> Duration {
        self.times.get(&core).map_or(Duration::ZERO, AnswerTime::usual)
    }

    /// Forgets the cores for which this is false.
    pub(super) fn retain(&mut self, is_known: impl Fn(CoreId) -> bool) {
        self.absent.retain(|&core| is_known(core));
        self.times.retain(|&core, _| is_known(core));
    }
}

/// How long one core takes to answer.
#[derive(Clone, Copy, Debug)]
struct AnswerTime {
    smoothed: Duration,
    deviation: Duration,
    /// The slowest answers of this round and of the one before.
    slowest: [Duration; 2],
    round_ends: Tick,
    doublings: u32,
    /// An attempt has waited for that long in vain, whatever was usual before, and at this moment gave up; nothing outside a silence.
    waited: (Duration, Tick),
    /// A time-out before this moment is of the same silence as the last one.
    doubled_until: Tick,
}

impl AnswerTime {
    fn new(first: Duration, now: Tick) -> Self {
        let first = first.min(limits::ANSWER_TIME_MAX);
        Self {
            smoothed: first,
            deviation: first / 2,
            slowest: [first; 2],
            round_ends: now.after(first),
            doublings: 0,
            waited: (Duration::ZERO, Tick(0)),
            doubled_until: Tick(0),
        }
    }

    /// Of a core that has not answered a request that was sent once.
    fn unknown(floor: Duration) -> Self {
        Self { deviation: Duration::ZERO, slowest: [floor / 2; 2], ..Self::new(floor, Tick(0)) }
    }

    fn note(&mut self, took: Duration, now: Tick) {
        // Longer than that is no time of a server: this process stood still, or its machine.
        let took = took.min(limits::ANSWER_TIME_MAX);
        self.end_silence();
        self.slowest[0] = self.slowest[0].max(took);
        if now < self.round_ends {
            return;
        }
        let sample = self.slowest[0];
        self.deviation = (self.deviation * 3 + self.smoothed.abs_diff(sample)) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
        self.slowest = [Duration::ZERO, sample];
        self.round_ends = now.after(self.smoothed);
    }

    fn end_silence(&mut self) {
        (self.doublings, self.waited) = (0, (Duration::ZERO, Tick(0)));
    }

    /// Many requests time out together, and are one reason to wait twice as long.
    fn note_timeout(&mut self, floor: Duration, now: Tick) {
        if now >= self.doubled_until {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
            self.waited = (floor, now);
            self.doubled_until = now.after(self.doubled(0, now));
        }
    }

    /// The smoothed time and four deviations; or twice the slowest of the last answers, since a queue may grow as fast as
    /// it is seen.
    fn usual(&self) -> Duration {
        let slowest = self.slowest[0].max(self.slowest[1]);
        (self.smoothed + self.deviation * 4).max(slowest * 2).min(limits::ANSWER_TIME_MAX)
    }

    /// The same, doubled for each time-out of the core or of the call, whichever are more. Doubling alone comes to no more
    /// than the longest waiting time of an attempt. What a core took before it was silent may be far below what an attempt waits at least.
    /// Doubled from there, the time would never come to what a core takes that has become slow, and nothing would be a sample again: so
    /// what is sent after such an attempt is given twice as long as that one.
    fn doubled(&self, silent: u32, sent: Tick) -> Duration {
        let (waited, at) = self.waited;
        let usual = if sent >= at { self.usual().max(waited) } else { self.usual() };
        let doublings = self.doublings.max(silent.min(DOUBLINGS_MAX));
        (usual * (1 << doublings)).min(limits::ATTEMPT_TIMEOUT_MAX).max(usual)
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::NodeId;
    use proptest::prelude::*;

    use super::*;

    const CORE: CoreId = CoreId { node: NodeId(1), core: 0 };
    const FLOOR: Duration = Duration::from_millis(50);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// So many answers, one after the other, each after this time.
    fn answered(silence: &mut Silence, now: &mut Tick, took: Duration, count: u32) {
        for _ in 0..count {
            *now = now.after(took);
            silence.note_answer(CORE, took, *now);
        }
    }

    #[test]
    fn the_pause_grows_with_the_answer_time_and_shrinks_with_it() {
        let (mut silence, mut now) = (Silence::default(), Tick(0));
        assert_eq!(silence.usual(CORE, 0, now), Duration::ZERO, "before the first answer");
        answered(&mut silence, &mut now, millis(10), 1);
        assert_eq!(silence.usual(CORE, 0, now), millis(30), "RFC 6298, 2.2: R + 4 R/2");
        answered(&mut silence, &mut now, millis(10), 100);
        assert_eq!(silence.usual(CORE, 0, now), millis(20), "a steady core gets twice what it takes");
        answered(&mut silence, &mut now, millis(200), 1);
        assert!(
            silence.usual(CORE, 0, now) >= millis(400),
            "the slowest answer counts at once: {:?}",
            silence.usual(CORE, 0, now)
        );
        answered(&mut silence, &mut now, millis(10), 100);
        assert!(silence.usual(CORE, 0, now) < millis(21), "{:?}", silence.usual(CORE, 0, now));
    }

    #[test]
    fn of_many_answers_in_one_round_the_slowest_counts() {
        let (mut silence, mut now) = (Silence::default(), Tick(0));
        for _ in 0..20 {
            for took in [100, 1, 2, 3, 1, 2, 3, 1, 2, 3] {
                now = now.after(millis(10));
                silence.note_answer(CORE, millis(took), now);
            }
        }
        assert!(silence.usual(CORE, 0, now) >= millis(200), "{:?}", silence.usual(CORE, 0, now));
    }

    #[test]
    fn what_a_time_out_doubled_stays_doubled_until_there_is_a_sample() {
        let (mut silence, mut now) = (Silence::default(), Tick(0));
        answered(&mut silence, &mut now, millis(100), 100);
        let usual = silence.usual(CORE, 0, now);
        for _ in 0..512 {
            silence.note_timeout(CORE, FLOOR, now);
        }
        assert_eq!(silence.usual(CORE, 0, now), usual * 2, "512 requests of one silence");
        now = now.after(usual * 2);
        silence.note_timeout(CORE, FLOOR, now);
        assert_eq!(silence.usual(CORE, 0, now), usual * 4);
        assert_eq!(silence.usual(CORE, 1, now), usual * 4, "the call's own time-outs are among them");
        for _ in 0..100 {
            now = now.after(Duration::from_secs(3600));
            silence.note_timeout(CORE, FLOOR, now);
        }
        assert_eq!(silence.usual(CORE, 0, now), limits::ATTEMPT_TIMEOUT_MAX, "but not for ever");
        answered(&mut silence, &mut now, millis(100), 1);
        assert_eq!(silence.usual(CORE, 0, now), usual);
        silence.note_timeout(CORE, FLOOR, now.after(Duration::from_secs(9)));
        silence.note_unreachable(CORE);
        assert_eq!(silence.usual(CORE, 0, now), usual, "a closed connection is a reason of its own");
    }

    #[test]
    fn a_core_that_is_always_slow_is_soon_waited_for() {
        let (mut silence, mut now) = (Silence::default(), Tick(0));
        silence.note_timeout(CORE, FLOOR, Tick(0).after(FLOOR));
        assert_eq!(
            silence.usual(CORE, 0, now),
            FLOOR * 2,
            "without any sample; what was sent with the first request waits, too"
        );
        answered(&mut silence, &mut now, millis(80), 1);
        assert!(silence.usual(CORE, 0, now) >= millis(160), "{:?}", silence.usual(CORE, 0, now));
    }

    #[test]
    fn a_core_that_was_fast_and_becomes_slow_is_soon_waited_for() {
        let (mut silence, mut now) = (Silence::default(), Tick(0));
        answered(&mut silence, &mut now, Duration::from_micros(200), 1000);
        let before = now;
        now = now.after(FLOOR);
        silence.note_timeout(CORE, FLOOR, now);
        assert!(silence.usual(CORE, 0, before) < millis(1), "what was sent with the one that gave up");
        assert_eq!(
            silence.usual(CORE, 0, now),
            FLOOR * 2,
            "what is sent now is a sample, if the core takes no longer than that"
        );
        now = now.after(FLOOR * 4);
        silence.note_timeout(CORE, FLOOR, now);
        assert_eq!(silence.usual(CORE, 0, now), FLOOR * 4);
        answered(&mut silence, &mut now, Duration::from_micros(200), 1);
        assert!(silence.usual(CORE, 0, now) < millis(1), "the silence is over");
    }

    /// This process, or its machine, stood still for a minute.
    #[test]
    fn one_sample_of_a_minute_is_soon_forgotten() {
        let (mut silence, mut now) = (Silence::default(), Tick(0));
        silence.note_answer(CORE, Duration::from_secs(60), now);
        assert_eq!(silence.usual(CORE, 0, now), limits::ANSWER_TIME_MAX);
        answered(&mut silence, &mut now, millis(1), 20_000);
        assert!(silence.usual(CORE, 0, now) < millis(200), "after twenty seconds: {:?}", silence.usual(CORE, 0, now));
        silence.note_answer(CORE, Duration::from_secs(60), now);
        answered(&mut silence, &mut now, millis(1), 10_000);
        assert!(silence.usual(CORE, 0, now) < millis(100), "after ten seconds: {:?}", silence.usual(CORE, 0, now));
    }

    #[test]
    fn a_core_is_absent_until_it_is_heard() {
        let mut silence = Silence::default();
        let other = CoreId { node: NodeId(2), core: 1 };
        assert!(!silence.is_any_absent());
        silence.note_absent(other);
        silence.note_absent(CORE);
        silence.note_absent(CORE);
        assert!(silence.is_absent(CORE) && silence.is_absent(other));
        silence.note_heard(CORE);
        assert!(!silence.is_absent(CORE) && silence.is_any_absent());
        silence.retain(|core| core == CORE);
        assert!(!silence.is_any_absent());
    }

    proptest! {
        /// However answers come: never less than twice the last answer, and not beyond what was ever seen.
        #[test]
        fn the_pause_is_within_its_bounds(steps in proptest::collection::vec((1u64..500, 0u64..500), 1..200)) {
            let (mut silence, mut now, mut slowest) = (Silence::default(), Tick(0), 0);
            for (took, pause) in steps {
                now = now.after(millis(pause));
                silence.note_answer(CORE, millis(took), now);
                slowest = slowest.max(took);
                prop_assert!(silence.usual(CORE, 0, now) >= millis(2 * took));
                prop_assert!(silence.usual(CORE, 0, now) <= millis(5 * slowest));
            }
        }
    }
}
