//! The machine around the state: it decides commands, logs them, and tells others only what is committed.
//!
//! The next decision begins from what is decided ([`Ledger`]). Frames that are sent afterwards wait until that is committed, so
//! nothing that a crash could undo is ever sent (D3). Frames may be lost: cores repeat reports, clients repeat
//! requests, and a heartbeat that shows an old configuration is answered with the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_machine::{Askers, Disk, Effects, Endpoint, Gate, Input, Machine};
use kasha_types::limits::{CORES_MAX, NODES_MAX};
use kasha_types::probe::{Probe, hit};
use kasha_types::{
    ClusterId, ClusterTime, ConfigVersion, CoreId, Epoch, Incarnation, ListVersion, LocalPosition, LogSlice, NodeId,
    ShardId, Tick,
};
use kasha_wire::link::ToCoordinator;
use kasha_wire::message::{
    ConfigurationIs, GetConfiguration, Heartbeat, HeartbeatAnswer, LeaseQuery, OpenSession, RenewLease, Report,
};
use kasha_wire::{Configuration, Kind, MemberState, Message, ShardConfig, ShardPhase};

use crate::clients::ClientLeases;
use crate::evidence::{Evidence, Lack, Sight};
use crate::goodbye::Goodbye;
use crate::hearing::Link;
use crate::leases::{Assume, NodeLeases};
use crate::ledger::Ledger;
use crate::memory::{Loss, Memory};
use crate::outbox::{Out, Outbox};
use crate::overtaken::Overtaken;
use crate::storage;
use crate::tables::TableWaiters;
use crate::time::ClusterClock;
use crate::{Command, CoordinatorOptions, StartError, State, placement, repair};

/// The coordinator of one cluster.
#[derive(Debug)]
pub struct Coordinator {
    pub(crate) node_lease: Duration,
    patience: Duration,
    trusts_connections: bool,
    /// When the longer leases of an earlier process are over, and our own bound, in milliseconds.
    lower_lease_bound: Option<(Tick, u64)>,
    pub(crate) ledger: Ledger,
    pub(crate) memory: Memory,
    pub(crate) leases: NodeLeases,
    pub(crate) evidence: Evidence,
    /// Shards of which a node has promised what this process knows nothing of (K0430).
    pub(crate) overtaken: BTreeMap<ShardId, Overtaken>,
    /// The number of new terms in this lease period, and when the period began.
    promotions: (u32, Tick),
    promotions_max: u32,
    pub(crate) clients: ClientLeases,
    pub(crate) clock: ClusterClock,
    pub(crate) links: BTreeMap<CoreId, Link>,
    /// The newest configuration that each core has said it obeys, and when it said so, by its own clock.
    pub(crate) said: BTreeMap<CoreId, (Tick, ConfigVersion)>,
    pub(crate) waiters: TableWaiters,
    /// Endpoints to which the configuration is sent at the end of this turn.
    push_to: BTreeSet<Endpoint>,
    /// Clients that wait for the next configuration.
    askers: Askers,
    pushed: ConfigVersion,
    /// The state changed since the last repair.
    pub(crate) changed: bool,
    last_step: Tick,
    next_tick: Tick,
    pub(crate) outbox: Outbox,
}

impl Coordinator {
    /// What the files of a coordinator hold; `None`: the cluster is not made yet.
    ///
    /// # Errors
    /// If the files cannot be read, are damaged, or are another cluster's.
    pub fn stored(disk: &dyn Disk, cluster: ClusterId) -> Result<Option<State>, StartError> {
        Ok(storage::load(disk, cluster)?.loaded.map(|loaded| loaded.state))
    }

    /// Starts from what `disk` holds, or creates the cluster.
    ///
    /// # Errors
    /// If the options are impossible, or the stored log is another cluster's, another version's or damaged.
    pub fn start(
        options: CoordinatorOptions,
        disk: &dyn Disk,
        now: Tick,
        out: &mut Effects,
    ) -> Result<Self, StartError> {
        let found = storage::load(disk, options.cluster)?;
        let options = match &found.loaded {
            Some(loaded) => options.of_cluster(&loaded.state)?,
            None => options,
        };
        options.check()?;
        let memory = Memory::start(now, found.loaded.as_ref().map(|loaded| &loaded.state));
        let state = match &found.loaded {
            Some(loaded) => loaded.state.clone(),
            None => State::new(&options),
        };
        let (mut clock, reservation) = ClusterClock::start(state.time_anchor, state.time_reserved, options.boot, now);
        let first = reconciled(&state, &options).into_iter().chain(reservation).collect();
        let ledger = Ledger::start(found, state, first, out);
        let state = ledger.decided();
        let cluster_time = clock.now(now, state.time_reserved);
        let clients = ClientLeases::start(state.clients_below, cluster_time, options.client_lease_millis);
        let mut leases = NodeLeases::new(&options, now);
        // Section 7: an earlier process may have granted a lease a moment ago, and for longer than we do (F1).
        let granted = Duration::from_millis(state.lease_bound_millis);
        let own_bound = options.lease_bound_millis();
        for info in &state.configuration.nodes {
            let assume = if info.alive { Assume::Leased(granted) } else { Assume::Lost };
            leases.register(now, info.node, info.cores.len(), assume);
        }
        let waiters = TableWaiters::new(state.configuration.version);
        Ok(Self {
            node_lease: options.node_lease,
            patience: options.patience,
            trusts_connections: options.trusts_connections,
            lower_lease_bound: (own_bound < state.lease_bound_millis).then(|| (now.after(granted), own_bound)),
            pushed: state.configuration.version,
            ledger,
            memory,
            leases,
            evidence: Evidence::new(options.node_lease),
            overtaken: BTreeMap::new(),
            promotions: (0, now),
            promotions_max: options.promotions_max,
            clients,
            clock,
            links: BTreeMap::new(),
            said: BTreeMap::new(),
            waiters,
            push_to: BTreeSet::new(),
            askers: Askers::default(),
            changed: true,
            last_step: now,
            next_tick: now,
            outbox: Outbox::default(),
        })
    }

    /// The committed configuration.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        self.state().configuration()
    }

    /// The committed state.
    #[must_use]
    pub fn state(&self) -> &State {
        self.ledger.committed()
    }

    /// The state with what is decided and not committed yet: what the next decision begins from.
    #[must_use]
    pub fn decided(&self) -> &State {
        self.ledger.decided()
    }

    /// What this coordinator has forgotten, if anything: then it decides nothing (R9.13).
    #[must_use]
    pub fn memory_loss(&self) -> Option<Loss> {
        self.memory.loss()
    }

    /// Decides a command: everything that is sent from now on waits until it is committed.
    pub(crate) fn decide(&mut self, command: Command) {
        self.ledger.decide(command);
        self.changed = true;
    }

    /// Our own file holds everything up to here. In one process that commits it.
    fn on_durable(&mut self, position: LocalPosition, out: &mut Effects) {
        self.ledger.on_durable(position, out);
        self.ledger.commit(position);
        self.outbox.on_committed(&self.ledger, &mut Out::new(out));
    }

    /// The present ClusterTime, to tell others. It is reserved before, so that a slow disk does not make it stand still: what
    /// tells it waits for that (R4.7).
    pub(crate) fn cluster_time(&mut self, now: Tick) -> ClusterTime {
        if let Some(command) = self.clock.reservation_due(now, self.decided().time_reserved) {
            self.decide(command);
        }
        self.clock.now(now, self.decided().time_reserved)
    }

    /// Sends a message that may follow from all that is decided.
    pub(crate) fn send(&mut self, to: Endpoint, message: &impl Message, out: &mut Out<'_>) {
        let frame = out.encode(message);
        self.outbox.send(to, frame, self.ledger.all_decided(), out);
    }

    pub(crate) fn say_goodbye(&mut self, to: Endpoint, why: Goodbye, out: &mut Out<'_>) {
        self.on_closed(to);
        self.outbox.part(to, why.reason(), why.basis(&self.ledger), out);
    }

    fn on_closed(&mut self, end: Endpoint) {
        self.links.retain(|_, link| link.end != end);
        self.push_to.remove(&end);
        if let Endpoint::Conn(conn) = end {
            self.askers.forget(conn);
        }
        self.waiters.closed(end);
        self.memory.on_closed(end);
        self.outbox.on_closed(end);
    }

    fn on_frame(&mut self, now: Tick, from: Endpoint, kind: u8, payload: &[u8], out: &mut Out<'_>) {
        if self.outbox.is_parting(from) {
            return;
        }
        if kind != Kind::Message as u8 {
            return self.say_goodbye(from, Goodbye::Kind(kind), out);
        }
        match Message::decode(payload) {
            Ok(message) if self.may_hear(&message) => self.on_message(now, from, message, out),
            Ok(message) => self.on_message_unled(now, from, message, out),
            Err(error) => self.say_goodbye(from, Goodbye::Payload(error), out),
        }
    }

    fn on_message(&mut self, now: Tick, from: Endpoint, message: ToCoordinator, out: &mut Out<'_>) {
        match message {
            ToCoordinator::Heartbeat(heartbeat) => {
                if self.memory.hear(from, &heartbeat, self.ledger.decided()) {
                    self.on_heartbeat(now, from, &heartbeat, out);
                }
            }
            ToCoordinator::GetConfiguration(GetConfiguration { have }) => self.on_get_configuration(from, have),
            ToCoordinator::OpenSession(OpenSession { nonce }) => self.on_open_session(now, from, nonce, out),
            ToCoordinator::RenewLease(RenewLease { client }) => self.on_renew_lease(now, from, client, out),
            ToCoordinator::LeaseQuery(LeaseQuery { clients }) => self.on_lease_query(now, from, &clients, out),
            ToCoordinator::TableRequest(request) => self.on_table_request(now, from, request, out),
            ToCoordinator::GiveUp(question) => {
                let answer = self.on_give_up(now, &question);
                self.send(from, &answer, out);
            }
            ToCoordinator::Handshake(_) => {}
        }
    }

    pub(crate) fn on_get_configuration(&mut self, from: Endpoint, have: ConfigVersion) {
        if have < self.decided().configuration.version {
            self.push_to.insert(from);
        } else if let Endpoint::Conn(conn) = from {
            self.askers.wait(conn, have);
        }
    }

    pub(crate) fn on_heartbeat(&mut self, now: Tick, from: Endpoint, heartbeat: &Heartbeat, out: &mut Out<'_>) {
        let node = heartbeat.core.node;
        if let Err(why) = self.admit(now, heartbeat) {
            return self.say_goodbye(from, why, out);
        }
        let is_deaf = self.note_heard(now, from, heartbeat);
        if !is_deaf && self.leases.has_returned(now, node) {
            self.decide(seen(heartbeat));
            hit(Probe::TakenBack);
            self.leases.take_back(now, node);
        }
        if let Some(command) = self.clock.observe(now, heartbeat.cluster_time, self.decided().time_reserved) {
            self.decide(command);
        }
        for report in &heartbeat.reports {
            self.on_report(now, node, heartbeat.have, report);
        }
        self.changed |= self.has_waited_for(now, node);
        // Before a lease is granted: a new process's shards get new primaries at once, and the grant must know that
        // (F1).
        self.repair(now);
        let index = self.decided().node_index(node).expect("admitted");
        let knows_its_place = heartbeat.have >= self.decided().nodes[index].deposed;
        let may_lease = knows_its_place && !is_deaf && !self.is_moving_from(node);
        let lease_millis = if may_lease { self.leases.grant(now, heartbeat.core) } else { 0 };
        let answer = HeartbeatAnswer {
            sent: heartbeat.sent,
            lease_millis,
            cluster_time: self.cluster_time(now),
            clients_below: self.decided().clients_below,
        };
        self.send(from, &answer, out);
        if heartbeat.have < self.decided().configuration.version {
            self.push_to.insert(from);
        }
    }

    /// Whether this node speaks, and some shard waited for that to make a change.
    fn has_waited_for(&self, now: Tick, node: NodeId) -> bool {
        (self.decided().configuration.shards.iter())
            .filter(|shard| shard.primary == node && !self.is_overtaken(shard.shard))
            .any(|shard| repair::next_command(self.decided(), self.sight(now), shard).is_some())
    }

    pub(crate) fn sight(&self, now: Tick) -> Sight<'_> {
        Sight { evidence: &self.evidence, leases: &self.leases, now }
    }

    /// Whether a shard is to be moved away from this node. Its leases must lapse for that (F1).
    fn is_moving_from(&self, node: NodeId) -> bool {
        self.evidence.moving().any(|(shard, epoch)| {
            let config = self.decided().configuration.shard(shard).expect("only placed shards move");
            config.epoch == epoch && config.primary == node
        })
    }

    /// Whether this process may speak for its node. Registers a new process.
    fn admit(&mut self, now: Tick, heartbeat: &Heartbeat) -> Result<(), Goodbye> {
        let CoreId { node, core } = heartbeat.core;
        let cores = heartbeat.addresses.len();
        if node == NodeId(0) || cores > usize::from(CORES_MAX) || usize::from(core) >= cores {
            return Err(Goodbye::Heartbeat(node));
        }
        let Some(index) = self.decided().node_index(node) else {
            if self.decided().nodes.len() >= NODES_MAX {
                return Err(Goodbye::TooManyNodes(node));
            }
            self.on_new_process(now, heartbeat);
            return Ok(());
        };
        let known = &self.decided().configuration.nodes[index];
        if identity(known.incarnation) != identity(heartbeat.incarnation) {
            return Err(Goodbye::IdTaken(node));
        }
        match heartbeat.incarnation.cmp(&known.incarnation) {
            std::cmp::Ordering::Less => Err(Goodbye::Outdated(node, known.incarnation)),
            std::cmp::Ordering::Greater => {
                self.on_new_process(now, heartbeat);
                Ok(())
            }
            std::cmp::Ordering::Equal if self.is_of_older_copy(index, heartbeat) => Err(Goodbye::OlderCopy(node)),
            std::cmp::Ordering::Equal if known.cores != heartbeat.addresses => Err(Goodbye::Addresses(node)),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }

    fn on_new_process(&mut self, now: Tick, heartbeat: &Heartbeat) {
        let node = heartbeat.core.node;
        self.links.retain(|core, _| core.node != node);
        self.said.retain(|core, _| core.node != node);
        self.leases.register(now, node, heartbeat.addresses.len(), Assume::Fresh);
        self.evidence.forget(node);
        self.decide(seen(heartbeat));
    }

    /// Handles a report. A stale or repeated report changes nothing.
    fn on_report(&mut self, now: Tick, from: NodeId, have: ConfigVersion, report: &Report) {
        // A primary that complains about a time when we were cut off may have been cut off too, and needs a lease
        // (R7.8).
        let complains = matches!(report, Report::Unanswered { .. } | Report::Stuck { .. });
        if complains && self.leases.was_cut_off(now, self.patience + self.node_lease) {
            return hit(Probe::ComplaintVoid);
        }
        let sight = self.sight(now);
        let command = match *report {
            Report::Recovered { shard, epoch } => {
                self.led_by(from, shard, epoch).and_then(|config| recovered(self.decided(), sight, config))
            }
            Report::Copied { shard, epoch, node } => {
                let joins = |config: &ShardConfig| {
                    config.member(node).is_some_and(|member| member.state == MemberState::Joining)
                        && have >= config.members_since
                };
                let joins = self.led_by(from, shard, epoch).is_some_and(joins);
                if joins {
                    self.evidence.answers(now, shard, node);
                }
                joins.then_some(Command::Copied { shard, epoch, node })
            }
            Report::ListClosed { shard, epoch, list } => {
                let config = self.led_by(from, shard, epoch).filter(|config| config.closing && config.list == list);
                config.map(|config| {
                    let witnesses = placement::choose_witnesses(self.decided(), sight, config);
                    Command::OpenList { shard, list: list.next(), witnesses }
                })
            }
            Report::Stuck { shard, epoch } => (self.led_by(from, shard, epoch))
                .filter(|config| config.phase == ShardPhase::Recovering && !self.is_overtaken(shard))
                .and_then(|config| repair::promote_next(self.decided(), sight, config))
                .filter(|_| self.evidence.may_try_another(now, shard))
                .inspect(|_| hit(Probe::StuckRecovery)),
            Report::Unanswered { shard, epoch, node } => return self.on_unanswered(now, from, (shard, epoch), node),
            Report::WitnessLost { shard, list } => self.witness_lost(from, shard, list),
            Report::Stopping { shard, epoch, list } => {
                let serves = |config: &&ShardConfig| config.phase == ShardPhase::Serving && config.list == list;
                let empties = self.led_by(from, shard, epoch).filter(serves).is_some();
                self.evidence.stops(from);
                empties.then(|| Command::EmptyList { shard, list: list.next() })
            }
            Report::NeedsWitness { shard, epoch, ref unheard_members, ref unheard_witnesses } => {
                let (unheard_members, unheard_witnesses) = (unheard_members.clone(), unheard_witnesses.clone());
                return self.note_lack(now, from, (shard, epoch), Lack::Witness { unheard_members, unheard_witnesses });
            }
            Report::PromisedBefore { shard, epoch, promised } => {
                return self.note_promised_before(from, (shard, epoch), promised);
            }
            Report::NeedsMembers { shard, epoch, ref unheard, has_copy } => {
                return self.note_lack(now, from, (shard, epoch), Lack::Members { unheard: unheard.clone(), has_copy });
            }
        };
        if let Some(command) = command {
            self.decide(command);
        }
    }

    /// The shard, if this node is its primary in this term.
    pub(crate) fn led_by(&self, node: NodeId, shard: ShardId, epoch: Epoch) -> Option<&ShardConfig> {
        let config = self.decided().configuration.shard(shard)?;
        let leads = config.epoch == epoch && config.primary == node && !repair::needs_fail_over(self.decided(), config);
        leads.then_some(config)
    }

    /// A witness lost what it held. While the primary lives a new list begins (R6.2); a recovery uses the other
    /// witnesses.
    fn witness_lost(&self, from: NodeId, shard: ShardId, list: ListVersion) -> Option<Command> {
        let config = self.decided().configuration.shard(shard)?;
        let is_in_use = config.phase == ShardPhase::Serving && !config.closing && config.list == list;
        (is_in_use && config.witnesses.contains(&from)).then_some(Command::CloseList { shard, list })
    }

    /// A member or witness does not answer its primary: it is replaced or left out, or the primary itself is replaced.
    fn on_unanswered(&mut self, now: Tick, from: NodeId, (shard, epoch): (ShardId, Epoch), node: NodeId) {
        let concerns = |config: &&ShardConfig| config.member(node).is_some() || config.witnesses.contains(&node);
        if node == from || self.led_by(from, shard, epoch).filter(concerns).is_none() {
            return;
        }
        hit(Probe::MemberAvoided);
        self.changed |= self.evidence.avoid(now, shard, from, node);
        let config = self.decided().configuration.shard(shard).expect("looked up");
        let sight = self.sight(now);
        // Without a node in its place the set would lose a copy that may be better connected than the primary.
        if config.member(node).is_some()
            && !repair::is_replaceable(self.decided(), sight, config, node)
            && repair::promote_better_connected(self.decided(), sight, config).is_some()
        {
            self.evidence.set_moving(shard, epoch);
        }
        self.repair(now);
    }

    /// Gives shards with a badly connected primary another one, when no core of the primary can hold a lease (F1).
    fn move_primaries(&mut self, now: Tick) {
        let moving: Vec<(ShardId, Epoch)> = self.evidence.moving().collect();
        for (shard, epoch) in moving {
            let config = self.decided().configuration.shard(shard).expect("only placed shards move");
            if config.epoch == epoch && !repair::needs_fail_over(self.decided(), config) && !self.is_overtaken(shard) {
                if config.phase == ShardPhase::Serving && self.leases.may_hold_lease(now, config.primary) {
                    continue;
                }
                let command = repair::promote_better_connected(self.decided(), self.sight(now), config);
                if let Some(command) = command {
                    hit(Probe::PrimaryMoved);
                    self.assert_may_promote(now, &command);
                    self.decide(command);
                }
            }
            self.evidence.stop_moving(shard);
        }
    }

    /// Commits what the shards need now.
    fn repair(&mut self, now: Tick) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        if self.decided().configuration.shards.is_empty() {
            let nodes: Vec<NodeId> = self.decided().alive_nodes().collect();
            if nodes.len() < usize::from(self.decided().nodes_wanted()) {
                return;
            }
            let faults = self.decided().configuration.faults;
            let shards = placement::first_placement(&nodes, self.decided().shards_wanted, faults);
            self.decide(Command::Place { shards });
        }
        for index in 0..self.decided().configuration.shards.len() {
            /// One change can cause at most one fail-over, one change of members and one change of the list.
            const COMMANDS_MAX: usize = 4;
            if self.is_overtaken(self.decided().configuration.shards[index].shard) {
                continue;
            }
            let mut commands = 0;
            while let Some(command) =
                repair::next_command(self.decided(), self.sight(now), &self.decided().configuration.shards[index])
            {
                if matches!(command, Command::Promote { .. }) && !self.may_promote_more() {
                    hit(Probe::PromotionsCapped);
                    break; // later ticks go on: recoveries must not starve the rest (pitfall 9)
                }
                self.assert_may_promote(now, &command);
                commands += 1;
                assert!(commands <= COMMANDS_MAX, "a repair does not end: {command:?}");
                self.decide(command);
            }
        }
        self.changed = false;
    }

    fn may_promote_more(&mut self) -> bool {
        self.promotions.0 += 1;
        self.promotions.0 <= self.promotions_max
    }

    /// F1: no core of the old primary's process can hold a lease; or the old primary has not served in its term.
    fn assert_may_promote(&self, now: Tick, command: &Command) {
        if let Command::Promote { shard, .. } = command {
            let config = self.decided().configuration.shard(*shard).expect("placed");
            if config.phase == ShardPhase::Recovering {
                return; // whoever served before it was deposed then
            }
            let old = config.primary;
            let incarnation = self.decided().shards[usize::from(shard.0)].primary_incarnation;
            let is_dead = self.decided().incarnation(old) != Some(incarnation);
            assert!(is_dead || !self.leases.may_hold_lease(now, old), "F1: {old} may hold a lease for {shard}");
        }
    }

    /// A stall of our own looks like a silence of all nodes (pitfall 9).
    fn notice_stall(&mut self, now: Tick) {
        if now.since(self.last_step) > self.node_lease / 2 {
            hit(Probe::OwnStall);
            self.leases.extend_all(now);
        }
        self.last_step = self.last_step.max(now);
    }

    fn judge(&mut self, now: Tick) {
        let is_connected = |node| self.trusts_connections && self.links.keys().any(|core| core.node == node);
        let is_vouched_for = |node| self.evidence.is_vouched_for(now, node) || is_connected(node);
        for node in self.leases.judge(now, is_vouched_for) {
            self.decide(Command::NodeLost { node });
        }
    }

    fn on_tick(&mut self, now: Tick) {
        self.next_tick = now.after(self.node_lease / 8);
        self.judge(now);
        self.move_primaries(now);
        if let Some((_, millis)) = self.lower_lease_bound.take_if(|(at, _)| now >= *at) {
            self.decide(Command::BoundLeases { millis });
        }
        self.changed |= self.evidence.expire(now);
        if now.since(self.promotions.1) >= self.node_lease {
            self.changed |= self.promotions.0 > self.promotions_max;
            self.promotions = (0, now);
        }
        let cluster_time = self.cluster_time(now);
        self.clients.sweep(cluster_time);
    }

    fn push_configuration(&mut self, out: &mut Out<'_>) {
        let version = self.decided().configuration.version;
        if version > self.pushed {
            self.pushed = version;
            self.push_to.extend(self.links.values().map(|link| link.end));
            self.askers.announce();
        }
        if self.push_to.is_empty() && !self.askers.is_telling() {
            return;
        }
        let frame = out.encode(&ConfigurationIs { configuration: self.decided().configuration.clone() });
        let askers = self.askers.take(version, frame.len()).into_iter().map(Endpoint::Conn);
        for to in std::mem::take(&mut self.push_to).into_iter().chain(askers) {
            self.outbox.send(to, frame, self.ledger.all_decided(), out);
        }
    }
}

/// The command that records what a heartbeat says about its node.
fn seen(heartbeat: &Heartbeat) -> Command {
    Command::NodeSeen {
        node: heartbeat.core.node,
        incarnation: heartbeat.incarnation,
        boot: heartbeat.boot,
        addresses: heartbeat.addresses.clone(),
    }
}

/// The identity of the data folder: the low half of an incarnation. The high half counts the starts.
fn identity(incarnation: Incarnation) -> u32 {
    (incarnation.0 & u64::from(u32::MAX)) as u32
}

/// Section 7, step 5. A shard that never served keeps its first list if that is still good: no client has used it.
fn recovered(state: &State, sight: Sight<'_>, config: &ShardConfig) -> Option<Command> {
    match config.phase {
        ShardPhase::Serving => None,
        ShardPhase::Recovering => {
            let unused = config.epoch.0 == 1 && !repair::list_must_change(state, sight, config);
            let (list, witnesses) = if unused {
                (config.list, config.witnesses.clone())
            } else {
                (config.list.next(), placement::choose_witnesses(state, sight, config))
            };
            Some(Command::Recovered { shard: config.shard, epoch: config.epoch, list, witnesses })
        }
    }
}

/// The commands that change options which may change.
fn reconciled(state: &State, options: &CoordinatorOptions) -> Vec<Command> {
    let config = &state.configuration;
    let mut commands = Vec::new();
    let (address, min_backups, nodes) = (options.address, options.min_backups, options.nodes);
    if (config.coordinator, config.min_backups, config.nodes_wanted) != (address, min_backups, nodes) {
        commands.push(Command::Configure { address, min_backups, nodes });
    }
    // A higher bound is committed before a lease is granted under it; a lower one when older leases are over (F1).
    let millis = options.lease_bound_millis();
    if millis > state.lease_bound_millis {
        commands.push(Command::BoundLeases { millis });
    }
    commands
}

impl Machine for Coordinator {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        self.notice_stall(now);
        match input {
            Input::Frame { from, kind, payload } => self.on_frame(now, from, kind, payload, &mut Out::new(out)),
            Input::Closed(conn) => self.on_closed(Endpoint::Conn(conn)),
            Input::Unreachable(end) => self.on_closed(end),
            Input::Durable(position) => self.on_durable(position, out),
            Input::LogsFlushed | Input::Tick => {}
            Input::Line { .. } | Input::LinesEnd { .. } => unreachable!("a coordinator listens for frames"),
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.notice_stall(now);
        self.listen(now, &mut Out::new(out));
        if !self.memory.may_lead() {
            self.next_tick = now.after(self.node_lease / 8);
            return self.ledger.flush(out);
        }
        // This comes after the inputs of the turn, so that a heartbeat that is already here counts.
        if now >= self.next_tick {
            self.on_tick(now);
        } else if self.leases.any_lapsed(now) {
            self.judge(now); // the heartbeat that proves it may come long before the tick
        }
        self.repair(now);
        let telling = &mut Out::new(out);
        self.answer_table_requests(telling);
        self.push_configuration(telling);
        self.ledger.flush(out);
    }

    fn next_deadline(&self) -> Option<Tick> {
        Some(if self.askers.is_telling() { self.last_step } else { self.next_tick })
    }

    fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::Now => true,
            Gate::Durable(position) | Gate::DurableAs { position, .. } => self.ledger.is_committed(position),
            Gate::Synced { .. } | Gate::Flushed { .. } | Gate::Confirmed { .. } => {
                unreachable!("the coordinator has no shard")
            }
        }
    }

    fn log_bytes(&self, _slice: LogSlice) -> &[u8] {
        unreachable!("the coordinator names no log bytes")
    }

    fn assert_invariants(&self) {
        self.ledger.assert_invariants();
        assert!(self.clients.next() <= self.decided().clients_below, "R4.7: granted ids are reserved");
    }
}
