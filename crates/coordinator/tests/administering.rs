//! What an operator orders about the coordinator's group, and about the level.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::time::Duration;

use kasha_coordinator::{CoordinatorOptions, Unchosen};
use kasha_types::{MemberId, NodeId};
use kasha_wire::message::AdminOrder::{
    self, AddMember, Finalize, GroupOf, Lead, Lease, MinBackups, RemoveMember, SayLease, SayMinBackups,
};
use kasha_wire::message::{AdminOutcome, Administer, Administered};
use kasha_wire::{AnyMessage, Later, Level, Levels, ShardPhase};

use crate::common::{CLIENT, MemoryDisk, World, options};
use crate::group::{Group, SIZE, STRANGER, first_identity, process_options};

impl Group {
    fn leader(&self) -> usize {
        let leaders = self.leaders();
        assert_eq!(leaders.len(), 1, "{leaders:?}");
        leaders[0]
    }

    /// Gives an order once. `None`: nobody has answered it.
    pub(crate) fn order(&mut self, order: AdminOrder) -> Option<AdminOutcome> {
        let (leader, now) = (self.leader(), self.now);
        self.answers.clear();
        self.member(leader).send_at(now, STRANGER, &Administer { nonce: 7, order });
        self.settle();
        self.run(100);
        self.answers.drain(..).find_map(|(_, answer)| match answer {
            AnyMessage::Administered(Administered { nonce: 7, outcome }) => Some(outcome),
            _ => None,
        })
    }

    /// Gives an order until it is done, as the operator's program does.
    pub(crate) fn obey(&mut self, order: AdminOrder) -> String {
        let mut last = None;
        for _ in 0..200 {
            match self.order(order) {
                Some(AdminOutcome::Done(text)) => return text,
                Some(AdminOutcome::Refused(why)) => panic!("{order:?} is refused: {why}"),
                later => last = later.or(last),
            }
            while self.leaders().is_empty() {
                self.run(10);
            }
        }
        panic!("{order:?} is not done: {last:?}")
    }

    fn refuses(&mut self, order: AdminOrder) -> String {
        match self.order(order) {
            Some(AdminOutcome::Refused(why)) => why,
            other => panic!("{order:?}: {other:?}"),
        }
    }

    fn counting(&mut self) -> BTreeSet<u64> {
        let leader = self.leader();
        self.member(leader).coordinator.members().into_iter().map(|MemberId(id)| id).collect()
    }

    fn is_well(&mut self) -> bool {
        let leader = self.leader();
        self.config(leader).shards.iter().all(|shard| shard.phase == ShardPhase::Serving)
    }
}

/// With flags that count at each beginning of a lead, each election would change what the cluster promises.
#[test]
fn r9_12_members_with_other_flags_change_nothing_and_an_order_does() {
    let mut group = Group::serving();
    let leader = group.leader();
    assert_eq!(group.config(leader).min_backups, 1);
    for index in 0..SIZE {
        let mut options = process_options(index, 2, first_identity(index));
        (options.min_backups, options.nodes, options.unchosen) =
            (0, 3 + u16::try_from(index).unwrap(), Unchosen::default());
        group.kill(index);
        let disk = MemoryDisk { durable: group.folders.remove(&index).unwrap(), ..MemoryDisk::default() };
        group.members[index] = Some(World::try_new(options, disk, group.now).unwrap());
        group.run(3_000);
    }
    let mut wanted = 3;
    for index in (0..SIZE).chain(0..SIZE) {
        group.obey(Lead(NodeId(u16::try_from(index + 1).unwrap())));
        let config = group.config(group.leader());
        assert_eq!(config.min_backups, 1);
        assert!(config.nodes_wanted >= wanted, "more nodes may be wanted, and not fewer");
        wanted = config.nodes_wanted;
    }
    assert_eq!(wanted, 5);
    assert!(group.refuses(MinBackups(2)).contains("K0510"), "f = 1");
    let done = group.obey(MinBackups(0));
    for index in 0..SIZE {
        group.obey(Lead(NodeId(u16::try_from(index + 1).unwrap())));
        assert_eq!((group.obey(SayMinBackups), group.config(group.leader()).min_backups), (done.clone(), 0));
    }
}

#[test]
fn the_lead_goes_where_the_operator_wants_it() {
    let mut group = Group::serving();
    for index in [1, 2, 0, 1] {
        let node = NodeId(index + 1);
        group.obey(Lead(node));
        assert_eq!(group.leader(), usize::from(index));
        assert_eq!(group.order(Lead(node)), Some(AdminOutcome::Done(format!("the member of {node} leads"))));
    }
    assert!(group.refuses(Lead(NodeId(9))).contains("K0510"));
    let silent = (group.leader() + 1) % 3;
    group.kill(silent);
    group.run(4_000);
    assert!(group.refuses(Lead(NodeId(silent as u16 + 1))).contains("says nothing"));
    assert!(group.is_well());
}

#[test]
fn r9_6_a_member_leaves_when_another_one_counts_in_its_place() {
    let mut group = Group::serving_of(4);
    for (removed, left) in [(3, BTreeSet::from([1, 2, 4])), (1, BTreeSet::new())] {
        if left.is_empty() {
            // Nobody can take the place of a second one: the folder of node 3 was a member's.
            let why = group.refuses(RemoveMember(NodeId(removed)));
            assert!(why.contains("no other node") && why.contains("size 1"), "{why}");
            continue;
        }
        let mut sizes = BTreeSet::new();
        while !matches!(group.order(RemoveMember(NodeId(removed))), Some(AdminOutcome::Done(_))) {
            sizes.insert(group.counting().len());
        }
        assert!(sizes.iter().all(|size| [3, 4].contains(size)), "never less than three: {sizes:?}");
        assert_eq!(group.counting(), left);
    }
    let why = group.refuses(AddMember(NodeId(3)));
    assert!(why.contains("becomes none again"), "{why}");
    assert!(group.is_well());
}

#[test]
fn the_leader_s_own_member_can_be_removed() {
    let mut group = Group::serving_of(4);
    let leader = group.leader();
    group.obey(RemoveMember(NodeId(leader as u16 + 1)));
    assert_ne!(group.leader(), leader);
    assert_eq!(group.counting().len(), 3);
    assert!(!group.counting().contains(&(leader as u64 + 1)));
    group.run(3_000);
    assert!(group.is_well());
}

/// The leader dies after it has answered: whoever leads next knows what was ordered.
#[test]
fn what_was_ordered_outlives_the_leader() {
    let mut group = Group::serving_of(4);
    let leader = group.leader();
    let removed = (0..3).find(|index| *index != leader).unwrap();
    let outcome = group.order(RemoveMember(NodeId(removed as u16 + 1)));
    assert!(matches!(outcome, Some(AdminOutcome::Later(_))), "{outcome:?}");
    group.kill(leader);
    group.run(6_000);
    group.start(leader);
    group.run(6_000);
    let counting = group.counting();
    assert!(counting.len() == 3 && !counting.contains(&(removed as u64 + 1)), "{counting:?}");
}

#[test]
fn the_group_grows_and_shrinks_by_two() {
    let mut group = Group::serving_of(5);
    let why = group.refuses(GroupOf(4));
    assert!(why.contains("odd"), "{why}");
    assert!(group.refuses(GroupOf(7)).contains("at most 5"));
    group.obey(AddMember(NodeId(5)));
    group.obey(GroupOf(5));
    assert_eq!(group.counting().len(), 5);
    for index in [0, 1] {
        group.kill(index);
    }
    group.run(6_000);
    let leader = group.leader();
    assert!(group.answers(leader), "three of five are a majority");
    [0, 1].into_iter().for_each(|index| group.start(index));
    group.run(3_000);
    group.obey(GroupOf(3));
    assert_eq!(group.counting().len(), 3);
    group.obey(GroupOf(1));
    assert_eq!(group.counting().len(), 1);
    let only = *group.counting().first().unwrap();
    assert!(group.refuses(RemoveMember(NodeId(only as u16))).contains("only member"));
    assert!(group.is_well());
}

#[test]
fn one_more_member_needs_another_one_beside_it() {
    let mut group = Group::serving_of(4);
    let why = group.refuses(AddMember(NodeId(4)));
    assert!(why.contains("no other node can host one"), "{why}");
    assert!(group.refuses(AddMember(NodeId(9))).contains("start it first"));
    assert!(group.refuses(GroupOf(5)).contains("only 4 nodes"));
    assert_eq!(group.counting().len(), 3);
}

fn levels(least: u16, latest: u16) -> Levels {
    Levels::new(Level(least), Level(latest)).unwrap()
}

impl Group {
    /// The process of this number is one of another release.
    fn upgrade(&mut self, index: usize, levels: Levels) {
        self.levels.insert(index, levels);
        self.kill(index);
        self.start(index);
        self.run(4_000);
    }
}

#[test]
fn r7_6_the_level_rises_when_every_process_can_work_at_it() {
    let mut group = Group::serving();
    assert!(matches!(group.order(Finalize), Some(AdminOutcome::Done(_))), "the highest that there is");
    group.upgrade(0, levels(1, 3));
    group.obey(Lead(NodeId(1)));
    group.run(1_000);
    let why = group.refuses(Finalize);
    assert!(why.contains("none above level 2") && why.contains("K0511"), "{why}");
    [1, 2].into_iter().for_each(|index| group.upgrade(index, levels(1, 3)));
    let told = group.obey(Finalize);
    assert!(told.contains("level 3"), "{told}");
    group.run(500);
    assert!((0..3).all(|index| group.member(index).coordinator.state().level() == Level(3)));
    // A process that can only work at the level before is refused, and says why. It writes nothing.
    assert_eq!(group.goodbyes, Vec::<String>::new());
    group.levels.insert(2, levels(1, 2));
    group.run(300);
    assert!(group.goodbyes.iter().any(|why| why.contains("K0511")), "{:?}", group.goodbyes);
    group.kill(2);
    let disk = MemoryDisk { durable: group.folders.remove(&2).unwrap(), ..MemoryDisk::default() };
    let options = CoordinatorOptions { levels: levels(1, 2), ..process_options(2, 99, first_identity(2)) };
    let refused = World::try_new(options, disk, group.now).err().unwrap();
    assert!(refused.to_string().contains("K0511"), "{refused}");
}

/// R10.12, R7.6: below level 2 the unix time of ClusterTime 0 is known, and not told; a member of the release before counts the same. With the
/// level it is in a configuration, and in every later one.
#[test]
fn r10_12_the_unix_origin_is_told_from_level_2_on() {
    let mut world = World::new(CoordinatorOptions { levels: levels(1, 1), ..options(3, 1, 1) });
    (1..=3).for_each(|id| world.add_node(id, 1));
    world.run(3_000);
    let origin = world.coordinator.state().unix_origin().expect("a leader has read its clock");
    let version = world.config().version;
    assert!(!world.told_origins.is_empty() && world.told_origins.values().all(|told| told.get().is_none()));
    // The next release, on the same folder.
    world.options.levels = levels(1, 2);
    world.restart();
    world.run(2_000);
    assert_eq!((world.config().version, world.coordinator.state().level()), (version, Level(1)));
    world.told_origins.clear();
    let order = Administer { nonce: 1, order: Finalize };
    world.send(CLIENT, &order);
    world.run(500);
    assert_eq!(world.coordinator.state().level(), Level(2));
    world.node(2).up = false;
    world.run(3_000);
    let told = world.told_origins.clone();
    assert!(told.len() >= 2 && world.config().version > version.next(), "{told:?}");
    assert!(told.values().all(|told| *told == Later::at(Level(2), Some(origin))), "{told:?}");
}

/// A size that nobody chose: as large as the nodes allow.
#[test]
fn r9_14_a_group_is_no_larger_than_the_nodes_can_host() {
    let mut group = Group::with(|options| options.unchosen.group = true);
    group.without_control.insert(2);
    group.run(3_000);
    assert_eq!(group.counting().len(), 1, "two could host one: a group has an odd number");
    assert!(group.is_well() && !group.config(group.leader()).shards.is_empty());
    let mut chosen = Group::new();
    chosen.without_control.insert(2);
    chosen.run(3_000);
    assert!(chosen.config(chosen.leader()).shards.is_empty(), "who has chosen three waits for three");
}

/// Orders alone: four members leave, and others are added, while no newcomer catches up (their control ports are closed, say).
#[test]
fn orders_never_make_the_leader_propose_what_may_not_be() {
    let mut group = Group::serving_of(9);
    group.obey(GroupOf(5));
    let leader = group.leader();
    assert_eq!(group.counting().len(), 5);
    let members: BTreeSet<NodeId> = group.config(leader).group.iter().map(|of| of.node).collect();
    let others: Vec<NodeId> = (1..=9).map(NodeId).filter(|node| !members.contains(node)).collect();
    // The nodes are alive, their member ports do not answer.
    for node in &others {
        group.kill(usize::from(node.0) - 1);
    }
    let staying = NodeId(leader as u16 + 1);
    let mut leave = members.into_iter().filter(|node| *node != staying);
    for other in others {
        group.order(RemoveMember(leave.next().unwrap()));
        group.order(AddMember(other));
    }
}

/// The leader dies between the two operations of a removal: the list, and `MemberGone`.
#[test]
fn r9_6_a_removal_that_was_cut_in_two_is_completed_by_the_next_leader() {
    const MEMBER_GONE: u8 = 19;
    let mut group = Group::serving_of(4);
    let leader = group.leader();
    let removed = NodeId((0..3).find(|index| *index != leader).unwrap() as u16 + 1);
    group.loses = Some(MEMBER_GONE);
    for _ in 0..100 {
        group.order(RemoveMember(removed));
        if group.mute.is_some() {
            break;
        }
    }
    assert_eq!(group.mute, Some(leader));
    group.kill(leader);
    (group.loses, group.mute) = (None, None);
    group.run(20_000);
    assert!(!group.leaders().is_empty(), "nobody leads, and two of the three members are there");
    group.start(leader);
    group.run(6_000);
    group.obey(RemoveMember(removed));
}

/// One is to leave and its successor does not come; two others die; the operator makes the group smaller.
#[test]
fn a_group_shrinks_by_its_dead_members_if_another_one_may_not_leave() {
    let mut group = Group::serving_of(6);
    group.obey(GroupOf(5));
    let leader = group.leader();
    let members: Vec<NodeId> = group.config(leader).group.iter().map(|of| of.node).collect();
    let sixth = (1..=6).map(NodeId).find(|node| !members.contains(node)).unwrap();
    group.kill(usize::from(sixth.0) - 1);
    let mut others = members.into_iter().filter(|node| usize::from(node.0) - 1 != leader);
    group.order(RemoveMember(others.next().unwrap()));
    for dead in others.take(2) {
        group.kill(usize::from(dead.0) - 1);
    }
    group.run(3_000);
    let mut last = None;
    for _ in 0..300 {
        last = group.order(GroupOf(3));
        if group.counting().len() == 3 {
            return;
        }
    }
    panic!("30 s later: {last:?} {:?}", group.counting());
}

/// By default: nobody chose a size, and the ports of members (a thousand further) are not reachable from the first process.
#[test]
fn r9_14_a_new_cluster_forms_although_members_are_not_reached_where_they_listen() {
    let mut group = Group::with(|options| options.unchosen.group = true);
    group.cuts.extend([(0, 1), (0, 2)]);
    group.run(60_000);
    assert!(
        !group.config(group.leader()).shards.is_empty(),
        "nothing is placed after a minute, all three nodes are alive"
    );
}

/// A release that has dropped the first level: a newcomer.
#[test]
fn r7_6_a_newcomer_learns_from_a_leader_that_does_not_know_the_first_level() {
    newcomer_at(levels(2, 3));
}

#[test]
fn r7_6_the_same_with_a_release_that_knows_the_first_level() {
    newcomer_at(levels(1, 3));
}

fn newcomer_at(later: Levels) {
    let mut group = Group::serving_of(4);
    for index in 0..4 {
        group.levels.insert(index, levels(1, 2));
        group.kill(index);
        group.start_any(index);
        group.run(4_000);
    }
    group.obey(Finalize);
    for index in 0..3 {
        group.levels.insert(index, later);
        group.kill(index);
        group.start_any(index);
        group.run(4_000);
    }
    group.levels.insert(3, later);
    group.kill(3);
    group.start_any(3);
    group.run(4_000);
    let leader = group.leader();
    assert_eq!(group.member(leader).coordinator.state().level(), Level(2));
    let removed = NodeId((0..3).find(|index| *index != leader).unwrap() as u16 + 1);
    let mut last = None;
    for _ in 0..200 {
        last = group.order(RemoveMember(removed));
        if matches!(last, Some(AdminOutcome::Done(_))) {
            return;
        }
    }
    panic!("{last:?}");
}

/// A release that has dropped the first level: a new cluster.
#[test]
fn r7_6_a_new_cluster_of_a_release_that_does_not_know_the_first_level() {
    let mut group = Group::with(|options| options.levels = levels(2, 3));
    group.levels.extend((0..3).map(|index| (index, levels(2, 3))));
    group.run(5_000);
    assert!(!group.config(group.leader()).shards.is_empty(), "{:?}", group.goodbyes.iter().collect::<BTreeSet<_>>());
}

/// One is added while the group still shrinks.
#[test]
fn who_is_added_while_the_group_shrinks_becomes_a_member_or_none() {
    let mut group = Group::serving_of(6);
    group.obey(GroupOf(5));
    let leader = group.leader();
    let members: Vec<NodeId> = group.config(leader).group.iter().map(|of| of.node).collect();
    let sixth = (1..=6).map(NodeId).find(|node| !members.contains(node)).unwrap();
    let next = members.into_iter().find(|node| usize::from(node.0) - 1 != leader).unwrap();
    group.obey(Lead(next));
    let mut last = None;
    for _ in 0..300 {
        last = group.order(AddMember(sixth));
        if matches!(last, Some(AdminOutcome::Done(_) | AdminOutcome::Refused(_))) {
            return;
        }
    }
    panic!("30 s later: {last:?}, {:?} {:?}", group.counting(), group.config(group.leader()).group);
}

/// The operator made the group small; the flags of the first start say three.
#[test]
fn r9_12_what_an_operator_chose_outlives_a_restart() {
    let mut group = Group::serving_of(6);
    group.obey(GroupOf(1));
    assert_eq!(group.counting().len(), 1);
    group.run(6_000);
    assert_eq!(group.counting().len(), 1);
    let only = group.leader();
    group.kill(only);
    group.start(only);
    group.run(6_000);
    assert_eq!(group.counting().len(), 1);
}

/// Somebody was to leave, and the successor died: the operator thinks better of it.
#[test]
fn an_order_to_leave_can_be_taken_back() {
    let mut group = Group::serving_of(4);
    let leader = group.leader();
    let removed = NodeId((0..3).find(|index| *index != leader).unwrap() as u16 + 1);
    group.kill(3);
    group.node_is_up(3, false);
    group.run(60_000);
    let outcome = group.order(AddMember(removed));
    assert!(matches!(outcome, Some(AdminOutcome::Done(_))), "{outcome:?}");
}

impl Group {
    /// As `start`, also of a process that was no member.
    fn start_any(&mut self, index: usize) {
        if index < SIZE {
            return self.start(index);
        }
        let disk = MemoryDisk { durable: self.folders.remove(&index).unwrap(), ..MemoryDisk::default() };
        let levels = self.levels.get(&index).copied().unwrap_or_default();
        let options = CoordinatorOptions { levels, ..process_options(index, 50, first_identity(index)) };
        self.members[index] = Some(World::try_new(options, disk, self.now).unwrap());
    }
}

/// Found by seed `group_orders` 566: a folder that had been invited once, and had learnt that, was invited again as another member, which it can
/// never be; the new cluster never formed.
#[test]
fn r9_6_who_was_invited_and_removed_is_invited_as_the_same_member() {
    let mut group = Group::new();
    group.run(100);
    while group.config(0).group.len() < 2 {
        group.run(10);
    }
    let invited = group.config(0).group[1];
    while group.member(usize::from(invited.node.0) - 1).coordinator.members().is_empty() {
        group.run(10);
    }
    for _ in 0..10 {
        let _ = group.order(RemoveMember(invited.node));
    }
    group.run(5_000);
    assert!(group.is_well() && group.counting().len() == SIZE, "{:?}", group.config(0).group);
}

/// A lead begins with a lease, so another member leads next. No primary is moved by that.
#[test]
fn r9_12_an_operator_changes_the_lease() {
    let mut group = Group::serving();
    let before = (group.leader(), group.config(group.leader()).shards.clone());
    for millis in [300, 1_000, 300] {
        let done = group.obey(Lease(millis));
        assert!(done.contains(if millis == 300 { "300ms" } else { "1s" }), "{done}");
        group.run(3_000);
        let leader = group.leader();
        let timing = group.member(leader).coordinator.state().timing().expect("it is a setting");
        assert_eq!(timing.lease().as_millis(), u128::from(millis));
        assert_eq!(group.obey(SayLease), done);
    }
    let leader = group.leader();
    assert_ne!(leader, before.0);
    assert_eq!(group.config(leader).shards, before.1);
    group.kill(leader);
    group.run(3_000);
    let next = group.leader();
    assert_eq!(group.member(next).coordinator.state().timing().map(|timing| timing.lease().as_millis()), Some(300));
}

/// Found by review: the leader dies when the list without the member is committed, and the word that the member is gone is not. The next one took
/// the member for an invitation that ends, and invited the folder again.
#[test]
fn r9_6_who_has_left_is_invited_no_more() {
    let mut group = Group::serving_of(4);
    let leader = group.leader();
    let leaves = *group.config(leader).group.iter().rev().find(|of| usize::from(of.node.0) - 1 != leader).unwrap();
    group.loses = Some(19);
    for _ in 0..20 {
        if group.mute.is_none() && group.leaders().len() == 1 {
            let _ = group.order(RemoveMember(leaves.node));
        }
    }
    let muted = group.mute.take().expect("the leader has lost what it said");
    group.run(3_000);
    group.loses = None;
    group.kill(muted);
    group.start(muted);
    group.run(10_000);
    let leader = group.leader();
    assert!(
        !group.config(leader).group.iter().any(|of| of.member == leaves.member),
        "{:?}",
        group.config(leader).group
    );
    let other = group.config(leader).group.iter().find(|of| usize::from(of.node.0) - 1 != leader).unwrap().node;
    for _ in 0..10 {
        if group.leaders().len() == 1 {
            let _ = group.order(RemoveMember(other));
        }
    }
    group.run(5_000);
    let leader = group.leader();
    assert!(!group.config(leader).group.iter().any(|of| of.folder == leaves.folder), "a folder becomes a member once");
}

/// Found by review: rounds gathered questions for an eighth of the lease before, so that a shorter one was over when it was told.
#[test]
fn r9_12_a_shorter_lease_is_told_before_it_is_over() {
    let mut group = Group::with(|options| {
        options.node_lease = Duration::from_secs(30);
        options.drift_bound = options.node_lease / 20;
    });
    group.run(20_000);
    group.obey(Lease(300));
    group.run(40_000);
    let leader = group.leader();
    let node = group.nodes[&NodeId(1)].clone();
    for _ in 0..20 {
        let now = group.now;
        let mut beat = group.member(leader).heartbeat_of(&node, 0, node.reports());
        (beat.sent, beat.answered) = (now, now);
        group.answers.clear();
        group.member(leader).send_at(now, STRANGER, &beat);
        group.settle();
        group.run(50);
        let is_told = |answer: &AnyMessage| matches!(answer, AnyMessage::HeartbeatAnswer(said) if said.sent == now && said.lease_millis == 285);
        assert!(group.answers.iter().any(|(_, answer)| is_told(answer)), "{:?}", group.answers);
    }
}
