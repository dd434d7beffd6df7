//! Chooses primaries, members and witnesses: functions of the state and of the nodes' reports about each other. Ties
//! are broken by node id, so that a choice can be repeated.

use kasha_types::limits::SLOTS;
use kasha_types::{ConfigVersion, Epoch, ListVersion, NodeId, ShardId, Slot, TableId};
use kasha_wire::{Member, MemberState, ShardConfig, ShardPhase, Tablet};

use crate::State;
use crate::evidence::Sight;

/// A table's slots, split evenly into one contiguous range for each shard.
pub(crate) fn tablets(table: TableId, shards: u16) -> impl Iterator<Item = Tablet> {
    let bound = move |shard: u16| {
        u16::try_from(u32::from(shard) * u32::from(SLOTS) / u32::from(shards)).expect("at most SLOTS")
    };
    (0..shards).map(move |shard| Tablet {
        table,
        first: Slot(bound(shard)),
        last: Slot(bound(shard + 1) - 1),
        shard: ShardId(shard),
    })
}

/// The tablet of a table of which one shard has all slots: the shard that has the fewest such tables, beside the `others`.
pub(crate) fn one_tablet(table: TableId, others: &[Tablet], shards: u16) -> Tablet {
    let (first, last) = (Slot(0), Slot(SLOTS - 1));
    let is_whole = |tablet: &&Tablet| (tablet.first, tablet.last) == (first, last);
    let mut whole = vec![0u32; usize::from(shards)];
    others.iter().filter(is_whole).for_each(|tablet| whole[usize::from(tablet.shard.0)] += 1);
    let shard = (0..shards).min_by_key(|&shard| whole[usize::from(shard)]).expect("there is a shard");
    Tablet { table, first, last, shard: ShardId(shard) }
}

/// The first placement: primaries, backups and witnesses are spread over the nodes in turn. No shard has served yet, so
/// every member is complete and there is nothing to recover from. With 2f + 1 nodes the witnesses are other nodes than
/// the backups, so that the loss of a node costs a shard only one of the two.
pub(crate) fn first_placement(nodes: &[NodeId], shards: u16, faults: u8) -> Vec<ShardConfig> {
    let (count, faults) = (nodes.len(), usize::from(faults));
    assert!(count > faults, "options are checked: a shard needs f + 1 nodes");
    let witnesses_from = if count > 2 * faults { faults + 1 } else { 1 };
    let place = |shard: u16| {
        let nth = |after: usize| nodes[(usize::from(shard) + after) % count];
        ShardConfig {
            shard: ShardId(shard),
            epoch: Epoch(1),
            primary: nth(0),
            phase: ShardPhase::Recovering,
            members: (0..=faults)
                .map(|n| Member { node: nth(n), state: MemberState::Complete, since: ConfigVersion(0) })
                .collect(),
            members_since: ConfigVersion(0),
            recover_from: Vec::new(),
            witnesses: (witnesses_from..witnesses_from + faults).map(nth).collect(),
            list: ListVersion(1),
            closing: false,
            served: None,
        }
    };
    (0..shards).map(place).collect()
}

/// The number of other shards for which `uses` is true.
fn load(state: &State, except: ShardId, uses: impl Fn(&ShardConfig) -> bool) -> usize {
    state.configuration.shards.iter().filter(|shard| shard.shard != except && uses(shard)).count()
}

/// The new primary of a shard whose primary is gone, if any node may be elected: an alive node that holds everything
/// the shard ever answered, from its last serving set (\[M\], R7.2). The new term recovers from `recover_from`.
pub(crate) fn choose_primary(
    state: &State,
    sight: Sight<'_>,
    shard: &ShardConfig,
    recover_from: &[NodeId],
) -> Option<NodeId> {
    candidates(state, shard, recover_from).into_iter().min_by_key(|&node| {
        let member = shard.member(node).is_some_and(|member| member.state == MemberState::Complete);
        // A node that hears no witness cannot do step 4.
        let deaf = !shard.witnesses.is_empty() && shard.witnesses.iter().all(|&witness| !sight.may_hear(node, witness));
        (!sight.speaks(node), deaf, !member, load(state, shard.shard, |other| other.primary == node), node)
    })
}

/// The nodes that may be elected: alive nodes that hold everything (\[M\], R7.2).
pub(crate) fn candidates(state: &State, shard: &ShardConfig, recover_from: &[NodeId]) -> Vec<NodeId> {
    let never_served = recover_from.is_empty();
    let mut candidates: Vec<NodeId> =
        if never_served { shard.members.iter().map(|member| member.node).collect() } else { recover_from.to_vec() };
    candidates.retain(|&node| state.is_alive(node));
    candidates
}

/// Alive nodes to add to a set of `members`, least loaded first, up to f + 1 in all. The primary must hear them, and
/// none of them may have left it without an answer lately.
pub(crate) fn choose_joiners(
    state: &State,
    sight: Sight<'_>,
    (shard, primary): (ShardId, NodeId),
    members: &[Member],
    never: &[NodeId],
) -> Vec<Member> {
    let useful = |node| sight.is_useful(shard, primary, node);
    joiners(state, shard, members, state.replicas(), |node| !never.contains(&node) && useful(node))
}

/// Alive nodes that are `fit` to add to a set of `members`, least loaded first, up to `wanted` members in all.
fn joiners(
    state: &State,
    shard: ShardId,
    members: &[Member],
    wanted: usize,
    fit: impl Fn(NodeId) -> bool,
) -> Vec<Member> {
    let lacking = wanted.saturating_sub(members.len());
    if lacking == 0 {
        return Vec::new();
    }
    let mut spare: Vec<NodeId> =
        (state.alive_nodes()).filter(|&node| !members.iter().any(|member| member.node == node) && fit(node)).collect();
    spare.sort_by_cached_key(|&node| (load(state, shard, |other| other.member(node).is_some()), node));
    let since = state.configuration.version.next();
    spare.iter().take(lacking).map(|&node| Member { node, state: MemberState::Joining, since }).collect()
}

/// The set of a primary: those of `members` that answer it, and joiners. A member that does not answer stays if there
/// would be too few otherwise: an update that hangs is no worse than an update that is refused.
pub(crate) fn fill(
    state: &State,
    sight: Sight<'_>,
    (shard, primary): (ShardId, NodeId),
    members: Vec<Member>,
    never: &[NodeId],
) -> Vec<Member> {
    let with_joiners = |mut set: Vec<Member>| {
        let joiners = choose_joiners(state, sight, (shard, primary), &set, never);
        set.extend(joiners);
        set
    };
    let answers = |member: &&Member| member.node == primary || !sight.avoids(shard, primary, member.node);
    let good: Vec<Member> = members.iter().filter(answers).copied().collect();
    if good.len() < members.len() {
        let set = with_joiners(good);
        if set.len() > usize::from(state.configuration.min_backups) {
            return set;
        }
    }
    with_joiners(members)
}

/// Nodes to add to a set that is too small to take updates although every useful node is in it: nodes that did not answer
/// the primary lately, and that it hears now.
pub(crate) fn last_resort(state: &State, sight: Sight<'_>, shard: &ShardConfig, set: &[Member]) -> Vec<Member> {
    let enough = usize::from(state.configuration.min_backups) + 1;
    joiners(state, shard.shard, set, enough, |node| sight.speaks(node) && sight.hears(shard.primary, node))
}

/// Exactly f alive nodes other than the primary. Nodes that are no members, and those that are witnesses of the fewest
/// shards, come first. Empty if there are not enough nodes (R6.1).
pub(crate) fn choose_witnesses(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> Vec<NodeId> {
    let faults = usize::from(state.configuration.faults);
    let is_useful = |node| sight.speaks(node) && !sight.avoids(shard.shard, shard.primary, node);
    let mut spare: Vec<NodeId> = state.alive_nodes().filter(|&node| node != shard.primary && is_useful(node)).collect();
    if spare.len() < faults {
        return Vec::new();
    }
    spare.sort_by_cached_key(|&node| {
        let member = shard.member(node).is_some();
        (
            !sight.may_hear(shard.primary, node),
            member,
            load(state, shard.shard, |other| other.witnesses.contains(&node)),
            node,
        )
    });
    spare.truncate(faults);
    spare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_cover_every_slot_once() {
        for shards in [1, 2, 3, 7, 1024] {
            let mut next = 0;
            for tablet in tablets(TableId(1), shards) {
                assert_eq!(tablet.first, Slot(next));
                next = tablet.last.0 + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }

    #[test]
    fn tables_of_one_shard_go_round() {
        let mut all: Vec<Tablet> = tablets(TableId(1), 3).collect();
        for table in 2..6 {
            all.push(one_tablet(TableId(table), &all, 3));
        }
        let shards: Vec<_> = all[3..].iter().map(|tablet| tablet.shard.0).collect();
        assert_eq!(shards, [0, 1, 2, 0]);
        assert!(all[3..].iter().all(|tablet| (tablet.first, tablet.last) == (Slot(0), Slot(SLOTS - 1))));
    }

    #[test]
    fn the_first_placement_goes_round() {
        let nodes: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let placed = first_placement(&nodes, 4, 1);
        assert_eq!(placed.iter().map(|shard| shard.primary.0).collect::<Vec<_>>(), [1, 2, 3, 1]);
        assert_eq!(placed[1].members.iter().map(|member| member.node.0).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(placed[1].witnesses, [NodeId(1)], "no backup, with enough nodes");
        let placed = first_placement(&nodes[..2], 1, 1);
        assert_eq!(placed[0].witnesses, [NodeId(2)], "the backup, without");
        assert!(first_placement(&nodes, 1, 0)[0].witnesses.is_empty());
    }
}
