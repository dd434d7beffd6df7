//! Leases lapse (F1, section 7): while a primary's lease runs by its own clock, no other node becomes primary of a
//! shard that serves. A node gets no lease before it knows what it was deposed from.

use std::collections::BTreeMap;

use kasha_types::{ConfigVersion, Epoch, NodeId, ShardId, Tick};
use kasha_wire::message::{ConfigurationIs, Heartbeat, HeartbeatAnswer};
use kasha_wire::{Configuration, ShardPhase};

use crate::clock::{SimTime, millis};
use crate::configurations::{Configurations, Cores};
use crate::network::{Life, ProcessId};
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches heartbeats and configurations.
#[derive(Debug, Default)]
pub struct LeasesLapse {
    configurations: Configurations,
    cores: Cores,
    /// When each heartbeat was sent, and which configuration its core obeyed, by the core's own clock.
    beats: BTreeMap<(ProcessId, Tick), (SimTime, ConfigVersion)>,
    /// Until when a core may hold a lease, by its own clock.
    leased: BTreeMap<Life, SimTime>,
    /// The configuration since which a node is no longer primary of some shard.
    deposed: BTreeMap<NodeId, ConfigVersion>,
    seen: Option<std::rc::Rc<Configuration>>,
    /// The life of the primary's process to which each term was given: no other life may serve in it (R7.1).
    terms: BTreeMap<(ShardId, Epoch), u64>,
    violations: Vec<String>,
    granted: u64,
}

impl LeasesLapse {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores) -> Self {
        Self { configurations, cores, ..Self::default() }
    }

    fn on_granted(&mut self, to: Life, sent: Tick, lease_millis: u64) {
        let Some(&(at, have)) = self.beats.get(&(to.process, sent)) else { return };
        let Some(node) = self.cores.core(to.process).map(|core| core.node) else { return };
        self.granted += 1;
        let until = self.leased.entry(to).or_insert(at);
        *until = at.after(millis(lease_millis)).max(*until);
        if let Some(deposed) = self.deposed.get(&node).filter(|&&deposed| have < deposed) {
            self.violations.push(format!(
                "leases_lapse: {node} got a lease while it obeyed {have}, but {deposed} has deposed it (F1)"
            ));
        }
    }

    fn on_configuration(&mut self, now: SimTime, life_of: impl Fn(ProcessId) -> Option<u64>) {
        let Some(latest) = self.configurations.latest() else { return };
        for shard in &latest.shards {
            let starts = latest.node(shard.primary).map_or(0, |node| node.incarnation.starts());
            self.terms.entry((shard.shard, shard.epoch)).or_insert(u64::from(starts));
        }
        let Some(before) = self.seen.replace(latest.clone()).filter(|before| before.version < latest.version) else {
            return;
        };
        for (old, new) in before.shards.iter().zip(&latest.shards).filter(|(old, new)| old.epoch < new.epoch) {
            self.deposed.insert(old.primary, latest.version);
            let Some(process) = self.cores.host_of(&before, old.primary, old.shard) else { continue };
            let term_life = self.terms.get(&(old.shard, old.epoch)).copied();
            let Some(life) = life_of(process).filter(|&life| term_life == Some(life)) else { continue };
            let leased = self.leased.get(&Life { process, life });
            if let Some(until) = leased.filter(|&&until| until > now && old.phase == ShardPhase::Serving) {
                self.violations.push(format!(
                    "leases_lapse: {} is primary of {} {} since {now}, but the lease of {} runs until {until} (F1)",
                    new.primary, new.shard, new.epoch, old.primary
                ));
            }
        }
    }
}

impl Watch for LeasesLapse {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        if let Some(heartbeat) = sent.message::<Heartbeat>() {
            self.beats.insert((sent.from, heartbeat.sent), (view.now, heartbeat.have));
        }
        if let (Some(process), Some(HeartbeatAnswer { sent, lease_millis, .. })) = (sent.target, sent.message())
            && lease_millis > 0
        {
            let life = view.processes[process.0].life;
            self.on_granted(Life { process, life }, sent, lease_millis);
        }
        if sent.is::<ConfigurationIs>() {
            let life_of = |process: ProcessId| {
                let process = &view.processes[process.0];
                process.is_running().then_some(process.life)
            };
            self.on_configuration(view.now, life_of);
        }
    }

    /// The clock of the process may begin anew.
    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.beats.retain(|(of, _), _| *of != process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: leases", self.granted);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::three_cores;
    use crate::configurations::tests::{configuration, tell};

    const FIRST: Life = Life { process: ProcessId(1), life: 1 };

    fn watch() -> LeasesLapse {
        let mut watch = LeasesLapse::new(Configurations::default(), three_cores());
        tell(&watch.configurations, &configuration(1, 1, 1));
        watch.on_configuration(SimTime(0), |_| Some(1));
        watch.beats.insert((FIRST.process, Tick(7)), (SimTime(0), ConfigVersion(1)));
        watch.on_granted(FIRST, Tick(7), 10);
        watch
    }

    #[test]
    fn f1_another_primary_waits_for_the_lease() {
        for (now, life, violations) in [(9, 1, 1), (11, 1, 0), (9, 2, 0)] {
            let mut watch = watch();
            tell(&watch.configurations, &configuration(2, 2, 2));
            watch.on_configuration(SimTime(millis(now)), |_| Some(life));
            assert_eq!(watch.take_violations().len(), violations, "at {now} in life {life}");
        }
    }

    #[test]
    fn f1_who_does_not_know_that_it_is_deposed_gets_no_lease() {
        let mut watch = watch();
        tell(&watch.configurations, &configuration(2, 2, 2));
        watch.on_configuration(SimTime(millis(11)), |_| Some(1));
        watch.on_granted(FIRST, Tick(7), 10);
        assert_eq!(watch.take_violations().len(), 1);
        watch.beats.insert((FIRST.process, Tick(8)), (SimTime(0), ConfigVersion(2)));
        watch.on_granted(FIRST, Tick(8), 10);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }
}
