//! Checks the state between any two commands, and each command before it is applied.
//!
//! For commands that the machine decides, a failed check is a bug of ours. A log file may contain anything, even under
//! right checksums. So every command of a log is checked before it is applied, and refused with a text.

use kasha_types::limits::{CORES_MAX, FAULTS_MAX, NODES_MAX, SHARDS_MAX, SLOTS};
use kasha_types::planted::{self, Bug};
use kasha_types::{Epoch, Incarnation, ListVersion, NodeId, ShardId};
use kasha_wire::{Member, MemberState, ShardConfig, ShardPhase};

use crate::limits::{COUNT_MAX, TABLE_CLIENTS_MAX};
use crate::state::ShardRecord;
use crate::{Command, State, Timing};

pub(crate) type Checked = Result<(), String>;

/// Fails with the text if the condition is false; the text is made only then.
macro_rules! must {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}
pub(crate) use must;

impl State {
    /// Whether this command may be applied now.
    pub(crate) fn permits(&self, command: &Command) -> Checked {
        let needs = command.level();
        must!(needs <= self.level, "R7.6: it needs {needs}, and the cluster is at {}", self.level);
        match command {
            Command::NodeSeen { node, incarnation, addresses, .. } => {
                self.permits_node(*node, *incarnation, addresses.len())
            }
            Command::NodeLost { node } => self.knows(&[*node]),
            Command::Place { shards } => self.permits_place(shards),
            Command::Promote { shard, epoch, primary, recover_from, .. } => {
                self.permits_promotion(*shard, *epoch, *primary, recover_from)
            }
            Command::Recovered { shard, epoch, list, witnesses } => {
                let config = self.in_term(*shard, *epoch)?;
                must!(config.phase == ShardPhase::Recovering, "{shard} is not recovering");
                let keeps = *list == config.list && *witnesses == config.witnesses;
                must!(keeps || follows(config.list, *list), "F2: list versions grow by one");
                self.knows(witnesses)
            }
            Command::SetMembers { shard, epoch, members } => {
                let config = self.in_term(*shard, *epoch)?;
                let is_new = |member: &Member| config.member(member.node) != Some(*member);
                let decreed = |member: &Member| member.state == MemberState::Complete && is_new(member);
                must!(!members.iter().any(decreed), "R7.2: completeness is not decreed");
                Ok(())
            }
            Command::Copied { shard, epoch, node } => {
                must!(self.in_term(*shard, *epoch)?.member(*node).is_some(), "{node} is no member of {shard}");
                Ok(())
            }
            Command::CloseList { shard, list } => {
                let config = self.placed(*shard)?;
                let is_in_use = config.list == *list && !config.closing && config.phase == ShardPhase::Serving;
                must!(is_in_use, "{shard} does not use {list}");
                Ok(())
            }
            Command::OpenList { shard, list, witnesses } => {
                let config = self.placed(*shard)?;
                let closes = config.closing || planted::is_on(Bug::ListChangedAtOnce);
                must!(closes && follows(config.list, *list), "R6.2: {shard} is not closing");
                self.knows(witnesses)
            }
            Command::EmptyList { shard, list } => self.permits_empty_list(*shard, *list),
            Command::GiveUpWitnesses { shard, epoch } => self.permits_giving_up(*shard, *epoch, None),
            Command::GiveUpMembers { shard, epoch, recover_from } => {
                self.permits_giving_up(*shard, *epoch, Some(recover_from))
            }
            Command::Table { .. } => {
                must!(!self.configuration.shards.is_empty(), "tables need shards");
                Ok(())
            }
            Command::GroupWanted { .. }
            | Command::MemberAt { .. }
            | Command::MemberGone { .. }
            | Command::InvitationEnds { .. }
            | Command::MemberLeaves { .. }
            | Command::MemberStays { .. }
            | Command::Raise { .. } => self.permits_of_group(command),
            Command::ReserveTime { .. }
            | Command::ReserveClients { .. }
            | Command::UnixOrigin { .. }
            | Command::Timing { .. } => self.permits_unpublished(command),
            Command::Configure { min_backups, .. } => {
                must!(*min_backups <= self.configuration.faults, "a shard has never {min_backups} backups");
                Ok(())
            }
            Command::BoundLeases { .. } => Ok(()),
        }
    }

    fn permits_unpublished(&self, command: &Command) -> Checked {
        match command {
            Command::ReserveTime { to, least, .. } => {
                must!(*to >= self.time_reserved, "F2: reservations only grow");
                must!(least <= to, "F2: ClusterTime stays within its reservation");
            }
            Command::ReserveClients { below } => {
                must!(*below >= self.clients_below, "F2: reservations only grow");
            }
            Command::UnixOrigin { .. } => {
                must!(self.unix_origin.is_none(), "R10.12: the unix time of ClusterTime 0 is said once");
            }
            Command::Timing { timing } => timing.check()?,
            _ => unreachable!("it changes the configuration: {command:?}"),
        }
        Ok(())
    }

    fn permits_promotion(&self, shard: ShardId, epoch: Epoch, primary: NodeId, recover_from: &[NodeId]) -> Checked {
        let config = self.placed(shard)?;
        must!(config.epoch.0.checked_add(1) == Some(epoch.0), "F2: epochs grow by one");
        let holds_all = recover_from.is_empty() || recover_from.contains(&primary);
        must!(holds_all, "R7.2: {primary} is no complete copy of {shard}");
        self.knows(&[primary, config.primary])
    }

    fn permits_empty_list(&self, shard: ShardId, list: ListVersion) -> Checked {
        let config = self.placed(shard)?;
        let serves = config.phase == ShardPhase::Serving;
        must!(serves && follows(config.list, list), "R7.7: {shard} does not serve under the list before {list}");
        Ok(())
    }

    /// If `recover_from` is given, members are given up, and these stay. Otherwise the witnesses are given up.
    fn permits_giving_up(&self, shard: ShardId, epoch: Epoch, recover_from: Option<&Vec<NodeId>>) -> Checked {
        let config = self.placed(shard)?;
        must!(config.epoch.0.checked_add(1) == Some(epoch.0), "F2: epochs grow by one");
        must!(config.phase == ShardPhase::Recovering, "R7.7: {shard} is not recovering");
        let Some(stays) = recover_from else {
            must!(!config.witnesses.is_empty(), "R7.7: {shard} waits for no witness");
            return Ok(());
        };
        let is_less = stays.len() < config.recover_from.len();
        let is_known = stays.iter().all(|node| config.recover_from.contains(node));
        // A shard without a member to recover from would begin anew, empty.
        must!(is_less && is_known && stays.contains(&config.primary), "R7.7: {shard} cannot do with {stays:?}");
        Ok(())
    }

    fn permits_node(&self, node: NodeId, incarnation: Incarnation, cores: usize) -> Checked {
        must!(cores <= usize::from(CORES_MAX), "{node} has {cores} cores");
        match self.incarnation(node) {
            Some(known) => must!(incarnation >= known, "F2: incarnations only grow"),
            None => must!(self.nodes.len() < NODES_MAX, "there are too many nodes"),
        }
        Ok(())
    }

    fn permits_place(&self, shards: &[ShardConfig]) -> Checked {
        must!(self.configuration.shards.is_empty(), "shards are placed once");
        must!(shards.len() == usize::from(self.shards_wanted), "{} shards are placed", shards.len());
        shards.iter().try_for_each(|shard| {
            self.knows(&[shard.primary])?;
            self.knows(&shard.witnesses)
        })
    }

    fn placed(&self, shard: ShardId) -> Result<&ShardConfig, String> {
        self.configuration.shard(shard).ok_or_else(|| format!("{shard} is not placed"))
    }

    fn in_term(&self, shard: ShardId, epoch: Epoch) -> Result<&ShardConfig, String> {
        let config = self.placed(shard)?;
        must!(config.epoch == epoch, "{shard} is in another term than {epoch}");
        Ok(config)
    }

    fn knows(&self, nodes: &[NodeId]) -> Checked {
        let stranger = nodes.iter().find(|&&node| self.node_index(node).is_none());
        stranger.map_or(Ok(()), |node| Err(format!("{node} is not known")))
    }

    /// Checks what must hold between any two commands.
    ///
    /// # Panics
    /// If a check fails.
    pub fn assert_invariants(&self) {
        if let Err(why) = self.check() {
            panic!("{why}");
        }
    }

    /// What must hold between any two commands.
    pub(crate) fn check(&self) -> Checked {
        let config = &self.configuration;
        must!(config.faults <= FAULTS_MAX, "{} faults", config.faults);
        must!(config.min_backups <= config.faults, "{} backups at least", config.min_backups);
        self.timing.map_or(Ok(()), Timing::check)?;
        must!((1..=SHARDS_MAX).contains(&self.shards_wanted), "{} shards are wanted", self.shards_wanted);
        let counts = [config.version.0, self.applied, self.clients_below.0];
        let is_near_its_end = counts.iter().any(|&count| count > COUNT_MAX) || self.next_table.0 > u32::MAX / 2;
        must!(!is_near_its_end, "a count is near its end: {counts:?} {}", self.next_table);
        let (least, reserved) = (self.time_anchor.least, self.time_reserved);
        must!(least <= reserved, "F2: ClusterTime stays within its reservation: {least:?}, {reserved:?}");
        must!(config.nodes.len() == self.nodes.len() && self.nodes.len() <= NODES_MAX, "{} nodes", self.nodes.len());
        must!(config.nodes.is_sorted_by(|a, b| a.node < b.node), "nodes are in order and distinct");
        for info in &config.nodes {
            must!(info.cores.len() <= usize::from(CORES_MAX), "{} has {} cores", info.node, info.cores.len());
        }
        must!(config.shards.len() == self.shards.len(), "{} shards", self.shards.len());
        let is_placed = config.shards.len() == usize::from(self.shards_wanted);
        must!(is_placed || (config.shards.is_empty() && config.tables.is_empty()), "all shards are placed, or none");
        for (index, shard) in config.shards.iter().enumerate() {
            must!(usize::from(shard.shard.0) == index, "shards are in order");
            self.check_shard(shard, &self.shards[index])?;
        }
        must!(self.table_answers.len() <= TABLE_CLIENTS_MAX, "{} table answers", self.table_answers.len());
        self.check_members()?;
        self.check_tables()
    }

    fn check_tables(&self) -> Checked {
        let config = &self.configuration;
        must!(config.tables.is_sorted_by(|a, b| a.table < b.table), "tables are in order");
        must!(config.tables.last().is_none_or(|info| info.table < self.next_table), "table ids are not reused");
        let mut tablets = &config.tablets[..];
        for info in config.tables.iter().filter(|_| !config.shards.is_empty()) {
            let count = tablets.iter().take_while(|tablet| tablet.table == info.table).count();
            let (own, others) = tablets.split_at(count);
            must!(count == 1 || count == config.shards.len(), "{} has {count} tablets", info.table);
            let mut next = 0;
            for tablet in own {
                let follows = tablet.first.0 == next && (next..SLOTS).contains(&tablet.last.0);
                must!(follows, "tablets are in order: {tablet:?}");
                self.placed(tablet.shard)?;
                next = tablet.last.0 + 1;
            }
            must!(next == SLOTS, "every slot of {} has one owner", info.table);
            tablets = others;
        }
        must!(tablets.is_empty(), "{} tablets are of no table", tablets.len());
        Ok(())
    }

    fn check_shard(&self, shard: &ShardConfig, record: &ShardRecord) -> Checked {
        let id = shard.shard;
        must!(shard.epoch >= Epoch(1) && shard.list >= ListVersion(1), "{id}: {shard:?}");
        let is_near_its_end = shard.epoch.0 > u32::MAX / 2 || shard.list.0 > COUNT_MAX;
        must!(!is_near_its_end, "a count is near its end: {shard:?}");
        let complete = |node| shard.member(node).is_some_and(|member| member.state == MemberState::Complete);
        must!(complete(shard.primary), "R7.2: {id}'s primary is a complete member: {shard:?}");
        must!(shard.members.len() <= self.replicas(), "{id} has too many members: {shard:?}");
        let mut nodes: Vec<NodeId> = shard.members.iter().map(|member| member.node).collect();
        self.knows(&nodes)?;
        self.knows(&shard.witnesses)?;
        nodes.sort_unstable();
        nodes.dedup();
        must!(nodes.len() == shard.members.len(), "{id}'s members are distinct nodes: {shard:?}");
        match shard.phase {
            ShardPhase::Serving => {
                must!(shard.recover_from.is_empty(), "{id} serves: {shard:?}");
                must!(!shard.witnesses.contains(&shard.primary), "R6.1: {id}: {shard:?}");
            }
            ShardPhase::Recovering => {
                must!(!shard.closing, "{id}: a list is replayed or closed, not both: {shard:?}");
                if !shard.recover_from.is_empty() {
                    must!(shard.recover_from.contains(&shard.primary), "R7.2: {id}: {shard:?}");
                    let joins_over = |member: &Member| {
                        member.state == MemberState::Joining && shard.recover_from.contains(&member.node)
                    };
                    let is_kept = !shard.members.iter().any(joins_over);
                    must!(is_kept, "{id}: a copy to recover from is overwritten: {shard:?}");
                }
            }
        }
        let witnesses = shard.witnesses.len();
        must!(
            witnesses == 0 || witnesses == usize::from(self.configuration.faults),
            "R6.1: {id} has exactly f witnesses or none: {shard:?}"
        );
        must!(record.witness_boots.len() == witnesses, "{id}: each witness has a boot");
        Ok(())
    }
}

fn follows(list: ListVersion, next: ListVersion) -> bool {
    list.0.checked_add(1) == Some(next.0)
}

#[cfg(test)]
mod tests {
    use kasha_types::TableId;
    use kasha_wire::Reader;

    use super::*;

    /// The state in the newest golden file: a header, and a record that is a snapshot.
    fn golden() -> State {
        let files = include_bytes!("../golden/log-v4.bin");
        let last = files.windows(8).rposition(|bytes| bytes == b"KASHACRD").unwrap();
        State::take_format4(&mut Reader::new(&files[last + 24 + 16..])).unwrap()
    }

    type Change = fn(&mut State);

    #[test]
    fn a_state_that_cannot_be_is_found_out() {
        assert_eq!(golden().check(), Ok(()));
        let cases: &[(Change, &str)] = &[
            (|state| state.configuration.faults = FAULTS_MAX + 1, "faults"),
            (|state| state.configuration.min_backups = state.configuration.faults + 1, "backups at least"),
            (
                |state| state.timing = Some(Timing::of_lease(std::time::Duration::from_secs(61))),
                "from 10 ms to a minute",
            ),
            (|state| state.shards_wanted = 0, "wanted"),
            (|state| state.shards_wanted = SHARDS_MAX + 1, "wanted"),
            (|state| state.shards_wanted = 1, "all shards are placed"),
            (|state| state.configuration.version.0 = u64::MAX, "near its end"),
            (|state| state.next_table.0 = u32::MAX, "near its end"),
            (|state| state.time_anchor.least.0 = state.time_reserved.0 + 1, "within its reservation"),
            (|state| state.nodes.truncate(2), "nodes"),
            (|state| state.configuration.nodes.swap(0, 1), "in order"),
            (|state| state.configuration.nodes[1].node = NodeId(1), "distinct"),
            (|state| state.shards.truncate(1), "1 shards"),
            (|state| state.configuration.shards.swap(0, 1), "shards are in order"),
            (|state| state.configuration.shards[0].epoch = Epoch(0), "shard-0"),
            (|state| state.configuration.shards[0].epoch = Epoch(u32::MAX), "near its end"),
            (|state| state.configuration.shards[0].witnesses = vec![NodeId(777)], "not known"),
            (|state| state.configuration.shards[0].members[1].node = NodeId(777), "not known"),
            (|state| state.configuration.shards[0].members.truncate(0), "complete member"),
            (|state| state.shards[0].witness_boots.clear(), "has a boot"),
            (|state| state.configuration.tables.swap(0, 1), "tables are in order"),
            (|state| state.next_table = TableId(2), "not reused"),
            (|state| state.configuration.tablets.truncate(3), "every slot"),
            (|state| state.configuration.tablets.truncate(2), "has 0 tablets"),
            (|state| state.configuration.tablets.swap(1, 2), "every slot"),
            (|state| _ = state.configuration.tables.pop(), "tablets are of no table"),
            (|state| state.configuration.tablets[1].first.0 += 1, "tablets are in order"),
            (|state| state.configuration.tablets[1].last.0 = u16::MAX, "tablets are in order"),
            (|state| state.configuration.tablets[1].last.0 -= 1, "every slot"),
            (|state| state.configuration.tablets[1].shard = ShardId(9), "not placed"),
        ];
        for (number, (change, why)) in cases.iter().enumerate() {
            let mut state = golden();
            change(&mut state);
            let text = state.check().expect_err("it cannot be");
            assert!(text.contains(why), "{number}: {text}, but not {why}");
        }
    }

    #[test]
    fn more_answers_than_are_kept_are_found_out() {
        let mut state = golden();
        let answer = state.table_answers.values().next().unwrap().clone();
        let many = (1..).map(|client| (kasha_types::ClientId(client), answer.clone()));
        state.table_answers = many.take(TABLE_CLIENTS_MAX).collect();
        assert_eq!(state.check(), Ok(()));
        state.table_answers.insert(kasha_types::ClientId(u64::MAX), answer);
        assert!(state.check().is_err());
    }
}
