//! What a member remembers of ClusterTime while another one leads (R9.4 \[M\]).
//!
//! ClusterTime ends values, so a new leader must go on where the one before was: to begin at the reservation would take up to a
//! second off every lifetime with each election. So a round carries the time that the answers tell which wait for it. A
//! member remembers that, and when it came; and its vote says what the time is by now. Each answer that was given has been confirmed by a
//! quorum, and each leader is elected by one. So the greatest time of the votes is not less than any that was told.
//!
//! A member counts the time since by its own clock, and slow: its clock may be the faster one. Who has started since remembers nothing.
//! Then a leader begins as one that is alone does (`time`).

use std::time::Duration;

use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, Tick};
use kasha_viewstamped::{MemberId, Memory};
use kasha_wire::{Reader, Wire};

use crate::CoordinatorOptions;

/// ClusterTime, as a member knows it from rounds.
#[derive(Debug)]
pub(crate) struct RememberedTime {
    node_lease: Duration,
    drift_bound: Duration,
    /// The greatest time that was told.
    told: Option<ClusterTime>,
    /// A time, and when it was that.
    last: Option<(ClusterTime, Tick)>,
}

impl RememberedTime {
    pub(crate) fn new(options: &CoordinatorOptions) -> Self {
        Self { node_lease: options.node_lease, drift_bound: options.drift_bound, told: None, last: None }
    }

    /// What the time is now at least.
    fn by_now(&self, now: Tick) -> Option<ClusterTime> {
        let (time, then) = self.last?;
        let elapsed = now.since(then);
        let slow = elapsed.mul_f64(1.0 - self.drift_bound.as_secs_f64() / self.node_lease.as_secs_f64());
        Some(time.after_millis(u64::try_from(slow.as_millis()).unwrap_or(u64::MAX)))
    }

    /// A time is told. What was remembered is not less afterwards.
    pub(crate) fn note(&mut self, now: Tick, told: ClusterTime) {
        self.told = self.told.max(Some(told));
        match self.by_now(now) {
            Some(known) if known >= told => {}
            Some(_) | None => self.last = Some((told, now)),
        }
    }
}

impl Memory for RememberedTime {
    fn ask(&mut self, _: Tick) -> Vec<u8> {
        encoded(self.told) // where ClusterTime stands still, `by_now` is ahead of it
    }

    fn hear(&mut self, now: Tick, value: &[u8]) {
        if let Some(told) = decoded(value) {
            self.note(now, told);
        }
    }

    fn recall(&self, now: Tick) -> Vec<u8> {
        encoded(self.by_now(now))
    }
}

fn encoded(time: Option<ClusterTime>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(time) = time {
        time.put(&mut bytes);
    }
    bytes
}

fn decoded(bytes: &[u8]) -> Option<ClusterTime> {
    let mut reader = Reader::new(bytes);
    let time = reader.take().ok()?;
    reader.finish().ok().map(|()| time)
}

/// What a quorum remembers when one of them begins to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recalled {
    /// The greatest time that one of them remembers.
    pub(crate) greatest: Option<ClusterTime>,
    /// Whether each of them remembers one: then nobody was told of a greater one.
    pub(crate) by_all: bool,
}

impl Recalled {
    #[cfg(test)]
    /// Who is alone and has just started.
    pub(crate) const NOTHING: Self = Self { greatest: None, by_all: false };

    /// From the votes of a quorum.
    pub(crate) fn of(me: MemberId, memories: &[(MemberId, Vec<u8>)]) -> Self {
        let is_ours = |member| member == me || !planted::is_on(Bug::TimeFromOwnMemory);
        let votes = memories.iter().filter(|(member, _)| is_ours(*member)).map(|(_, memory)| decoded(memory));
        let mut recalled = Self { greatest: None, by_all: true };
        for vote in votes {
            recalled.greatest = recalled.greatest.max(vote);
            recalled.by_all &= vote.is_some();
        }
        recalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered() -> RememberedTime {
        let (node_lease, drift_bound) = (Duration::from_millis(500), Duration::from_millis(25));
        RememberedTime { node_lease, drift_bound, told: None, last: None }
    }

    fn at(millis: u64) -> Tick {
        Tick(0).after(Duration::from_millis(millis))
    }

    fn time(bytes: &[u8]) -> Option<u64> {
        decoded(bytes).map(|time| time.0)
    }

    #[test]
    fn r9_4_a_member_counts_on_from_a_round_and_slow() {
        let (mut leader, mut other) = (remembered(), remembered());
        assert_eq!(time(&leader.ask(at(0))), None);
        leader.note(at(0), ClusterTime(5_000));
        other.hear(at(70_000), &leader.ask(at(10)));
        assert_eq!(time(&other.recall(at(70_000))), Some(5_000), "what was told, and not more");
        assert_eq!(time(&other.recall(at(71_000))), Some(5_950));
        assert_eq!(time(&leader.recall(at(1_000))), Some(5_950));
    }

    #[test]
    fn r9_4_a_late_round_lowers_nothing() {
        let mut other = remembered();
        other.hear(at(0), &encoded(Some(ClusterTime(5_000))));
        other.hear(at(1_000), &encoded(Some(ClusterTime(5_100))));
        assert_eq!(time(&other.recall(at(1_000))), Some(5_950));
        other.hear(at(1_000), &encoded(Some(ClusterTime(6_000))));
        assert_eq!(time(&other.recall(at(1_000))), Some(6_000));
        [&[][..], &[1], &[0; 9]].iter().for_each(|bytes| other.hear(at(1_000), bytes));
        assert_eq!(time(&other.recall(at(1_000))), Some(6_000));
    }

    #[test]
    fn r9_4_the_greatest_of_a_quorum_counts_if_each_remembers_one() {
        let votes = |votes: &[Option<u64>]| {
            let memory = |vote: &Option<u64>| encoded(vote.map(ClusterTime));
            let memories: Vec<_> = (1..).map(MemberId).zip(votes.iter().map(memory)).collect();
            let Recalled { greatest, by_all } = Recalled::of(MemberId(1), &memories);
            (greatest.map(|time| time.0), by_all)
        };
        assert_eq!(votes(&[Some(5), Some(7)]), (Some(7), true));
        assert_eq!(votes(&[Some(5), None]), (Some(5), false));
        assert_eq!(votes(&[None]), (None, false));
    }
}
