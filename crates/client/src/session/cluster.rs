//! The session's tasks for itself: it finds the cluster, keeps its configuration fresh, and tends its leases
//! (`identities`). The coordinator may be away for a minute; meanwhile these tasks delay no call.

use std::net::SocketAddr;
use std::time::Duration;

use kasha_machine::{CoordinatorLinks, Effect, Effects, Endpoint};
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterId, ClusterTime, ConfigVersion, CoreId, Tick, UnixMillis};
use kasha_wire::message::{NotLeader, TimeIs};
use kasha_wire::{Configuration, Level, message};

use super::call::{Keys, Kind, NEVER, ReadCall, Stage, UpdateCall};
use super::calls::CallId;
use super::frames::{Known, send_message};
use super::target::Target;
use super::{Completion, Session, WhyNot};
use crate::limits;

/// How long a seed may be silent before the session asks the next one.
const RETRY: Duration = Duration::from_millis(100);

/// What the session knows about the cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    id: Option<ClusterId>,
    pub(super) configuration: Option<Configuration>,
    /// The level of the cluster, as far as we have heard (R7.6).
    level: Level,
    /// The unix time of ClusterTime 0, if we have heard it (R10.12).
    unix_origin: Option<UnixMillis>,
    pub(super) coordinator: CoordinatorLinks,
    /// The greatest ClusterTime that it can be by now, as of some moment: for what must not outlive its term.
    time: (ClusterTime, Tick),
    /// What we take ClusterTime for, as of some moment: it goes on by our clock, and is corrected as soon as we hear that it is wrong.
    /// Nothing, until the first client id comes.
    taken: Option<(ClusterTime, Tick)>,
    /// Some call needs a newer configuration.
    wanted: bool,
    /// Some call needs the coordinator's own answer, even if the configuration is not newer.
    wanted_from_coordinator: bool,
    /// The configuration is not asked for before this moment.
    ask_at: Tick,
    /// It is asked for at this moment in any case: the coordinator could not be reached.
    seek_at: Option<Tick>,
    /// Somebody of the coordinator's group has said last that he knows no leader.
    lacks_leader: bool,
    /// Number of questions so far: it decides which server is asked next.
    questions: usize,
}

impl Cluster {
    pub(super) fn new(id: Option<ClusterId>, now: Tick) -> Self {
        Self {
            id,
            configuration: None,
            level: Level::FIRST,
            unix_origin: None,
            coordinator: CoordinatorLinks::default(),
            time: (ClusterTime(0), now),
            taken: None,
            wanted: true,
            wanted_from_coordinator: false,
            ask_at: now,
            seek_at: None,
            lacks_leader: false,
            questions: 0,
        }
    }

    pub(super) fn want_configuration(&mut self) {
        self.wanted = true;
    }

    /// The next seed is asked soon, but not in a tight loop.
    pub(super) fn on_seed_unreachable(&mut self, now: Tick) {
        if self.configuration.is_none() {
            self.ask_at = self.ask_at.min(now.after(limits::REFRESH_INTERVAL));
        }
    }

    /// Perhaps the coordinator is elsewhere now, and its nodes know where.
    pub(super) fn on_coordinator_unreachable(&mut self, now: Tick) {
        if self.configuration.is_some() {
            self.seek_at.get_or_insert(now.after(limits::COORDINATOR_SOUGHT_INTERVAL));
        }
    }

    /// A member of the group of coordinators does not lead. What was asked is asked again, by time.
    pub(super) fn on_not_leader(&mut self, told: NotLeader, now: Tick, out: &mut Effects) -> Known {
        let NotLeader { view, leader, group } = told;
        self.lacks_leader = leader.is_none();
        let before = self.coordinator.leader();
        self.coordinator.redirect(view, leader, group.into_iter().map(|of| (of.member, of.address)), out);
        if self.coordinator.leader() != before {
            self.ask_at = now;
        }
        Known::Yes
    }

    /// The members of the coordinator's group, if none of them has been named as the leader, and no configuration has come.
    pub(super) fn members_without_leader(&self) -> Option<Vec<SocketAddr>> {
        let lacks = self.lacks_leader && self.configuration.is_none();
        lacks.then(|| self.coordinator.addresses().collect())
    }

    /// When the configuration is to be asked for next.
    pub(super) fn next_errand(&self) -> Tick {
        let wanted = if self.wanted { self.ask_at } else { NEVER };
        wanted.min(self.seek_at.unwrap_or(NEVER))
    }

    /// Whether the cluster is not at this level, as far as we have heard. Before we have heard anything nothing is sent.
    pub(super) fn lacks_level(&self, level: Level) -> bool {
        level > self.level && self.configuration.is_some()
    }

    /// An estimate of ClusterTime now, which never goes back.
    pub(super) fn time(&self, now: Tick) -> ClusterTime {
        since(self.time, now)
    }

    /// Whether [`Self::time_taken`] is an estimate at all.
    pub(super) fn knows_time(&self) -> bool {
        self.taken.is_some()
    }

    /// What we take ClusterTime for: what lifetimes of values count from. 0, if nothing was heard yet.
    pub(super) fn time_taken(&self, now: Tick) -> ClusterTime {
        self.taken.map_or(ClusterTime(0), |taken| since(taken, now))
    }

    /// The coordinator told this time, at some moment of the last while. If we know nothing better we take it for the middle. How long the
    /// time was under way is not known, so that it never sets us back; nor does it set us further ahead than it surely was.
    pub(super) fn heard_time(&mut self, (time, at_most): (ClusterTime, Duration), now: Tick) {
        match self.taken {
            None => {
                let half = u64::try_from(at_most.as_millis() / 2).unwrap_or(u64::MAX);
                self.taken = Some((time.after_millis(half), now));
            }
            Some(_) if time > self.time_taken(now) && !planted::is_on(Bug::TimeLeftFromOwnClock) => {
                self.taken = Some((time, now));
            }
            Some(_) => {}
        }
        if time > self.time(now) {
            self.time = (time, now);
        }
    }

    /// A core found that what we had taken ClusterTime for was wrong. It knows between which bounds ClusterTime was then.
    pub(super) fn correct_time(&mut self, told: &TimeIs, now: Tick) -> Known {
        let &TimeIs { shown, least, most } = told;
        let taken = self.time_taken(now);
        // What we cannot have shown since we were last corrected says nothing of what we take the time for now.
        if !self.knows_time() || shown > taken || planted::is_on(Bug::TimeLeftFromOwnClock) {
            return Known::No;
        }
        let ahead = shown.0.saturating_sub(most.0);
        let corrected = ClusterTime(taken.0 - ahead).max(least);
        if corrected != taken {
            self.taken = Some((corrected, now));
        }
        if least > self.time(now) {
            self.time = (least, now);
        }
        Known::Yes
    }
}

fn since((time, at): (ClusterTime, Tick), now: Tick) -> ClusterTime {
    time.after_millis(u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX))
}

impl Session {
    /// Does the session's own tasks that are due.
    pub(super) fn run_errands(&mut self, now: Tick, out: &mut Effects) {
        if self.cluster.next_errand() <= now {
            self.ask_for_configuration(now, out);
        }
        if self.cluster.configuration.is_some() {
            self.tend_leases(now, out);
            self.start_table_requests(now, out);
        }
    }

    /// An estimate of ClusterTime now; 0 before there is a client id. A read of a time to live waits for that.
    #[must_use]
    pub fn cluster_time(&self, now: Tick) -> ClusterTime {
        self.cluster.time_taken(now)
    }

    /// An estimate of the unix time now, by ClusterTime (R10.12). `None`: not everything is known that this takes; after [`Session::refresh`] it is
    /// what the coordinator knows.
    #[must_use]
    pub fn unix_time(&self, now: Tick) -> Option<UnixMillis> {
        let origin = self.cluster.unix_origin.filter(|_| self.cluster.knows_time())?;
        Some(UnixMillis(origin.0.saturating_add(self.cluster_time(now).0)))
    }

    /// The unix time of ClusterTime 0, if the session has heard it (R10.12): it never changes.
    #[must_use]
    pub fn unix_origin(&self) -> Option<UnixMillis> {
        self.cluster.unix_origin
    }

    /// The level of the cluster, as far as the session has heard (R7.6).
    #[must_use]
    pub fn level(&self) -> Level {
        self.cluster.level
    }

    /// When the next of the session's own tasks is due.
    pub(super) fn next_errand(&self) -> Tick {
        let ask = self.cluster.next_errand();
        if self.cluster.configuration.is_some() { ask.min(self.identities.next_errand()) } else { ask }
    }

    /// Completes with [`Completion::Refreshed`] when the configuration is as new as the coordinator's.
    pub fn refresh(&mut self, now: Tick, out: &mut Effects) -> CallId {
        let slot = self.insert(Kind::Refresh, now, None, |_| ());
        self.start(slot, now, out);
        self.calls.id(slot)
    }

    fn ask_for_configuration(&mut self, now: Tick, out: &mut Effects) {
        let cluster = &mut self.cluster;
        cluster.questions += 1;
        cluster.seek_at = None;
        let Some(configuration) = &cluster.configuration else {
            let seed = Endpoint::Seed((cluster.questions % self.options.seeds.count()) as u16);
            cluster.ask_at = now.after(RETRY);
            let question = message::GetConfiguration { have: ConfigVersion(0) };
            send_message(seed, &question, out);
            if let leader @ Endpoint::Member(_) = cluster.coordinator.leader() {
                send_message(leader, &question, out); // one that does not lead has named it
            }
            return;
        };
        // A node can tell while the coordinator is away; the coordinator can tell when the nodes do not know yet.
        let alive: Vec<_> = configuration.nodes.iter().filter(|node| node.alive && !node.cores.is_empty()).collect();
        let have = configuration.version;
        let others = alive.len() + self.options.seeds.count();
        let other = match cluster.questions % others {
            index if index < alive.len() => Endpoint::Core(CoreId { node: alive[index].node, core: 0 }),
            index => Endpoint::Seed((index - alive.len()) as u16),
        };
        send_message(other, &message::GetConfiguration { have }, out);
        let have = if cluster.wanted_from_coordinator { ConfigVersion(0) } else { have };
        send_message(cluster.coordinator.ask(now), &message::GetConfiguration { have }, out);
        (cluster.wanted, cluster.wanted_from_coordinator) = (false, false);
        cluster.ask_at = now.after(limits::REFRESH_INTERVAL);
    }

    /// The call waits until the coordinator has sent its configuration.
    pub(super) fn ask_coordinator(&mut self, slot: usize, now: Tick) {
        (self.cluster.wanted, self.cluster.wanted_from_coordinator) = (true, true);
        self.wait(slot, Stage::ForCoordinator, now.after(limits::ASK_COORDINATOR_INTERVAL));
    }

    pub(super) fn on_configuration(
        &mut self,
        told: message::ConfigurationIs,
        from_coordinator: bool,
        now: Tick,
        out: &mut Effects,
    ) -> Known {
        let message::ConfigurationIs { configuration, level, unix_origin } = told;
        if *self.cluster.id.get_or_insert(configuration.cluster) != configuration.cluster {
            return Known::No;
        }
        // Neither falls, nor changes: what is old says less.
        self.cluster.level = self.cluster.level.max(level);
        self.cluster.unix_origin = self.cluster.unix_origin.or(unix_origin.get().copied().flatten());
        let is_newer = self.cluster.configuration.as_ref().is_none_or(|have| have.version < configuration.version);
        if is_newer {
            self.stats.configurations += 1;
            let group = configuration.group.iter().map(|of| (of.member, of.address));
            self.cluster.coordinator.learn(configuration.coordinator, group, out);
            route_all(self.cluster.configuration.as_ref(), &configuration, out);
            if self.cluster.configuration.is_none() {
                self.cluster.wanted = self.cluster.wanted_from_coordinator;
            }
            let before = self.cluster.configuration.replace(configuration);
            self.forget_silence_of_others(before.as_ref());
        }
        for slot in self.calls.slots() {
            let Some(call) = self.calls.get(slot) else { continue };
            match call.stage {
                Stage::Backoff { for_configuration: true } if is_newer => self.start(slot, now, out),
                Stage::InFlight if is_newer => {
                    let is_same = |target: &Target| {
                        let shard = self.configuration().and_then(|have| have.shard(target.shard));
                        shard.is_some_and(|now| now.epoch == target.epoch && now.primary == target.primary.node)
                    };
                    if !call.participants.targets().all(is_same) {
                        self.start(slot, now, out);
                    } else if self.calls[slot].silent > 0 || self.calls[slot].is_doubted {
                        // The news were about other shards, and they answered the question that this call had asked.
                        self.cluster.want_configuration();
                    }
                }
                Stage::ForCoordinator => self.decide(slot, from_coordinator, now, out),
                Stage::Queued | Stage::Gathering | Stage::Backoff { .. } | Stage::InFlight => {}
            }
        }
        Known::Yes
    }

    /// A process that has ended, and what it has in common with its successor is only its number.
    fn forget_silence_of_others(&mut self, before: Option<&Configuration>) {
        let known = self.cluster.configuration.as_ref().expect("it has just come");
        self.silence.retain(|core| {
            let incarnation = |of: &Configuration| of.node(core.node).map(|node| node.incarnation);
            known.address_of(core).is_some() && before.and_then(incarnation) == incarnation(known)
        });
    }

    /// A call that waited for the coordinator's configuration goes on.
    fn decide(&mut self, slot: usize, from_coordinator: bool, now: Tick, out: &mut Effects) {
        match self.calls[slot].kind {
            Kind::Refresh if from_coordinator => self.end(slot, Completion::Refreshed),
            Kind::Update(UpdateCall { keys, .. }) | Kind::Read(ReadCall { keys, .. }) => {
                self.decide_table(slot, keys, from_coordinator, now, out);
            }
            Kind::Refresh | Kind::Table(_) | Kind::Status { .. } => {}
        }
    }

    fn decide_table(&mut self, slot: usize, keys: Keys, from_coordinator: bool, now: Tick, out: &mut Effects) {
        if !self.is_table_unknown(slot, keys) {
            self.start(slot, now, out);
        } else if from_coordinator {
            self.end_undone(slot, WhyNot::UnknownTable);
        }
    }
}

/// Tells the shell every new address of a node, and every node that has started again. For such a node the shell ends its pause
/// before it dials again.
fn route_all(old: Option<&Configuration>, new: &Configuration, out: &mut Effects) {
    for node in &new.nodes {
        let has_restarted =
            old.and_then(|old| old.node(node.node)).is_none_or(|old| old.incarnation != node.incarnation);
        for (index, &address) in node.cores.iter().enumerate() {
            let Ok(core) = u8::try_from(index) else { break };
            let core = CoreId { node: node.node, core };
            if has_restarted || old.and_then(|old| old.address_of(core)) != Some(address) {
                out.push(Effect::Route { to: Endpoint::Core(core), address });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Tick {
        Tick(0).after(Duration::from_secs(seconds))
    }

    #[test]
    fn what_the_coordinator_told_long_ago_sets_nobody_back() {
        let mut cluster = Cluster::new(None, seconds(0));
        cluster.heard_time((ClusterTime(1_000), Duration::ZERO), seconds(1));
        assert_eq!(cluster.time_taken(seconds(61)), ClusterTime(61_000));
        cluster.heard_time((ClusterTime(2_000), Duration::ZERO), seconds(61));
        assert_eq!(cluster.time_taken(seconds(61)), ClusterTime(61_000), "a frame that comes late");
        cluster.heard_time((ClusterTime(70_000), Duration::ZERO), seconds(61));
        assert_eq!(cluster.time_taken(seconds(62)), ClusterTime(71_000));
    }

    /// Found by a reading: after an outage that ends in another boot, a client that ran on by its own clock was ahead for ever, and its
    /// values lived longer by that.
    #[test]
    fn what_a_core_finds_wrong_is_corrected_both_ways() {
        let millis = |millis| Tick(0).after(Duration::from_millis(millis));
        let [shown, least, most] = [5_000, 4_000, 4_200].map(ClusterTime);
        let mut cluster = Cluster::new(None, millis(0));
        assert_eq!(cluster.correct_time(&TimeIs { shown, least, most }, millis(0)), Known::No);
        cluster.heard_time((ClusterTime(1_000), Duration::ZERO), millis(1_000));
        assert_eq!(cluster.correct_time(&TimeIs { shown, least, most }, millis(5_010)), Known::Yes);
        assert_eq!(cluster.time_taken(millis(5_010)), ClusterTime(4_210), "as much as it was ahead");
        assert_eq!(cluster.time(millis(5_010)), ClusterTime(5_010), "what ends a lease never goes back");
        assert_eq!(cluster.correct_time(&TimeIs { shown, least, most }, millis(5_020)), Known::No, "twice");
        let (shown, least, most) = (ClusterTime(4_215), ClusterTime(9_000), ClusterTime(9_001));
        assert_eq!(cluster.correct_time(&TimeIs { shown, least, most }, millis(5_020)), Known::Yes);
        assert_eq!(
            (cluster.time_taken(millis(5_021)), cluster.time(millis(5_021))),
            (ClusterTime(9_001), ClusterTime(9_001))
        );
    }
}
