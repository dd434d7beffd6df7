//! Time goes on (R4.7): however often the coordinator starts in one boot of its machine, ClusterTime goes on as the clock
//! of this boot does. All boots together move it ahead of the time that passes by one reservation at most. In the scenario that is for
//! it, what a client takes ClusterTime for in an update, and the time to live that it tells, are right to 100 ms.
//!
//! In a group another member may lead in between, of another boot, and reserve a time that it never tells: a leader after it does not tell less. So
//! views of one boot are compared if no view between them was another's.
//!
//! A frame may leave long after its time was read, because it waits for a file. So what is told is never compared downwards.

use std::collections::BTreeMap;

use kasha_types::{BootId, ClusterTime, ViewNumber};
use kasha_wire::frame::Kind;
use kasha_wire::message::{HeartbeatAnswer, LeaseRenewed, LeaseVerdict, SessionOpened};
use kasha_wire::{Body, RequestView};

use crate::clock::{Clock, DRIFT_PPM_MAX, SimTime, millis};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// A restart that begins at the reservation moves ClusterTime ahead by at least half a second.
const AHEAD_IN_BOOT_MAX: i64 = 250;
/// All boots together: one reservation, and what frames wait.
const AHEAD_MAX: i64 = 1_100;
/// What a lifetime may be off.
const OFF_MAX: i64 = 100;
/// How long frames of a new boot may still wait for its first writes.
const SETTLES: u64 = millis(500);

/// The longest time for which a core's first answers may be under way.
const CORRECTED_WITHIN: u64 = millis(3_000);

/// What a client told of a value's end.
#[derive(Clone, Copy, Debug)]
pub struct TimeTold {
    /// When.
    pub at: SimTime,
    /// The end of the value.
    pub ends: ClusterTime,
    /// How many milliseconds the client told that it has to live.
    pub left: u64,
}

/// In which boot of a machine, and in which run of views without another's between them: 0 where the coordinator has one member.
type Lead = (BootId, u64);

/// One boot of the coordinator's machine.
#[derive(Clone, Copy, Debug)]
struct Boot {
    id: Lead,
    clock: Clock,
    /// The first telling in this boot.
    first_at: SimTime,
    /// By how many milliseconds ClusterTime is ahead of the clock.
    ahead: i64,
}

/// Watches what the coordinator tells, and what clients make of it.
#[derive(Debug, Default)]
pub struct TimeGoesOn {
    is_strict: bool,
    is_group: bool,
    /// Of each member: the last view of its own, and how often another's may have been between two of these.
    views: BTreeMap<ProcessId, (ViewNumber, u64)>,
    boot: Option<Boot>,
    /// The first boot of the run, as it was when it ended.
    first: Option<(Boot, SimTime)>,
    /// When something was told in the first boot.
    told_at: Vec<SimTime>,
    /// The least that ClusterTime was ever ahead of the time that has passed.
    least_ahead: Option<i64>,
    /// When a core first answered each client.
    answered: BTreeMap<ProcessId, SimTime>,
    violations: Vec<String>,
    begun: u64,
}

fn millis_of(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The ClusterTime that a frame of a coordinator tells. One that only listens tells none (R9.13).
pub(crate) fn told_in(sent: &Sent<'_>) -> Option<ClusterTime> {
    let told = None
        .or_else(|| sent.message().map(|HeartbeatAnswer { cluster_time, .. }| cluster_time))
        .or_else(|| sent.message().map(|SessionOpened { cluster_time, .. }| cluster_time))
        .or_else(|| sent.message().map(|LeaseRenewed { cluster_time, .. }| cluster_time))
        .or_else(|| sent.message().map(|LeaseVerdict { cluster_time, .. }| cluster_time));
    told.filter(|&time| time > ClusterTime(0))
}

impl TimeGoesOn {
    /// `is_strict`: the network is as it should be, and nobody stops for long, so that clients must be right.
    #[must_use]
    pub fn new(is_strict: bool, is_group: bool) -> Self {
        Self { is_strict, is_group, ..Self::default() }
    }

    /// A member leads this view.
    fn on_view(&mut self, member: ProcessId, view: ViewNumber) {
        let (last, others) = self.views.entry(member).or_insert((view, 0));
        *others += u64::from(view.0 > last.0 + 1);
        *last = view.max(*last);
    }

    fn on_told(&mut self, time: ClusterTime, id: Lead, clock: Clock, now: SimTime) {
        let ahead = millis_of(time.0) - millis_of(clock.read(now).0 / 1_000_000);
        match &mut self.boot {
            Some(boot) if boot.id == id && now > boot.first_at.after(SETTLES) => {
                if ahead > boot.ahead + AHEAD_IN_BOOT_MAX {
                    let by = ahead - boot.ahead;
                    self.violations.push(format!(
                        "time_goes_on: in one boot of the coordinator's machine, ClusterTime went {by} ms ahead of its clock (R4.7)"
                    ));
                }
                boot.ahead = boot.ahead.max(ahead);
            }
            Some(boot) if boot.id == id => boot.ahead = boot.ahead.max(ahead),
            former => {
                if let (None, Some(former)) = (self.first, *former) {
                    self.first = Some((former, now));
                }
                self.boot = Some(Boot { id, clock, first_at: now, ahead });
            }
        }
        if self.first.is_none() {
            self.told_at.push(now);
        }
        if self.is_strict {
            let fastest = i128::from(now.0) * i128::from(1_000_000 + DRIFT_PPM_MAX) / 1_000_000_000_000;
            let ahead = millis_of(time.0) - i64::try_from(fastest).unwrap_or(i64::MAX);
            let least = self.least_ahead.map_or(ahead, |least| least.min(ahead));
            if ahead > least + AHEAD_MAX {
                let by = ahead - least;
                self.violations.push(format!(
                    "time_goes_on: all starts of the coordinator moved ClusterTime {by} ms ahead of the time that passed (R4.7)"
                ));
            }
            self.least_ahead = Some(least);
        }
    }

    /// ClusterTime at a moment of the first boot, and how far whoever has a clock of its own may be away from that: clocks drift apart while
    /// the coordinator tells nothing.
    fn time_at(&self, at: SimTime) -> Option<(i64, i64)> {
        let boot = match self.first {
            Some((boot, until)) => (at < until).then_some(boot)?,
            None => self.boot?,
        };
        let last = self.told_at.partition_point(|&told| told <= at).checked_sub(1).map(|index| self.told_at[index])?;
        let drift = (at.0 - last.0) * (2 * DRIFT_PPM_MAX) / 1_000_000;
        let time = millis_of(boot.clock.read(at).0 / 1_000_000) + boot.ahead;
        (at > boot.first_at.after(SETTLES)).then_some((time, OFF_MAX + millis_of(drift / 1_000_000)))
    }

    fn on_begun(&mut self, client: ProcessId, begun: ClusterTime, now: SimTime) {
        let Some((time, off_max)) = self.time_at(now) else { return };
        // A client whose id was long under way takes an old time for the present one, until a core has corrected it.
        let is_corrected = self.answered.get(&client).is_some_and(|at| now > at.after(CORRECTED_WITHIN));
        if !is_corrected && millis_of(begun.0) < time {
            return;
        }
        self.begun += 1;
        let off = millis_of(begun.0) - time;
        if off.abs() > off_max {
            self.violations.push(format!(
                "time_goes_on: a client takes ClusterTime for {begun:?}, and is {off} ms away from what it is (R4.7)"
            ));
        }
    }

    /// Checks what clients told of the ends of values: how many, and what was wrong.
    #[must_use]
    pub fn check_told(&self, told: &[TimeTold]) -> (u64, Vec<String>) {
        let (mut checked, mut violations) = (0, Vec::new());
        for &TimeTold { at, ends, left } in told.iter().filter(|_| self.is_strict) {
            let Some((time, off_max)) = self.time_at(at) else { continue };
            checked += 1;
            let off = millis_of(left) - (millis_of(ends.0) - time).max(0);
            if off.abs() > off_max {
                violations.push(format!(
                    "time_goes_on: at {at} a client told that a value has {left} ms to live, and is {off} ms away from its end (R5.2)"
                ));
            }
        }
        (checked, violations)
    }
}

impl Watch for TimeGoesOn {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        let sender = &view.processes[sent.from.0];
        if sender.name.starts_with("coordinator") {
            if let Some(HeartbeatAnswer { view, .. }) = sent.message().filter(|_| self.is_group) {
                self.on_view(sent.from, view);
            }
            let host = &view.hosts[sender.host.0];
            if let Some(time) = told_in(sent) {
                let (_, others) = self.views.get(&sent.from).copied().unwrap_or_default();
                self.on_told(time, (host.boot, others), host.clock, view.now);
            }
        } else if let Some(client) = sent.target.filter(|target| view.processes[target.0].name.starts_with("client")) {
            self.answered.entry(client).or_insert(view.now);
        } else if self.is_strict && sent.kind == Kind::Request as u8 && sender.name.starts_with("client") {
            let request = RequestView::decode(sent.payload).ok().filter(|request| request.envelope.attempt == 1);
            let begun = request.and_then(|request| Body::decode(request.body).ok()).map(|body| body.head.begun);
            if let Some(begun) = begun.filter(|&begun| begun != ClusterTime(0)) {
                self.on_begun(sent.from, begun, view.now);
            }
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("time_goes_on: beginnings of lifetimes", self.begun);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_machine::Rng;

    use super::*;

    const BOOT: BootId = BootId(1);

    /// Violations of a run that tells, in this boot, a time that is so much ahead of the clock.
    fn told(tellings: &[(u64, BootId, u64)]) -> Vec<String> {
        let mut watch = TimeGoesOn::new(true, false);
        for &(at, boot, ahead) in tellings {
            let clock = if boot == BOOT { Clock::new(0, 0) } else { Clock::booted(SimTime(0), &mut Rng::new(1)) };
            let now = SimTime(millis(at));
            watch.on_told(ClusterTime(clock.read(now).0 / 1_000_000 + ahead), (boot, 0), clock, now);
        }
        watch.take_violations()
    }

    #[test]
    fn a_restart_in_one_boot_adds_nothing() {
        assert_eq!(
            told(&[(0, BOOT, 100), (10, BOOT, 140), (2_000, BOOT, 20), (4_000, BOOT, 145)]),
            Vec::<String>::new()
        );
        assert_eq!(told(&[(0, BOOT, 0), (2_000, BOOT, 0), (2_600, BOOT, 500)]).len(), 1);
    }

    #[test]
    fn views_of_one_boot_are_compared_if_none_is_between_them() {
        for (views, found) in [([3, 4], 1), ([3, 5], 0)] {
            let (mut watch, member) = (TimeGoesOn::new(false, true), ProcessId(1));
            for (view, (at, ahead)) in views.into_iter().zip([(0, 0), (2_600, 500)]) {
                watch.on_view(member, ViewNumber(view));
                let lead = (BOOT, watch.views[&member].1);
                watch.on_told(ClusterTime(at + ahead), lead, Clock::new(0, 0), SimTime(millis(at)));
            }
            assert_eq!(watch.take_violations().len(), found);
        }
    }

    #[test]
    fn all_boots_together_add_a_second() {
        let other = |id: u128| BootId(1 + id);
        assert_eq!(told(&[(0, BOOT, 0), (100, other(1), 900), (200, other(2), 950)]), Vec::<String>::new());
        assert_eq!(told(&[(0, BOOT, 0), (100, other(1), 900), (200, other(2), 1_800)]).len(), 1);
    }

    #[test]
    fn clients_are_right_to_a_tenth_of_a_second() {
        let mut watch = TimeGoesOn::new(true, false);
        let tell = |watch: &mut TimeGoesOn, at| {
            watch.on_told(ClusterTime(at + 50), (BOOT, 0), Clock::new(0, 0), SimTime(millis(at)))
        };
        (0..50).for_each(|step| tell(&mut watch, step * 100));
        let begins = |watch: &mut TimeGoesOn, begun| {
            watch.on_begun(ProcessId(7), ClusterTime(begun), SimTime(millis(4_990)));
            watch.take_violations().len()
        };
        assert_eq!((begins(&mut watch, 5_000), begins(&mut watch, 5_200)), (0, 1));
        // An old time is a violation only after a core could have corrected the client.
        assert_eq!(begins(&mut watch, 4_900), 0);
        watch.answered.insert(ProcessId(7), SimTime(millis(1_000)));
        assert_eq!(begins(&mut watch, 4_900), 1);
        let left = |left| TimeTold { at: SimTime(millis(4_990)), ends: ClusterTime(6_000), left };
        assert_eq!(watch.check_told(&[left(960), left(1_040)]), (2, Vec::new()));
        assert_eq!(watch.check_told(&[left(200), left(1_200)]).1.len(), 2);
    }
}
