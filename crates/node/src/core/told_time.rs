//! Whether clients take ClusterTime for what it is (R4.7): lifetimes of values count from what a client takes it for.
//!
//! A core knows where ClusterTime is by its own clock, from the coordinator's answers to its heartbeats. While the coordinator is away,
//! ClusterTime goes on: a coordinator that starts again in the same boot goes on with it. So does this clock. A client whose
//! requests show another time is told. Nothing here ends a value or a lease: values end by [`super::counted_time`] (**R10.12**), and all else
//! by the time that was really heard (**R4.6**).

use std::collections::BTreeSet;
use std::time::Duration;

use kasha_machine::{Effects, Endpoint, Gate};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, Tick, TimeBounds};
use kasha_wire::message::TimeIs;

use crate::core::send::send;

/// How far a client may be away from what ClusterTime can be, in milliseconds: its requests are under way for a while.
const SLACK_MILLIS: u64 = 25;
/// How old what clients may show can be: far less than what they may be away.
const COMPUTED_EVERY: Duration = Duration::from_millis(1);

/// Tells clients the time, if theirs is wrong.
#[derive(Debug)]
pub(crate) struct ToldTime {
    known: Option<TimeBounds>,
    /// The least that needs no correction, and how much more does not, either, as it was a moment ago.
    right_from: u64,
    right_for: u64,
    computed: Tick,
    now: Tick,
    /// Who was told since the last heartbeat.
    told: BTreeSet<Endpoint>,
}

impl Default for ToldTime {
    fn default() -> Self {
        Self { known: None, right_from: 0, right_for: u64::MAX, computed: Tick(0), now: Tick(0), told: BTreeSet::new() }
    }
}

impl ToldTime {
    /// The coordinator has answered a heartbeat.
    pub fn heard(&mut self, time: ClusterTime, asked: Tick, now: Tick) {
        let newer = TimeBounds::heard(time, asked, now);
        self.known = Some(self.known.map_or(newer, |known| known.narrowed(newer)));
        self.told.clear();
        self.now = now;
        self.compute(now);
    }

    /// What clients may show in this turn: that is computed once in a millisecond.
    #[inline]
    pub fn begin_turn(&mut self, now: Tick) {
        self.now = now;
        if now.since(self.computed) >= COMPUTED_EVERY {
            self.compute(now);
        }
    }

    fn compute(&mut self, now: Tick) {
        let Some(known) = self.known else { return };
        self.computed = now;
        let (least, most) = known.at(now);
        self.right_from = least.0.saturating_sub(SLACK_MILLIS);
        self.right_for = most.0.saturating_add(SLACK_MILLIS) - self.right_from;
    }

    /// Tells a client whose request shows another time.
    #[inline]
    pub fn check(&mut self, to: Endpoint, shown: ClusterTime, out: &mut Effects) {
        if shown.0.wrapping_sub(self.right_from) > self.right_for {
            self.tell(to, shown, out);
        }
    }

    /// What is nearest to this of all that a client may show; 0 if nobody knows.
    pub fn nearest(&self, shown: ClusterTime) -> ClusterTime {
        match self.known {
            Some(_) => ClusterTime(shown.0.clamp(self.right_from, self.right_from + self.right_for)),
            None => ClusterTime(0),
        }
    }

    #[cold]
    fn tell(&mut self, to: Endpoint, shown: ClusterTime, out: &mut Effects) {
        let Some(known) = self.known.filter(|_| shown != ClusterTime(0)) else { return };
        if self.told.insert(to) {
            hit(Probe::ClientHearsTime);
            let (least, most) = known.at(self.now);
            send(to, &TimeIs { shown, least, most }, Gate::Now, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use kasha_machine::Effect;
    use kasha_types::ConnId;
    use kasha_wire::Message;
    use kasha_wire::frame::FRAME_HEADER_BYTES;

    use super::*;

    fn millis(millis: u64) -> Tick {
        Tick(millis * 1_000_000)
    }

    /// What a client is told that shows this time.
    fn told(time: &mut ToldTime, client: u64, shown: u64) -> Option<(u64, u64)> {
        let mut out = Effects::new();
        time.check(Endpoint::Conn(ConnId(client)), ClusterTime(shown), &mut out);
        match out.queue() {
            [] => None,
            [Effect::Send { head, gate: Gate::Now, .. }] => {
                let TimeIs { shown: echo, least, most } =
                    TimeIs::decode(&out.bytes(*head)[FRAME_HEADER_BYTES..]).expect("the time");
                assert_eq!(echo, ClusterTime(shown));
                Some((least.0, most.0))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn r4_7_who_is_wrong_about_the_time_is_told_once_between_two_heartbeats() {
        let mut time = ToldTime::default();
        time.begin_turn(millis(50));
        assert_eq!(told(&mut time, 1, 7), None, "nobody knows yet");
        assert_eq!(time.nearest(ClusterTime(7)), ClusterTime(0), "nobody knows yet");
        time.heard(ClusterTime(1_000), millis(100), millis(102));
        time.begin_turn(millis(202));
        for right in [0, 1_075, 1_100, 1_103, 1_128] {
            assert_eq!(told(&mut time, 1, right), None, "{right}");
        }
        let nearest = [0, 1_074, 1_100, 1_129, u64::MAX].map(|shown| time.nearest(ClusterTime(shown)).0);
        assert_eq!(nearest, [1_075, 1_075, 1_100, 1_128, 1_128]);
        assert_eq!(told(&mut time, 1, 1_074), Some((1_100, 1_103)));
        assert_eq!(told(&mut time, 1, 1_074), None, "a second request is under way");
        assert_eq!(told(&mut time, 2, 1_129), Some((1_100, 1_103)));
        time.heard(ClusterTime(1_200), millis(302), millis(302));
        assert_eq!(told(&mut time, 1, 5), Some((1_200, 1_201)));
    }

    /// A coordinator that has restarted in another boot goes on from elsewhere.
    #[test]
    fn r4_7_the_newest_answer_counts_where_they_do_not_agree() {
        let mut time = ToldTime::default();
        time.heard(ClusterTime(1_000), millis(100), millis(100));
        time.heard(ClusterTime(2_500), millis(200), millis(201));
        assert_eq!(told(&mut time, 1, 1_100), Some((2_500, 2_502)));
        time.heard(ClusterTime(2_600), millis(5_000), millis(5_000));
        assert_eq!(told(&mut time, 1, 7_300), Some((2_600, 2_601)), "the machine of the coordinator was down for long");
    }
}
