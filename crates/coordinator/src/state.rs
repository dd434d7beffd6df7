//! The state: a function of the log, and of no clock or connection.
//!
//! [`State::apply`] is deterministic, and total for every command that the machine may commit. A command that breaks an
//! invariant is a bug of ours, and panics. A command from a log file is checked, and refused if it breaks one. Besides
//! the published [`Configuration`], the state keeps what only the coordinator needs: to which process of a primary's
//! node a term belongs, in which boots a witness list was made, when a node last lost a primary, the reservations
//! (R4.7), and the answers to table requests (exactly once).

use std::collections::BTreeMap;

use kasha_types::limits::TABLES_MAX;
use kasha_types::{
    BootId, ClientId, ClusterTime, ConfigVersion, Epoch, Incarnation, ListVersion, MemberId, NodeId, ShardId, TableId,
    UnixMillis, chained,
};
use kasha_wire::message::{Placement, TableCommand, TableOutcome};
use kasha_wire::{
    Configuration, DecodeError, GroupMember, Level, Member, MemberState, NodeInfo, Reader, Served, ShardConfig,
    ShardPhase, TableInfo, Wire, wire_struct,
};

use crate::limits::{TABLE_CLIENTS_MAX, TABLETS_MAX};
use crate::options::CoordinatorOptions;
use crate::time::Anchor;
use crate::timing::Timing;
use crate::{Command, placement};

/// The member that makes a cluster. Those that join later get other ids.
pub(crate) const FIRST_MEMBER: MemberId = MemberId(1);

/// The table that every cluster begins with. It cannot be dropped.
pub(crate) const DEFAULT_TABLE: &str = "default";

/// The part of a node's state that is not published; in order of node, like the configuration's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRecord {
    /// The boot id of the node's machine.
    pub(crate) boot: BootId,
    /// The configuration that last took a primary from the node: no core gets a lease before it has seen that (F1).
    pub(crate) deposed: ConfigVersion,
}

/// The part of a shard's state that is not published; in order of shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardRecord {
    /// The process that the term belongs to. Another process of the same node has lost that memory (R7.1).
    pub(crate) primary_incarnation: Incarnation,
    /// The boot ids of the witnesses' machines when the list was made (R5.5).
    pub(crate) witness_boots: Vec<BootId>,
}

/// The answer to a client's last table request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableAnswer {
    pub(crate) client: ClientId,
    pub(crate) sequence: u64,
    pub(crate) outcome: TableOutcome,
    /// The configuration that every core must know before the answer may leave.
    pub(crate) version: ConfigVersion,
}

/// An invitation that ended before the folder counted. The folder may have become this member: it can be invited as no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedInvitation {
    pub(crate) folder: u32,
    pub(crate) member: MemberId,
}

wire_struct! {
    EndedInvitation { folder, member }
}

/// The coordinator's state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Commands applied since the cluster was created.
    pub(crate) applied: u64,
    pub(crate) shards_wanted: u16,
    pub(crate) configuration: Configuration,
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) shards: Vec<ShardRecord>,
    pub(crate) time_reserved: ClusterTime,
    /// From where ClusterTime goes on if the coordinator starts again in the same boot of its machine.
    pub(crate) time_anchor: Anchor,
    pub(crate) clients_below: ClientId,
    /// The term of node leases and the drift bound; none in a state of before they were settings (R9.12).
    pub(crate) timing: Option<Timing>,
    /// The unix time of ClusterTime 0, once a leader has said it (R10.12).
    pub(crate) unix_origin: Option<UnixMillis>,
    /// Every node lease that still runs ends within this time, also leases that an earlier process granted (F1).
    pub(crate) lease_bound_millis: u64,
    pub(crate) next_table: TableId,
    pub(crate) table_answers: BTreeMap<ClientId, TableAnswer>,
    /// Answers to clients up to this one may have been forgotten.
    table_answers_forgotten: ClientId,
    /// Ids of members below this one were used. It stands beside the state in a snapshot, as the next field does.
    pub(crate) next_member: MemberId,
    /// How many members the group is to have.
    pub(crate) group_wanted: u8,
    /// The identities of the folders that were members and are none any more, the last ones at the end.
    pub(crate) former_members: Vec<u32>,
    /// Invitations that ended before their folders counted, the last ones at the end.
    pub(crate) ended_invitations: Vec<EndedInvitation>,
    /// Members that an operator wants to leave: they go when others count in their place.
    pub(crate) leaving: Vec<MemberId>,
    /// What may be said and written (R7.6).
    pub(crate) level: Level,
    /// Of all commands, in order, and of what each has changed (`replicated`). It stands beside the state in a snapshot, since files of
    /// format 4 have none.
    pub(crate) digest: u64,
}

impl State {
    /// The state of a new cluster.
    #[must_use]
    pub fn new(options: &CoordinatorOptions) -> Self {
        Self {
            applied: 0,
            shards_wanted: options.shards,
            configuration: Configuration {
                cluster: options.cluster,
                version: ConfigVersion(1),
                faults: options.faults,
                durability: options.durability,
                min_backups: options.min_backups,
                nodes_wanted: options.nodes,
                coordinator: options.address,
                group: vec![options.as_member(FIRST_MEMBER)],
                nodes: Vec::new(),
                shards: Vec::new(),
                tables: Vec::new(),
                tablets: Vec::new(),
            },
            nodes: Vec::new(),
            shards: Vec::new(),
            time_reserved: ClusterTime(1),
            time_anchor: Anchor::NONE,
            clients_below: ClientId(1),
            lease_bound_millis: options.lease_bound_millis(),
            next_table: TableId(1),
            table_answers: BTreeMap::new(),
            table_answers_forgotten: ClientId(0),
            next_member: MemberId(FIRST_MEMBER.0 + 1),
            group_wanted: options.group,
            former_members: Vec::new(),
            ended_invitations: Vec::new(),
            timing: None,
            unix_origin: None,
            leaving: Vec::new(),
            level: options.levels.latest(),
            digest: 0,
        }
    }

    /// The published configuration.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// What may be said and written (R7.6).
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// How many nodes the cluster is to have.
    #[must_use]
    pub fn nodes_wanted(&self) -> u16 {
        self.configuration.nodes_wanted
    }

    /// Commands applied since the cluster was created.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// How many members the group of coordinators is to have.
    #[must_use]
    pub fn group_wanted(&self) -> u8 {
        self.group_wanted
    }

    /// The moment up to which ClusterTime may be used.
    #[must_use]
    pub fn time_reserved(&self) -> ClusterTime {
        self.time_reserved
    }

    /// The term of node leases and the drift bound, once a leader has said them.
    #[must_use]
    pub fn timing(&self) -> Option<Timing> {
        self.timing
    }

    /// The unix time of ClusterTime 0, once a leader has said it.
    #[must_use]
    pub fn unix_origin(&self) -> Option<UnixMillis> {
        self.unix_origin
    }

    /// Every client id that was ever granted is below this one.
    #[must_use]
    pub fn clients_below(&self) -> ClientId {
        self.clients_below
    }

    /// The number of replicas that a shard should have.
    pub(crate) fn replicas(&self) -> usize {
        usize::from(self.configuration.faults) + 1
    }

    pub(crate) fn node_index(&self, node: NodeId) -> Option<usize> {
        self.configuration.nodes.binary_search_by_key(&node, |info| info.node).ok()
    }

    pub(crate) fn is_alive(&self, node: NodeId) -> bool {
        self.node_index(node).is_some_and(|index| self.configuration.nodes[index].alive)
    }

    pub(crate) fn alive_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.configuration.nodes.iter().filter(|info| info.alive).map(|info| info.node)
    }

    pub(crate) fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.node_index(node).map(|index| self.configuration.nodes[index].incarnation)
    }

    pub(crate) fn boot(&self, node: NodeId) -> Option<BootId> {
        self.node_index(node).map(|index| self.nodes[index].boot)
    }

    pub(crate) fn table_answer(&self, client: ClientId) -> Option<&TableAnswer> {
        self.table_answers.get(&client)
    }

    /// Whether this client's answers may have been forgotten. Then a request may be a late copy of an answered one.
    pub(crate) fn table_answers_forgotten(&self, client: ClientId) -> bool {
        client <= self.table_answers_forgotten && !self.table_answers.contains_key(&client)
    }

    fn shard_mut(&mut self, shard: ShardId) -> &mut ShardConfig {
        self.configuration.shards.get_mut(usize::from(shard.0)).expect("only placed shards are changed")
    }

    /// Applies one command.
    ///
    /// # Panics
    /// If the command breaks an invariant: the machine commits none that does.
    pub fn apply(&mut self, command: &Command) {
        if let Err(why) = self.try_apply(command) {
            panic!("{why}: {command:?}");
        }
    }

    /// Applies one command of a log file, which may be anything under a right checksum.
    ///
    /// # Errors
    /// Why the command cannot follow. Nothing was changed then.
    pub(crate) fn try_apply(&mut self, command: &Command) -> Result<(), String> {
        self.permits(command)?;
        let mut bytes = Vec::new();
        command.put(&mut bytes);
        self.perform(command, &bytes);
        Ok(())
    }

    /// Performs a command that is permitted, and that these bytes are.
    pub(crate) fn perform(&mut self, command: &Command, bytes: &[u8]) {
        if self.publishes(command) {
            self.configuration.version = self.configuration.version.next();
        }
        self.applied += 1;
        self.digest = chained(chained(self.digest, bytes), &self.changed_by(command));
    }

    /// Performs a command. Returns whether the configuration is a new one.
    fn publishes(&mut self, command: &Command) -> bool {
        match command {
            Command::Configure { address, min_backups, nodes } => {
                self.configuration.coordinator = *address;
                self.configuration.min_backups = *min_backups;
                self.configuration.nodes_wanted = *nodes;
                true
            }
            Command::NodeSeen { node, incarnation, boot, addresses } => {
                let info = NodeInfo { node: *node, incarnation: *incarnation, cores: addresses.clone(), alive: true };
                self.apply_node_seen(info, *boot);
                true
            }
            Command::NodeLost { node } => {
                let index = self.node_index(*node).expect("only known nodes are lost");
                self.configuration.nodes[index].alive = false;
                true
            }
            Command::Place { shards } => {
                self.apply_place(shards);
                true
            }
            Command::Promote { shard, epoch, primary, members, recover_from } => {
                self.apply_promote(*shard, *epoch, *primary, members, recover_from);
                true
            }
            Command::Recovered { shard, epoch, list, witnesses } => {
                self.apply_recovered(*shard, *epoch);
                self.set_list(*shard, *list, witnesses)
            }
            Command::SetMembers { shard, members, .. } => {
                self.apply_set_members(*shard, members);
                true
            }
            Command::Copied { shard, node, .. } => {
                let member =
                    self.shard_mut(*shard).members.iter_mut().find(|member| member.node == *node).expect("a member");
                member.state = MemberState::Complete;
                true
            }
            Command::CloseList { shard, .. } => {
                self.shard_mut(*shard).closing = true;
                true
            }
            Command::OpenList { shard, list, witnesses } => self.set_list(*shard, *list, witnesses),
            Command::EmptyList { shard, list } => self.set_list(*shard, *list, &[]),
            Command::GiveUpWitnesses { shard, epoch } => self.apply_giving_up(*shard, *epoch, None),
            Command::GiveUpMembers { shard, epoch, recover_from } => {
                self.apply_giving_up(*shard, *epoch, Some(recover_from))
            }
            Command::Table { client, sequence, command } => self.apply_table(*client, *sequence, command),
            Command::MemberAt { .. }
            | Command::MemberGone { .. }
            | Command::InvitationEnds { .. }
            | Command::MemberLeaves { .. }
            | Command::MemberStays { .. }
            | Command::GroupWanted { .. }
            | Command::Raise { .. } => self.apply_of_group(command),
            Command::UnixOrigin { origin } => self.apply_unix_origin(*origin),
            Command::ReserveTime { .. }
            | Command::ReserveClients { .. }
            | Command::Timing { .. }
            | Command::BoundLeases { .. } => {
                self.apply_unpublished(command);
                false
            }
        }
    }

    /// What is told has it from the level on that knows it. Below that a member of an earlier release must count the same (R9.11).
    fn apply_unix_origin(&mut self, origin: UnixMillis) -> bool {
        self.unix_origin = Some(origin);
        self.level >= Level::COMMANDS
    }

    /// What is in the state, and in no configuration.
    fn apply_unpublished(&mut self, command: &Command) {
        match *command {
            Command::ReserveTime { to, boot, clock, time, least } => {
                (self.time_reserved, self.time_anchor) = (to, Anchor { boot, clock, time, least });
            }
            Command::ReserveClients { below } => self.clients_below = below,
            Command::Timing { timing } => self.timing = Some(timing),
            Command::BoundLeases { millis } => self.lease_bound_millis = millis,
            _ => unreachable!("it changes the configuration: {command:?}"),
        }
    }

    fn apply_node_seen(&mut self, info: NodeInfo, boot: BootId) {
        match self.configuration.nodes.binary_search_by_key(&info.node, |known| known.node) {
            Ok(index) => {
                self.configuration.nodes[index] = info;
                self.nodes[index].boot = boot;
            }
            Err(index) => {
                self.configuration.nodes.insert(index, info);
                self.nodes.insert(index, NodeRecord { boot, deposed: ConfigVersion(0) });
            }
        }
    }

    fn apply_place(&mut self, shards: &[ShardConfig]) {
        self.configuration.shards = shards.to_vec();
        let since = self.configuration.version.next();
        self.configuration.shards.iter_mut().for_each(|shard| shard.members_since = since);
        self.shards = (shards.iter())
            .map(|config| ShardRecord {
                primary_incarnation: self.incarnation(config.primary).expect("placed on known nodes"),
                witness_boots: self.boots(&config.witnesses),
            })
            .collect();
        self.create_table(DEFAULT_TABLE, Placement::Spread);
    }

    fn apply_promote(&mut self, shard: ShardId, epoch: Epoch, primary: NodeId, members: &[Member], from: &[NodeId]) {
        let incarnation = self.incarnation(primary).expect("elected among known nodes");
        let version = self.configuration.version.next();
        let config = self.shard_mut(shard);
        let deposed = config.primary;
        config.epoch = epoch;
        config.primary = primary;
        config.phase = ShardPhase::Recovering;
        config.members = members.to_vec();
        config.members_since = version;
        config.recover_from = from.to_vec();
        config.closing = false;
        let record = &mut self.shards[usize::from(shard.0)];
        record.primary_incarnation = incarnation;
        let index = self.node_index(deposed).expect("a primary is a known node");
        self.nodes[index].deposed = version;
    }

    fn apply_recovered(&mut self, shard: ShardId, epoch: Epoch) {
        let config = self.shard_mut(shard);
        config.phase = ShardPhase::Serving;
        config.served = Some(Served { epoch, primary: config.primary });
        config.recover_from.clear();
    }

    /// Returns that the published configuration has changed.
    fn apply_giving_up(&mut self, shard: ShardId, epoch: Epoch, recover_from: Option<&Vec<NodeId>>) -> bool {
        let config = self.shard_mut(shard);
        config.epoch = epoch;
        match recover_from {
            Some(stays) => config.recover_from.clone_from(stays),
            None => {
                config.witnesses.clear();
                self.shards[usize::from(shard.0)].witness_boots.clear();
            }
        }
        true
    }

    fn apply_set_members(&mut self, shard: ShardId, members: &[Member]) {
        let version = self.configuration.version.next();
        let config = self.shard_mut(shard);
        config.members = members.to_vec();
        config.members_since = version;
    }

    fn boots(&self, nodes: &[NodeId]) -> Vec<BootId> {
        nodes.iter().map(|&node| self.boot(node).expect("witnesses are known nodes")).collect()
    }

    /// Returns that the published configuration has changed.
    fn set_list(&mut self, shard: ShardId, list: ListVersion, witnesses: &[NodeId]) -> bool {
        // A list that stays keeps its boots: what was lost since it was made is still lost (R5.5).
        if self.shard_mut(shard).list != list {
            self.shards[usize::from(shard.0)].witness_boots = self.boots(witnesses);
        }
        let config = self.shard_mut(shard);
        config.list = list;
        config.witnesses = witnesses.to_vec();
        config.closing = false;
        true
    }

    fn create_table(&mut self, name: &str, at: Placement) -> TableId {
        let table = self.next_table;
        self.next_table = TableId(table.0.checked_add(1).expect("table ids are exhausted"));
        self.configuration.tables.push(TableInfo { table, name: name.to_owned() });
        let tablets = &mut self.configuration.tablets;
        match at {
            Placement::Spread => tablets.extend(placement::tablets(table, self.shards_wanted)),
            Placement::OneShard => tablets.push(placement::one_tablet(table, tablets, self.shards_wanted)),
        }
        table
    }

    /// What came of it, and whether the published configuration has changed.
    fn apply_create(&mut self, name: &str, at: Placement) -> (TableOutcome, bool) {
        match (self.configuration.table(name), self.no_room_for_a_table()) {
            (Some(table), _) => (TableOutcome::Exists(table), false),
            (None, Some(why)) => (TableOutcome::Refused(why), false),
            (None, None) => (TableOutcome::Created(self.create_table(name, at)), true),
        }
    }

    fn apply_table(&mut self, client: ClientId, sequence: u64, command: &TableCommand) -> bool {
        let (outcome, publishes) = match command {
            TableCommand::Create(name) => self.apply_create(name, Placement::Spread),
            TableCommand::CreateAt(name, at) => self.apply_create(name, *at),
            TableCommand::Drop(name) => match self.configuration.table(name) {
                Some(table) => {
                    self.configuration.tables.retain(|info| info.table != table);
                    self.configuration.tablets.retain(|tablet| tablet.table != table);
                    (TableOutcome::Dropped(table), true)
                }
                None => (TableOutcome::NotFound, false),
            },
        };
        let version = if publishes { self.configuration.version.next() } else { self.configuration.version };
        self.table_answers.insert(client, TableAnswer { client, sequence, outcome, version });
        if self.table_answers.len() > TABLE_CLIENTS_MAX {
            let (oldest, _) = self.table_answers.pop_first().expect("more than one");
            self.table_answers_forgotten = self.table_answers_forgotten.max(oldest);
        }
        publishes
    }

    fn no_room_for_a_table(&self) -> Option<String> {
        let tables = self.configuration.tables.len();
        let most = TABLES_MAX.min(TABLETS_MAX / usize::from(self.shards_wanted));
        (tables >= most)
            .then(|| format!("there are {tables} tables, the most for {} shards: drop one first", self.shards_wanted))
    }
}

wire_struct! {
    NodeRecord { boot, deposed }
    ShardRecord { primary_incarnation, witness_boots }
    TableAnswer { client, sequence, outcome, version }
}

/// Decodes answers. They must be in order, one of each client, so that they encode to the same bytes.
fn take_answers(from: &mut Reader<'_>) -> Result<BTreeMap<ClientId, TableAnswer>, DecodeError> {
    let answers: Vec<TableAnswer> = from.take()?;
    if !answers.is_sorted_by(|a, b| a.client < b.client) {
        return Err(DecodeError::Invalid("the order of table answers"));
    }
    Ok(answers.into_iter().map(|answer| (answer.client, answer)).collect())
}

impl Wire for State {
    fn put(&self, out: &mut Vec<u8>) {
        self.applied.put(out);
        self.shards_wanted.put(out);
        self.configuration.put(out);
        self.nodes.put(out);
        self.shards.put(out);
        self.time_reserved.put(out);
        self.time_anchor.put(out);
        self.clients_below.put(out);
        self.lease_bound_millis.put(out);
        self.next_table.put(out);
        u32::try_from(self.table_answers.len()).expect("bounded").put(out);
        self.table_answers.values().for_each(|answer| answer.put(out));
        self.table_answers_forgotten.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::take_with(from, |from| from.take())
    }
}

impl State {
    /// As files of format 4 hold it: of a coordinator that is alone.
    pub(crate) fn take_format4(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut state = Self::take_with(from, Configuration::take_without_group)?;
        let address = state.configuration.coordinator;
        state.configuration.group = vec![GroupMember { member: FIRST_MEMBER, node: NodeId(0), folder: 0, address }];
        Ok(state)
    }

    fn take_with(
        from: &mut Reader<'_>,
        configuration: impl FnOnce(&mut Reader<'_>) -> Result<Configuration, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let state = Self {
            applied: from.take()?,
            shards_wanted: from.take()?,
            configuration: configuration(from)?,
            nodes: from.take()?,
            shards: from.take()?,
            time_reserved: from.take()?,
            time_anchor: from.take()?,
            clients_below: from.take()?,
            lease_bound_millis: from.take()?,
            next_table: from.take()?,
            table_answers: take_answers(from)?,
            table_answers_forgotten: from.take()?,
            next_member: MemberId(FIRST_MEMBER.0 + 1),
            group_wanted: 1,
            former_members: Vec::new(),
            ended_invitations: Vec::new(),
            timing: None,
            unix_origin: None,
            leaving: Vec::new(),
            level: Level::FIRST,
            digest: 0,
        };
        if state.nodes.len() != state.configuration.nodes.len()
            || state.shards.len() != state.configuration.shards.len()
        {
            return Err(DecodeError::Invalid("a snapshot"));
        }
        Ok(state)
    }
}
