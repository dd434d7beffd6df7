//! Whether a shard is well. The coordinator's word is not enough: it says what should be. The primary must call itself primary
//! of this term, each member must hold a copy that a new primary can go on with, and each witness must have its instance.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{CoreId, LogEnd, MemberId, NodeId, PortUse, ShardId};
use kasha_wire::status::{CoreStatus, LoopTurns, Memory, ReplicaStatus};
use kasha_wire::{Configuration, GroupMember, MemberState, ShardConfig, ShardPhase};

/// What a core says of itself.
#[derive(Clone, Debug)]
pub struct Core {
    pub status: CoreStatus,
    /// Asked for only where somebody wants to see them.
    pub turns: Option<LoopTurns>,
}

/// Everything that is known of a cluster at one moment.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub configuration: Configuration,
    /// Whether that is the coordinator's word of now.
    pub coordinator: bool,
    /// The cores that have answered.
    pub cores: BTreeMap<CoreId, Core>,
    /// The members of the coordinator's group that did not answer, if it has several.
    pub silent_members: BTreeSet<MemberId>,
}

/// A shard's state, in words, and whether all is as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub words: String,
    pub is_well: bool,
    /// What the node that is to be primary does instead of serving, in its own words.
    pub doing: Option<String>,
}

impl Health {
    /// For people.
    pub fn told(&self) -> String {
        match &self.doing {
            Some(doing) => format!("{}: {doing}", self.words),
            None => self.words.clone(),
        }
    }
}

/// What a member's own core says of its copy of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    Whole,
    /// Older data is being copied to it.
    Joining,
    /// Its core does not answer.
    Silent,
    /// Its core has no copy of the shard.
    Missing,
    /// It has nothing, and its primary has.
    Empty,
    /// Something of it is missing or damaged.
    Damaged,
    /// It lacks what every member is said to hold.
    Behind,
}

impl Copy {
    /// For scripts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Joining => "joining",
            Self::Silent => "silent",
            Self::Missing => "missing",
            Self::Empty => "empty",
            Self::Damaged => "damaged",
            Self::Behind => "behind",
        }
    }

    fn complaint(self, node: NodeId) -> Option<String> {
        match self {
            Self::Whole | Self::Joining => None,
            Self::Silent => Some(format!("{node} is silent")),
            Self::Missing => Some(format!("{node} has no copy")),
            Self::Empty => Some(format!("the copy of {node} is empty")),
            Self::Damaged => Some(format!("the copy of {node} is damaged")),
            Self::Behind => Some(format!("the copy of {node} is behind")),
        }
    }
}

pub fn memory_words(memory: Memory) -> &'static str {
    match memory {
        Memory::Enough => "memory enough",
        Memory::Low => "memory low",
        Memory::Full => "memory full",
    }
}

impl Cluster {
    /// What a node says of its replica of a shard; `None`: its core does not answer.
    fn replica(&self, node: NodeId, shard: ShardId) -> Option<Option<&ReplicaStatus>> {
        let core = self.cores.get(&self.configuration.core_of(node, shard)?)?;
        Some(core.status.replicas.iter().find(|replica| replica.shard == shard))
    }

    /// What the shard's primary says of it, if it is one.
    pub fn primary(&self, shard: &ShardConfig) -> Option<&ReplicaStatus> {
        self.replica(shard.primary, shard.shard)?.filter(|replica| replica.primary && replica.epoch == shard.epoch)
    }

    /// What the node that is to be primary says of the shard, whatever it calls itself.
    pub fn named_primary(&self, shard: &ShardConfig) -> Option<&ReplicaStatus> {
        self.replica(shard.primary, shard.shard)?
    }

    /// What a member says of its copy.
    pub fn copy(&self, shard: &ShardConfig, member: kasha_wire::Member) -> Copy {
        let Some(replica) = self.replica(member.node, shard.shard) else { return Copy::Silent };
        let Some(replica) = replica else { return Copy::Missing };
        let (end, synced) = match self.primary(shard) {
            Some(primary) => (primary.end.offset, primary.synced),
            None => (LogEnd::START, LogEnd::START),
        };
        match member.state {
            MemberState::Joining => Copy::Joining,
            MemberState::Complete if replica.end.offset == LogEnd::START && end > LogEnd::START => Copy::Empty,
            MemberState::Complete if !replica.complete => Copy::Damaged,
            MemberState::Complete if replica.end.offset < synced => Copy::Behind,
            MemberState::Complete => Copy::Whole,
        }
    }

    /// The cores whose answer came too early to be compared with a primary's: what the primary calls synced may have come later.
    pub fn to_be_asked_again(&self) -> Vec<CoreId> {
        let members =
            self.configuration.shards.iter().flat_map(|shard| shard.members.iter().map(move |member| (shard, *member)));
        let mut cores: Vec<CoreId> = members
            .filter(|&(shard, member)| matches!(self.copy(shard, member), Copy::Behind | Copy::Empty | Copy::Missing))
            .filter_map(|(shard, member)| self.configuration.core_of(member.node, shard.shard))
            .collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// A newer answer of a core that was asked again. Primaries keep their first answers, which the newer ones are compared with.
    pub fn is_newer(&mut self, newer: CoreStatus) {
        let Some(core) = self.cores.get_mut(&newer.core) else { return };
        for replica in newer.replicas {
            match core.status.replicas.iter_mut().find(|known| known.shard == replica.shard) {
                Some(known) if !known.primary => *known = replica,
                Some(_) => {}
                None => core.status.replicas.push(replica),
            }
        }
    }

    /// What the Redis ports do, node by node: of those nodes that have one, and have answered.
    pub fn ports(&self) -> BTreeMap<NodeId, PortUse> {
        let mut ports: BTreeMap<NodeId, PortUse> = BTreeMap::new();
        for Core { status, .. } in self.cores.values() {
            if let Some(Some(port)) = status.port.get() {
                *ports.entry(status.core.node).or_default() += *port;
            }
        }
        ports
    }

    /// What all of them do together, if there are any.
    pub fn redis(&self) -> Option<PortUse> {
        self.ports().into_values().reduce(|mut sum, port| {
            sum += port;
            sum
        })
    }

    /// The state of a shard.
    pub fn health(&self, shard: &ShardConfig) -> Health {
        let state = self.ailment(shard);
        let memory = self.primary(shard).map_or(Memory::Enough, |primary| primary.memory);
        let is_well = state.is_none() && memory != Memory::Full;
        let words = match (state, memory) {
            (Some(state), Memory::Enough) => state,
            (Some(state), memory) => format!("{state}, {}", memory_words(memory)),
            (None, Memory::Enough) => "healthy".to_owned(),
            (None, memory) => memory_words(memory).to_owned(),
        };
        let serves = shard.phase == ShardPhase::Serving && self.primary(shard).is_some();
        let doing = if serves { None } else { self.named_primary(shard).map(|named| named.state.clone()) };
        Health { words, is_well, doing }
    }

    /// What is wrong with a shard, its memory apart.
    fn ailment(&self, shard: &ShardConfig) -> Option<String> {
        if shard.phase == ShardPhase::Recovering {
            return Some("recovering".to_owned());
        }
        match self.replica(shard.primary, shard.shard) {
            None => return Some("primary silent".to_owned()),
            Some(_) if self.primary(shard).is_none() => {
                return Some(format!("{} does not call itself primary", shard.primary));
            }
            Some(_) => {}
        }
        let wanted = usize::from(self.configuration.faults) + 1;
        if shard.members.len() < wanted {
            return Some("too few members".to_owned());
        }
        let others = shard.members.iter().filter(|member| member.node != shard.primary);
        if let Some(complaint) = others.clone().find_map(|member| self.copy(shard, *member).complaint(member.node)) {
            return Some(complaint);
        }
        if shard.members.iter().any(|member| member.state == MemberState::Joining) {
            return Some("copying old data".to_owned());
        }
        if shard.closing {
            return Some("changing witnesses".to_owned());
        }
        if self.configuration.faults > 0 && !shard.has_fast_path(self.configuration.faults) {
            return Some("no fast path".to_owned());
        }
        shard.witnesses.iter().find_map(|&node| self.witness_ailment(shard, node))
    }

    fn witness_ailment(&self, shard: &ShardConfig, node: NodeId) -> Option<String> {
        let core = self.configuration.core_of(node, shard.shard).and_then(|core| self.cores.get(&core));
        let Some(core) = core else { return Some(format!("{node} is silent")) };
        let mut instances = core.status.witnesses.iter();
        let has_it = instances.any(|it| it.shard == shard.shard && it.list == shard.list && !it.frozen);
        (!has_it).then(|| format!("{node} is no witness"))
    }

    /// The shards that are not well, and why.
    pub fn ill(&self) -> Vec<(ShardId, String)> {
        let shards = self.configuration.shards.iter().map(|shard| (shard.shard, self.health(shard)));
        shards.filter(|(_, health)| !health.is_well).map(|(shard, health)| (shard, health.told())).collect()
    }

    /// Whether every shard is well, and the coordinator there.
    pub fn is_well(&self) -> bool {
        self.coordinator && !self.configuration.shards.is_empty() && self.ill().is_empty()
    }

    /// What the members of the coordinator's group are worth if all are on one machine (R9.14).
    pub fn one_machine(&self) -> Option<String> {
        let group = &self.configuration.group;
        let first = group.first().filter(|_| group.len() > 1)?.address.ip();
        let is_one = group.iter().all(|of| of.address.ip() == first);
        is_one.then(|| {
            format!(
                "The coordinator's {} members are on one machine: they survive the loss of a folder, and not of the machine, or of the process \
                 if they are in one",
                group.len()
            )
        })
    }

    /// What the coordinator's group survives without its silent members.
    fn survives(&self) -> String {
        let members = self.configuration.group.len();
        match (members - self.silent_members.len()).saturating_sub(members / 2 + 1) {
            0 => "one more loss stops the coordinator".to_owned(),
            more => format!("the coordinator survives the loss of {more} more"),
        }
    }

    /// One line that says whether all is well.
    pub fn summary(&self) -> String {
        /// More are counted, not named.
        const NAMED_MAX: usize = 3;
        let shards = self.configuration.shards.len();
        let lost: Vec<String> =
            self.configuration.nodes.iter().filter(|info| !info.alive).map(|info| info.node.to_string()).collect();
        if let Some(missing) = self.configuration.missing_to_begin() {
            return kasha_client::Error::NotBegun { missing }.to_string();
        }
        let ill = self.ill();
        if !ill.is_empty() {
            let mut named: Vec<String> =
                ill.iter().take(NAMED_MAX).map(|(shard, words)| format!("{shard}: {words}")).collect();
            if ill.len() > NAMED_MAX {
                named.push(format!("and {} more", ill.len() - NAMED_MAX));
            }
            return format!("NOT well: {} of {} ill. {}", ill.len(), are(shards, "shard"), named.join("; "));
        }
        if !self.coordinator {
            return "NOT well: the coordinator does not answer. No fail-over and no new clients until it is back"
                .to_owned();
        }
        // Of a node that is lost that is no news.
        let is_news = |of: &&GroupMember| {
            let is_lost = self.configuration.node(of.node).is_some_and(|info| !info.alive);
            self.silent_members.contains(&of.member) && !is_lost
        };
        let silent: Vec<_> = self.configuration.group.iter().filter(is_news).map(|of| of.node.to_string()).collect();
        if !silent.is_empty() {
            return format!(
                "{} healthy, but the coordinator's member on {} is silent: {}. See that node's log, or start it again",
                are(shards, "shard"),
                silent.join(" and "),
                self.survives()
            );
        }
        match &lost[..] {
            [] => format!(
                "All is well: {} alive, {} healthy",
                are(self.configuration.nodes.len(), "node"),
                are(shards, "shard")
            ),
            lost => format!(
                "All is well: {} healthy. Lost: {}; start it again to have a spare",
                are(shards, "shard"),
                lost.join(", ")
            ),
        }
    }
}

/// "3 shards are", or "1 shard is".
fn are(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what} is") } else { format!("{count} {what}s are") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::json::to_json;
    use crate::status::screen;
    use kasha_client::cluster::{
        ClusterId, ConfigVersion, Durability, Epoch, Incarnation, ListVersion, LogPosition, Member, NodeInfo,
    };
    use kasha_wire::status::{Cleaning, TransactionsStatus, WitnessStatus};

    const SHARD: ShardId = ShardId(0);

    fn core(node: u16) -> CoreId {
        CoreId { node: NodeId(node), core: 0 }
    }

    fn replica(primary: bool, end: u64) -> ReplicaStatus {
        ReplicaStatus {
            shard: SHARD,
            epoch: Epoch(3),
            primary,
            complete: true,
            state: if primary { "serving" } else { "following" }.to_owned(),
            end: LogPosition { epoch: Epoch(3), offset: LogEnd(end) },
            synced: LogEnd(if primary { 100 } else { 0 }),
            unsynced_operations: 0,
            objects: 5,
            memory_bytes: 1 << 23,
            memory_max_bytes: 1 << 30,
            memory: Memory::Enough,
            cleaning: Cleaning::default(),
            transactions: TransactionsStatus::default(),
            clients: 1,
            completion_records: 1,
            updates: 7,
            reads: 0,
            fast_answers: 7,
            gated_answers: 0,
            duplicates_suppressed: 0,
            repeats_suppressed: 2,
            refusals: 0,
            syncs: 1,
        }
    }

    /// Node 1 is the primary, node 2 a member, node 3 the witness, and all is well.
    fn well() -> Cluster {
        let complete = |node| Member { node: NodeId(node), state: MemberState::Complete, since: ConfigVersion(1) };
        let address = |node| std::net::SocketAddr::from(([127, 0, 0, 1], 7400 + node));
        let info = |node| NodeInfo {
            node: NodeId(node),
            incarnation: Incarnation(1),
            cores: vec![address(node)],
            alive: true,
        };
        let shard = ShardConfig {
            shard: SHARD,
            epoch: Epoch(3),
            primary: NodeId(1),
            phase: ShardPhase::Serving,
            members: vec![complete(1), complete(2)],
            members_since: ConfigVersion(0),
            recover_from: Vec::new(),
            witnesses: vec![NodeId(3)],
            list: ListVersion(2),
            closing: false,
            served: None,
        };
        let configuration = Configuration {
            cluster: ClusterId(1),
            version: ConfigVersion(9),
            faults: 1,
            durability: Durability::Replicated,
            min_backups: 1,
            nodes_wanted: 3,
            coordinator: address(0),
            group: Vec::new(),
            nodes: (1..=3).map(info).collect(),
            shards: vec![shard],
            tables: Vec::new(),
            tablets: Vec::new(),
        };
        let witness =
            WitnessStatus { shard: SHARD, list: ListVersion(2), frozen: false, held: 0, accepted: 0, rejected: 0 };
        let says = |node, replicas, witnesses| {
            let (incarnation, configuration) = (Incarnation(1), ConfigVersion(9));
            let port = kasha_wire::Later::absent();
            let status =
                CoreStatus { core: core(node), incarnation, configuration, lease: true, replicas, witnesses, port };
            (core(node), Core { status, turns: None })
        };
        let cores = [
            says(1, vec![replica(true, 120)], Vec::new()),
            says(2, vec![replica(false, 110)], Vec::new()),
            says(3, Vec::new(), vec![witness]),
        ];
        Cluster { configuration, coordinator: true, cores: cores.into(), silent_members: BTreeSet::new() }
    }

    /// The cluster, with one thing wrong.
    fn but(change: impl FnOnce(&mut Cluster)) -> Cluster {
        let mut cluster = well();
        change(&mut cluster);
        cluster
    }

    fn said_by(cluster: &mut Cluster, node: u16) -> &mut ReplicaStatus {
        &mut cluster.cores.get_mut(&core(node)).expect("it answers").status.replicas[0]
    }

    fn health(cluster: &Cluster) -> Health {
        cluster.health(&cluster.configuration.shards[0])
    }

    #[test]
    fn a_shard_is_well_if_everybody_says_so() {
        let cluster = well();
        assert_eq!(health(&cluster), Health { words: "healthy".to_owned(), is_well: true, doing: None });
        assert!(cluster.is_well() && cluster.to_be_asked_again().is_empty());
        assert_eq!(cluster.summary(), "All is well: 3 nodes are alive, 1 shard is healthy");
    }

    #[test]
    fn a_member_of_the_coordinators_group_that_is_silent_is_named() {
        let member = |number: u16| GroupMember {
            member: MemberId(u64::from(number)),
            node: NodeId(number),
            folder: 1,
            address: std::net::SocketAddr::from(([10, 0, 0, number as u8], 8400)),
        };
        let with = |members: u16, silent: u64| {
            but(|it| {
                it.configuration.group = (1..=members).map(member).collect();
                it.silent_members = BTreeSet::from([MemberId(silent)]);
            })
        };
        let three = with(3, 2);
        assert!(three.is_well(), "shards are served");
        let said = three.summary();
        assert!(said.contains("member on node-2 is silent: one more loss stops the coordinator"), "{said}");
        let said = with(5, 4).summary();
        assert!(said.contains("member on node-4 is silent: the coordinator survives the loss of 1 more"), "{said}");
        assert_eq!(three.one_machine(), None);
        let mut here = three.clone();
        here.configuration.group.iter_mut().for_each(|of| of.address.set_ip([127, 0, 0, 1].into()));
        assert!(here.one_machine().is_some_and(|said| said.contains("3 members are on one machine")));
        here.silent_members.clear();
        assert!(here.summary().starts_with("All is well"));
        // That its node is lost says enough.
        let mut lost = three;
        lost.configuration.nodes[1].alive = false;
        assert!(lost.summary().starts_with("All is well: 1 shard is healthy. Lost: node-2"), "{}", lost.summary());
    }

    /// Found by outsiders: `healthy` was shown while the primary's core did not call itself primary, and while a copy was empty.
    #[test]
    fn whatever_the_coordinator_says_is_not_enough() {
        let cases: [(&str, Cluster); 11] = [
            ("primary silent", but(|it| drop(it.cores.remove(&core(1))))),
            ("node-1 does not call itself primary", but(|it| said_by(it, 1).primary = false)),
            ("node-1 does not call itself primary", but(|it| said_by(it, 1).epoch = Epoch(2))),
            ("node-2 is silent", but(|it| drop(it.cores.remove(&core(2))))),
            ("node-2 has no copy", but(|it| it.cores.get_mut(&core(2)).unwrap().status.replicas.clear())),
            ("the copy of node-2 is empty", but(|it| said_by(it, 2).end.offset = LogEnd::START)),
            ("the copy of node-2 is damaged", but(|it| said_by(it, 2).complete = false)),
            ("the copy of node-2 is behind", but(|it| said_by(it, 2).end.offset = LogEnd(99))),
            ("node-3 is silent", but(|it| drop(it.cores.remove(&core(3))))),
            ("node-3 is no witness", but(|it| it.cores.get_mut(&core(3)).unwrap().status.witnesses[0].frozen = true)),
            ("memory full", but(|it| said_by(it, 1).memory = Memory::Full)),
        ];
        for (words, cluster) in cases {
            let found = health(&cluster);
            assert!(found.words == words && !found.is_well, "{words}: {found:?}");
            assert!(!cluster.is_well() && cluster.summary().contains(words), "{}", cluster.summary());
            let json = to_json(&cluster);
            assert!(json["shards"][0]["health"] == words && json["well"] == false, "{json:#}");
        }
        let low = but(|it| said_by(it, 1).memory = Memory::Low);
        assert_eq!((health(&low).words.as_str(), health(&low).is_well), ("memory low", true));
    }

    #[test]
    fn a_member_that_was_asked_too_early_is_asked_again() {
        let mut cluster = but(|it| said_by(it, 2).end.offset = LogEnd(99));
        assert_eq!(cluster.to_be_asked_again(), [core(2)]);
        let mut newer = cluster.cores[&core(2)].status.clone();
        newer.replicas[0].end.offset = LogEnd(100);
        cluster.is_newer(newer);
        assert!(cluster.is_well(), "it holds what was synced when its primary was asked");
    }

    #[test]
    fn what_a_recovery_waits_for_is_on_the_first_screen() {
        let cluster = but(|it| {
            it.configuration.shards[0].phase = ShardPhase::Recovering;
            said_by(it, 1).state = "waits for node-2: start it".to_owned();
        });
        assert_eq!(health(&cluster).words, "recovering");
        let said = screen::first(&cluster, 200);
        assert!(said.contains("recovering: waits for node-2: start it"), "{said}");
    }

    #[test]
    fn a_cluster_without_its_coordinator_or_its_nodes_is_not_well() {
        let alone = but(|it| it.coordinator = false);
        assert!(!alone.is_well() && alone.summary().contains("the coordinator does not answer"));
        let new = but(|it| {
            it.configuration.shards.clear();
            it.configuration.nodes.truncate(1);
        });
        assert!(!new.is_well());
        assert_eq!(new.summary(), "this cluster begins when 2 more nodes are there: start them (K0302)");
        let spare = but(|it| {
            let mut info = it.configuration.nodes[0].clone();
            (info.node, info.alive) = (NodeId(4), false);
            it.configuration.nodes.push(info);
        });
        assert!(spare.is_well() && spare.summary().contains("Lost: node-4"), "{}", spare.summary());
    }

    #[test]
    fn every_screen_fits_its_terminal() {
        let cluster = well();
        for width in 20..140 {
            for text in [screen::first(&cluster, width), screen::rest(&cluster, width)] {
                assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            }
        }
        let first = screen::first(&cluster, 40);
        assert!(first.contains("SHARD    PRIMARY  STATE\nshard-0  node-1   healthy\n"), "{first}");
        let rest = screen::rest(&cluster, 140);
        let repeats = rest.lines().find(|line| line.contains("REPEATS")).expect("a column");
        assert!(repeats.contains("DUPLICATES"), "{rest}");
    }
}
