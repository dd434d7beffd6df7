//! What a shard needs next, given who is alive: one command at a time, until it needs nothing that can be had.
//!
//! A pure function of the committed state, so that a restarted coordinator goes on where the log ends, whatever the
//! last process had in mind.

use kasha_types::NodeId;
use kasha_wire::{Durability, Member, MemberState, ShardConfig, ShardPhase};

use crate::{Command, State, placement};

/// The next command for this shard, if any.
pub(crate) fn next_command(state: &State, shard: &ShardConfig) -> Option<Command> {
    if needs_fail_over(state, shard) {
        return promote(state, shard);
    }
    set_members(state, shard).or_else(|| close_list(state, shard))
}

/// Whether the shard's primary is lost, or runs in another process than the one that the term was given to (R7.1).
pub(crate) fn needs_fail_over(state: &State, shard: &ShardConfig) -> bool {
    let record = &state.shards[usize::from(shard.shard.0)];
    !state.is_alive(shard.primary) || state.incarnation(shard.primary) != Some(record.primary_incarnation)
}

/// Section 7, step 1. `None`: nobody may be elected now; it is tried again when somebody comes back.
fn promote(state: &State, shard: &ShardConfig) -> Option<Command> {
    let recover_from: Vec<NodeId> = match shard.phase {
        ShardPhase::Serving => (shard.members.iter())
            .filter(|member| member.state == MemberState::Complete)
            .map(|member| member.node)
            .collect(),
        // The term that was to recover has answered nothing: its set does not matter, the last serving one does.
        ShardPhase::Recovering => shard.recover_from.clone(),
    };
    let primary = placement::choose_primary(state, shard, &recover_from)?;
    // Only here may a node become complete without a copy: the new primary makes every member's log equal to its own
    // before it reports, and it knows this set from its first moment.
    let never_served = recover_from.is_empty();
    let was_complete = |node: NodeId| shard.member(node).is_some_and(|member| member.state == MemberState::Complete);
    let holds_all = |node: NodeId| if never_served { was_complete(node) } else { recover_from.contains(&node) };
    let since = state.configuration.version.next();
    let mut members = vec![Member { node: primary, state: MemberState::Complete, since }];
    let mut others: Vec<NodeId> = shard.members.iter().map(|member| member.node).collect();
    others.extend(recover_from.iter().filter(|node| shard.member(**node).is_none()));
    others.retain(|&node| node != primary && state.is_alive(node));
    // Complete copies first, so that none is left out for a joiner.
    others.sort_by_key(|&node| !holds_all(node));
    others.truncate(state.replicas() - 1);
    members.extend(others.into_iter().map(|node| Member {
        node,
        state: if holds_all(node) { MemberState::Complete } else { MemberState::Joining },
        since,
    }));
    members.extend(placement::choose_joiners(state, shard.shard, &members, &recover_from));
    Some(Command::Promote { shard: shard.shard, epoch: shard.epoch.next(), primary, members, recover_from })
}

/// R7.2: a lost member leaves the committed set, and a spare node joins it, in one command.
fn set_members(state: &State, shard: &ShardConfig) -> Option<Command> {
    let mut members: Vec<Member> = shard.members.iter().copied().filter(|member| state.is_alive(member.node)).collect();
    // A joiner forgets what it holds, so a copy that this recovery may still need must not join.
    members.extend(placement::choose_joiners(state, shard.shard, &members, &shard.recover_from));
    (members != shard.members).then_some(Command::SetMembers { shard: shard.shard, epoch: shard.epoch, members })
}

/// R6.2: a list that must change is closed by its primary first. A recovering shard's list is still to be replayed.
fn close_list(state: &State, shard: &ShardConfig) -> Option<Command> {
    let wanted = shard.phase == ShardPhase::Serving && !shard.closing && list_must_change(state, shard);
    wanted.then_some(Command::CloseList { shard: shard.shard, list: shard.list })
}

/// Whether the list has no fast path that it could have, or one that cannot be relied on (R6.1, R5.5).
pub(crate) fn list_must_change(state: &State, shard: &ShardConfig) -> bool {
    if state.configuration.faults == 0 {
        return false;
    }
    if shard.witnesses.is_empty() {
        return !placement::choose_witnesses(state, shard).is_empty();
    }
    let boots = &state.shards[usize::from(shard.shard.0)].witness_boots;
    shard.witnesses.contains(&shard.primary)
        || shard.witnesses.iter().zip(boots).any(|(&node, &boot)| {
            let forgot = match state.configuration.durability {
                Durability::Replicated => state.boot(node) != Some(boot),
                Durability::Fsync => false,
            };
            forgot || !state.is_alive(node)
        })
}
