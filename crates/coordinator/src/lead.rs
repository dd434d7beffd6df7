//! The lead: everything that a coordinator has only while it leads, and the steps of a leader's turn.
//!
//! A lead begins in one way ([`Lead::begin`]): from the log, with nothing that an earlier leader had in memory. A member
//! that loses the lead drops all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_machine::{Askers, Endpoint};
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, ConfigVersion, CoreId, MemberId, ShardId, Tick, UnixMillis};
use kasha_viewstamped::RoundNumber;
use kasha_wire::Later;
use kasha_wire::message::{ConfigurationIs, Heartbeat};

use crate::evidence::Sight;
use crate::goodbye::Goodbye;
use crate::leases::{Assume, NodeLeases, Vouches};
use crate::limits::{OVERHEARD_LEASES, WALL_LEAST};
use crate::member::Member;
use crate::membership::nodes_cut_off_with_us;
use crate::memory::Memory;
use crate::outbox::Out;
use crate::overtaken::Overtaken;
use crate::remembered::{Recalled, Told};
use crate::tables::TableWaiters;
use crate::time::{ClusterClock, Found};
use crate::{Command, CoordinatorOptions, State};

/// The lead of a member.
#[derive(Debug)]
pub(crate) struct Lead {
    pub(crate) memory: Memory,
    pub(crate) leases: NodeLeases,
    /// When the longer leases of an earlier lead are over, and our own bound, in milliseconds.
    lower_lease_bound: Option<(Tick, u64)>,
    /// Cores whose heartbeats name no answer of ours that is younger than a lease: where they are, and since when.
    pub(crate) unanswered: BTreeMap<CoreId, (Endpoint, Tick)>,
    /// Shards of which a node has promised what we know nothing of (K0430).
    pub(crate) overtaken: BTreeMap<ShardId, Overtaken>,
    /// When it began.
    pub(crate) since: Tick,
    /// Members, and those that were invited, that say nothing, and since when this leader knows that.
    pub(crate) silent: BTreeMap<MemberId, Tick>,
    /// Since when another member hears more nodes than this leader does (R9.15).
    pub(crate) hears_less_since: Option<Tick>,
    /// Whether it has let others judge a silence for that.
    pub(crate) has_let_others_judge: bool,
    /// Which other member was asked last to lead, and when.
    pub(crate) handed_over: Option<(MemberId, Tick)>,
    /// The round that confirms that this member led when it was told of more than it knows.
    pub(crate) loss_round: Option<RoundNumber>,
    /// The number of new terms in this lease period, and when the period began.
    pub(crate) promotions: (u32, Tick),
    pub(crate) clock: ClusterClock,
    pub(crate) waiters: TableWaiters,
    /// Endpoints to which the configuration is sent at the end of this turn.
    pub(crate) push_to: BTreeSet<Endpoint>,
    /// Clients that wait for the next configuration.
    askers: Askers,
    pushed: ConfigVersion,
    /// The state changed since the last repair.
    pub(crate) changed: bool,
    next_tick: Tick,
    /// When the clock on the wall is read next.
    reads_wall_at: Tick,
    /// By how many milliseconds that clock was ahead of ClusterTime when it was read last.
    pub(crate) wall_ahead: i64,
}

impl Lead {
    /// Begins to lead from what the member's log holds. What leading needs at once is decided here.
    pub(crate) fn begin(member: &mut Member, now: Tick, recalled: Recalled) -> Self {
        member.follow_timing();
        let Member { options, ledger, overheard, .. } = member;
        let state = ledger.decided();
        let mut overheard = overheard.clone();
        if planted::is_on(Bug::EvidenceForgotten) {
            overheard.clear();
        }
        // What was heard long ago says what a folder knew then, and not that its node was heard.
        let young = options.node_lease * OVERHEARD_LEASES;
        let is_recent = |(at, heartbeat): &(Tick, Heartbeat)| {
            let known = state.configuration.node(heartbeat.core.node).map(|info| info.incarnation);
            now.since(*at) <= young && known == Some(heartbeat.incarnation)
        };
        let recent = overheard.iter().filter(|(_, said)| is_recent(said));
        let recent: BTreeMap<CoreId, Tick> = recent.map(|(&core, &(at, _))| (core, at)).collect();
        let said = overheard.values().map(|(_, heartbeat)| (heartbeat, recent.contains_key(&heartbeat.core)));
        let memory = Memory::start(now, state, said);
        let renewed_until = ledger.committed().time_anchor.time; // what is not committed was told to nobody
        let found = Found {
            anchor: state.time_anchor,
            reserved: state.time_reserved,
            is_alone: ledger.lists().members.len() == 1,
            recalled,
        };
        let (mut clock, reservation) = ClusterClock::start(found, options.boot, now);
        for command in reconciled(state, options, ledger.me()).into_iter().chain(reservation) {
            ledger.decide(now, &command);
        }
        let state = ledger.decided();
        let cluster_time = clock.now(now, state.time_reserved);
        let mut leases = NodeLeases::new(options, state.configuration.faults, now);
        // Section 7: an earlier leader may have granted a lease a moment ago, and for longer than we do (F1).
        let granted = Duration::from_millis(state.lease_bound_millis);
        leases.set_own(nodes_cut_off_with_us(options, ledger));
        for info in &state.configuration.nodes {
            let assume = if info.alive { Assume::Leased(granted) } else { Assume::Lost };
            leases.register(now, info.node, info.cores.len(), assume);
        }
        for (core, at) in recent {
            leases.note_overheard(core, at);
        }
        let own_bound = options.lease_bound_millis();
        let (clients_below, version) = (state.clients_below, state.configuration.version);
        let lower_lease_bound = (own_bound < state.lease_bound_millis).then(|| (now.after(granted), own_bound));
        ledger.clients_mut().lead(clients_below, cluster_time, renewed_until);
        Self {
            memory,
            leases,
            lower_lease_bound,
            unanswered: BTreeMap::new(),
            overtaken: BTreeMap::new(),
            since: now,
            silent: BTreeMap::new(),
            hears_less_since: None,
            has_let_others_judge: false,
            handed_over: None,
            loss_round: None,
            promotions: (0, now),
            clock,
            waiters: TableWaiters::new(version),
            push_to: BTreeSet::new(),
            askers: Askers::default(),
            pushed: version,
            changed: true,
            next_tick: now,
            reads_wall_at: now,
            wall_ahead: 0,
        }
    }

    pub(crate) fn on_closed(&mut self, end: Endpoint) {
        self.unanswered.retain(|_, (from, _)| *from != end);
        self.push_to.remove(&end);
        if let Endpoint::Conn(conn) = end {
            self.askers.forget(conn);
        }
        self.waiters.closed(end);
        self.memory.on_closed(end);
    }

    /// When there is something to do if nothing comes in. `last_step`: a moment that has passed.
    pub(crate) fn next_deadline(&self, last_step: Tick) -> Tick {
        // Who has lost memory tells nothing, so there is nothing to go on with at once.
        let goes_on = self.askers.is_telling() && self.memory.may_decide();
        if goes_on { last_step } else { self.next_tick }
    }
}

/// The commands that change options which may change. What nobody chose in this process stays as it is. Flags seed a new cluster: once its
/// first shards are placed, more nodes may be wanted, and an operator says the rest (R9.12).
fn reconciled(state: &State, options: &CoordinatorOptions, me: MemberId) -> Vec<Command> {
    let (config, unchosen) = (&state.configuration, options.unchosen);
    let mut commands = Vec::new();
    let address = options.address;
    let is_new = config.shards.is_empty();
    let min_backups = if unchosen.min_backups || !is_new { config.min_backups } else { options.min_backups };
    let nodes = match unchosen.nodes {
        true => config.nodes_wanted,
        false if is_new => options.nodes,
        false => options.nodes.max(config.nodes_wanted),
    };
    if (config.coordinator, config.min_backups, config.nodes_wanted) != (address, min_backups, nodes) {
        commands.push(Command::Configure { address, min_backups, nodes });
    }
    let of = options.as_member(me);
    if !config.group.contains(&of) {
        commands.push(Command::MemberAt { of });
    }
    // A flag makes a cluster's first size. Later an operator says it (R9.12).
    if !unchosen.group && options.group != state.group_wanted && is_new {
        commands.push(Command::GroupWanted { members: options.group });
    }
    if state.timing.is_none() {
        commands.push(Command::Timing { timing: options.timing() });
    }
    // A higher bound is committed before a lease is granted under it; a lower one when older leases are over (F1).
    let millis = options.lease_bound_millis();
    if millis > state.lease_bound_millis {
        commands.push(Command::BoundLeases { millis });
    }
    commands
}

/// A member that leads. Every method that decides something is written on this.
#[derive(Debug)]
pub(crate) struct Leading<'a> {
    pub(crate) member: &'a mut Member,
    pub(crate) lead: &'a mut Lead,
}

impl Leading<'_> {
    /// The state with what is decided and not committed yet: what the next decision begins from.
    pub(crate) fn decided(&self) -> &State {
        self.member.ledger.decided()
    }

    /// Decides a command: everything that is sent from now on waits until it is committed.
    pub(crate) fn decide(&mut self, command: Command) {
        self.member.ledger.decide(self.member.last_step, &command);
        self.lead.changed = true;
    }

    pub(crate) fn sight(&self, now: Tick) -> Sight<'_> {
        Sight { evidence: &self.member.evidence, leases: &self.lead.leases, now }
    }

    /// The present ClusterTime, to tell others. It is reserved before, so that a slow disk does not make it stand still:
    /// what tells it waits for that (R4.7).
    pub(crate) fn cluster_time(&mut self, now: Tick) -> ClusterTime {
        if let Some(command) = self.lead.clock.reservation_due(now, self.decided().time_reserved) {
            self.decide(command);
        }
        let time = self.lead.clock.now(now, self.member.ledger.decided().time_reserved);
        self.member.ledger.note_told(now, Told { time: self.lead.clock.passed(now), most: time });
        time
    }

    pub(crate) fn say_goodbye(&mut self, to: Endpoint, why: Goodbye, out: &mut Out<'_>) {
        self.lead.on_closed(to);
        self.member.say_goodbye(to, why, out);
    }

    pub(crate) fn on_get_configuration(&mut self, from: Endpoint, have: ConfigVersion) {
        if have < self.decided().configuration.version {
            self.lead.push_to.insert(from);
        } else if let Endpoint::Conn(conn) = from {
            self.lead.askers.wait(conn, have);
        }
    }

    pub(crate) fn end_turn(&mut self, now: Tick, out: &mut Out<'_>) {
        self.listen(now, out);
        if !self.lead.memory.may_decide() {
            self.lead.next_tick = now.after(self.member.options.node_lease / 8);
            return;
        }
        // This comes after the inputs of the turn, so that a heartbeat that is already here counts.
        if now >= self.lead.next_tick {
            self.on_tick(now, out);
        } else if self.lead.leases.any_lapsed(now) {
            self.judge(now); // the heartbeat that proves it may come long before the tick
        }
        self.see_to_members(now);
        self.repair(now);
        self.answer_table_requests(out);
        self.push_configuration(out);
    }

    fn on_tick(&mut self, now: Tick, out: &mut Out<'_>) {
        let lease = self.member.options.node_lease;
        if now >= self.lead.reads_wall_at {
            self.lead.reads_wall_at = now.after(lease);
            out.read_clock();
        }
        self.lead.next_tick = now.after(lease / 8);
        self.lead.leases.set_own(nodes_cut_off_with_us(&self.member.options, &self.member.ledger));
        self.judge(now);
        self.move_primaries(now);
        if let Some((_, millis)) = self.lead.lower_lease_bound.take_if(|(at, _)| now >= *at) {
            self.decide(Command::BoundLeases { millis });
        }
        self.lead.changed |= self.member.evidence.expire(now);
        if now.since(self.lead.promotions.1) >= lease {
            self.lead.changed |= self.lead.promotions.0 > self.member.options.promotions_max;
            self.lead.promotions = (0, now);
        }
        let cluster_time = self.cluster_time(now);
        self.member.ledger.clients_mut().sweep(cluster_time);
    }

    /// The clock on the wall was read (R10.12).
    pub(crate) fn on_unix_time(&mut self, now: Tick, unix: UnixMillis) {
        // Before its first placement it may have lost its folder, and not know that yet. A machine without a battery begins in 1970.
        let is_placed = !self.decided().configuration.shards.is_empty();
        if !self.lead.memory.may_decide() || !is_placed || unix < WALL_LEAST {
            return;
        }
        match self.decided().unix_origin {
            None => {
                let passed = self.lead.clock.passed(now);
                self.decide(Command::UnixOrigin { origin: UnixMillis(unix.0.saturating_sub(passed.0)) });
            }
            Some(origin) => {
                let millis = |unix: UnixMillis| i64::try_from(unix.0).unwrap_or(i64::MAX);
                let by_wall = millis(unix).saturating_sub(millis(origin));
                self.lead.wall_ahead = self.lead.clock.see_wall(now, by_wall);
            }
        }
    }

    fn judge(&mut self, now: Tick) {
        if self.another_is_to_judge(now) {
            return;
        }
        let Member { options, links, evidence, .. } = &*self.member;
        let is_connected = |node| options.trusts_connections && links.keys().any(|core| core.node == node);
        let vouches = |node| match evidence.is_vouched_for(now, node) {
            true => Vouches::Others,
            false if is_connected(node) => Vouches::Connection,
            false => Vouches::Nothing,
        };
        for node in self.lead.leases.judge(now, vouches) {
            self.decide(Command::NodeLost { node });
        }
    }

    fn push_configuration(&mut self, out: &mut Out<'_>) {
        let Self { member: Member { ledger, links, outbox, .. }, lead } = self;
        let version = ledger.decided().configuration.version;
        if version > lead.pushed {
            lead.pushed = version;
            lead.push_to.extend(links.values().map(|link| link.end));
            lead.askers.announce();
        }
        if lead.push_to.is_empty() && !lead.askers.is_telling() {
            return;
        }
        let &State { ref configuration, level, unix_origin, .. } = ledger.decided();
        let (configuration, unix_origin) = (configuration.clone(), Later::at(level, unix_origin));
        let frame = out.encode(&ConfigurationIs { configuration, level, unix_origin });
        let askers = lead.askers.take(version, frame.len()).into_iter().map(Endpoint::Conn);
        for to in std::mem::take(&mut lead.push_to).into_iter().chain(askers) {
            outbox.send(to, frame, ledger.all_decided(), out);
        }
    }
}
