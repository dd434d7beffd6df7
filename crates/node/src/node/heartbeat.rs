//! What a core tells unasked: that it is alive, and news of the configuration.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_types::{ConfigVersion, ShardId, Tick};
use kasha_wire::Message;
use kasha_wire::message::{ConfigurationIs, Heartbeat, Knowledge, ShardKnowledge};

use crate::core::send::send;
use crate::core::told::Told;
use crate::node::Node;

impl Node {
    /// Tells the configuration, or, if the asker has it, the next one as soon as it is here.
    pub(crate) fn tell_configuration(&mut self, to: Endpoint, have: ConfigVersion, out: &mut Effects) {
        if let Some(configuration) = self.core.configuration.as_ref().filter(|known| known.version > have) {
            let configuration = (**configuration).clone();
            send(to, &ConfigurationIs { configuration, level: self.core.level }, Gate::Now, out);
        } else if let Endpoint::Conn(conn) = to {
            self.askers.wait(conn, have);
        }
    }

    /// Tells some of those who wait for it.
    pub(crate) fn tell_askers(&mut self, out: &mut Effects) {
        let Some(configuration) = self.core.configuration.as_ref().filter(|_| self.askers.is_telling()) else { return };
        let version = configuration.version;
        let mark = out.mark();
        ConfigurationIs { configuration: (**configuration).clone(), level: self.core.level }.encode(out.arena());
        let head = out.span_from(mark);
        for conn in self.askers.take(version, head.len as usize) {
            out.push(Effect::Send { to: Endpoint::Conn(conn), head, tail: None, gate: Gate::Now });
        }
    }

    /// Tells the coordinator that we are alive, and what it should know.
    pub(crate) fn heartbeat(&mut self, now: Tick, out: &mut Effects) {
        // A disk that hangs, and does not fail, stops every answer of ours: others must take over.
        if self.core.disk_hangs(now, self.core.options.patience) {
            self.next_heartbeat = now.after(self.core.options.heartbeat);
            return;
        }
        self.links.look(&self.core, now, &self.replicas, out);
        let mut reports = self.links.reports().to_vec();
        self.witnesses.reports(&self.core, &mut reports);
        for replica in self.replicas.values() {
            reports.extend(replica.passed_report());
            if let Some(primary) = replica.role.primary() {
                primary.reports(replica.shard(), &mut reports);
            }
        }
        let news = reports.iter().any(|report| !self.reported.contains(report));
        if now < self.next_heartbeat && !news {
            return;
        }
        self.next_heartbeat = now.after(self.core.options.heartbeat);
        let options = &self.core.options;
        let heartbeat = Heartbeat {
            core: options.core,
            incarnation: options.incarnation,
            boot: options.boot,
            sent: now,
            answered: self.answered,
            have: self.core.configuration.as_ref().map_or(ConfigVersion(0), |known| known.version),
            cluster_time: self.core.cluster_time,
            addresses: options.addresses.clone(),
            heard: self.links.heard(&self.core, now),
            reports: reports.clone(),
            knows: self.knowledge(),
            control: options.control,
            levels: options.levels,
        };
        self.reported = reports;
        // Nobody makes us a witness before our first file says that we never were one.
        let gate = if self.core.configuration.is_none() { self.core.durable_gate() } else { Gate::Now };
        for member in self.core.coordinator.all() {
            send(member, &heartbeat, gate, out);
        }
    }
}

impl Node {
    /// What the folder of this core knows.
    pub(crate) fn knowledge(&self) -> Knowledge {
        let &Told { configuration, clients_below, .. } = &self.core.told;
        let mut shards: Vec<ShardKnowledge> = (self.replicas.values())
            .filter(|replica| replica.copy.exists)
            .map(|replica| ShardKnowledge {
                shard: replica.shard(),
                promised: replica.copy.meta.promised,
                list: self.witnesses.newest_list(replica.shard()),
                set: replica.copy.meta.set,
            })
            .collect();
        let is_named = |shard: ShardId| self.replicas.get(&shard).is_some_and(|replica| replica.copy.exists);
        shards.extend(self.witnesses.newest_lists().filter(|&(shard, _)| !is_named(shard)).map(|(shard, list)| {
            ShardKnowledge { shard, list, promised: Default::default(), set: Default::default() }
        }));
        Knowledge { configuration, clients_below, shards }
    }
}
