//! The machine around the state: it decides commands, logs them, and tells others only what is committed.
//!
//! The next decision begins from what is decided ([`Ledger`]). Frames that are sent afterwards wait until that is committed, so
//! nothing that a crash could undo is ever sent (D3). Frames may be lost: cores repeat reports, clients repeat
//! requests, and a heartbeat that shows an old configuration is answered with the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_machine::{Askers, Disk, Effects, Endpoint, Gate, Input, Machine};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterId, ClusterTime, ConfigVersion, CoreId, LocalPosition, LogSlice, ShardId, Tick};
use kasha_wire::link::ToCoordinator;
use kasha_wire::message::{ConfigurationIs, GetConfiguration, LeaseQuery, OpenSession, RenewLease};
use kasha_wire::{Configuration, Kind, Message};

use crate::clients::ClientLeases;
use crate::evidence::{Evidence, Sight};
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
use crate::{Command, CoordinatorOptions, StartError, State};

/// The coordinator of one cluster.
#[derive(Debug)]
pub struct Coordinator {
    pub(crate) node_lease: Duration,
    pub(crate) patience: Duration,
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
    pub(crate) promotions: (u32, Tick),
    pub(crate) promotions_max: u32,
    pub(crate) clients: ClientLeases,
    pub(crate) clock: ClusterClock,
    pub(crate) links: BTreeMap<CoreId, Link>,
    /// The newest configuration that each core has said it obeys, and when it said so, by its own clock.
    pub(crate) said: BTreeMap<CoreId, (Tick, ConfigVersion)>,
    pub(crate) waiters: TableWaiters,
    /// Endpoints to which the configuration is sent at the end of this turn.
    pub(crate) push_to: BTreeSet<Endpoint>,
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
        let state = match &found.loaded {
            Some(loaded) => loaded.state.clone(),
            None => State::new(&options),
        };
        let memory = Memory::start(now, &state);
        let (mut clock, reservation) = ClusterClock::start(state.time_anchor, state.time_reserved, options.boot, now);
        let first = reconciled(&state, &options).into_iter().chain(reservation);
        let mut ledger = Ledger::start(found, state, out);
        first.for_each(|command| ledger.decide(command));
        ledger.begin_file(out);
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

    /// The shards of which a node has promised more than this coordinator knows.
    pub fn overtaken(&self) -> impl Iterator<Item = (ShardId, Overtaken)> + '_ {
        self.overtaken.iter().map(|(&shard, &overtaken)| (shard, overtaken))
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

    pub(crate) fn sight(&self, now: Tick) -> Sight<'_> {
        Sight { evidence: &self.evidence, leases: &self.leases, now }
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
