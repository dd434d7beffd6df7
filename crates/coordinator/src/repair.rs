//! Decides what a shard needs next, given which nodes are alive: one command at a time, until the shard needs nothing
//! that is available.
//!
//! This is a function of the committed state and of the nodes' reports about each other. So a restarted coordinator
//! goes on where the log ends, whatever the last process was about to do.

use kasha_types::NodeId;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_wire::{Durability, Member, MemberState, ShardConfig, ShardPhase};

use crate::evidence::Sight;
use crate::{Command, State, placement};

/// The next command for this shard, if any.
pub(crate) fn next_command(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> Option<Command> {
    if needs_fail_over(state, shard) {
        let recover_from = recover_from(shard);
        let primary = placement::choose_primary(state, sight, shard, &recover_from)?;
        return Some(promote(state, sight, shard, primary));
    }
    set_members(state, sight, shard).or_else(|| close_list(state, sight, shard))
}

/// Whether the shard's primary is lost, or runs in another process than the one that the term was given to (R7.1).
pub(crate) fn needs_fail_over(state: &State, shard: &ShardConfig) -> bool {
    let record = &state.shards[usize::from(shard.shard.0)];
    let is_same = state.incarnation(shard.primary) == Some(record.primary_incarnation);
    !state.is_alive(shard.primary) || !(is_same || planted::is_on(Bug::FastRestartServes))
}

/// The nodes from whose logs a new term may recover.
fn recover_from(shard: &ShardConfig) -> Vec<NodeId> {
    match shard.phase {
        ShardPhase::Serving => (shard.members.iter())
            .filter(|member| member.state == MemberState::Complete)
            .map(|member| member.node)
            .collect(),
        // The term that was to recover has answered nothing. So its own set does not matter; the set that last served
        // does.
        ShardPhase::Recovering => shard.recover_from.clone(),
    }
}

/// The recovery makes no progress: the next node in turn may find what it needs. `None`: no other node may be elected.
pub(crate) fn promote_next(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> Option<Command> {
    let mut candidates = placement::candidates(state, shard, &recover_from(shard));
    candidates.retain(|&node| node != shard.primary && sight.speaks(node));
    candidates.sort_unstable();
    let next = candidates.iter().find(|&&node| node > shard.primary).or(candidates.first());
    next.map(|&node| promote(state, sight, shard, node))
}

/// A primary that gets no answers, and for which there is no other node, may itself be the badly connected one. Returns
/// the command that makes another member primary, if one hears enough nodes, and more than the primary does.
pub(crate) fn promote_better_connected(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> Option<Command> {
    let hears = |node| sight.count_heard(node, state.alive_nodes());
    let wanted = usize::from(state.configuration.min_backups).max(1).max(hears(shard.primary) + 1);
    let mut candidates = placement::candidates(state, shard, &recover_from(shard));
    candidates.retain(|&node| node != shard.primary && sight.speaks(node) && hears(node) >= wanted);
    let best = candidates.into_iter().max_by_key(|&node| (hears(node), std::cmp::Reverse(node)))?;
    Some(promote(state, sight, shard, best))
}

/// A new term with this primary (section 7, step 1).
fn promote(state: &State, sight: Sight<'_>, shard: &ShardConfig, primary: NodeId) -> Command {
    let recover_from = recover_from(shard);
    // Only here may a node become complete without a copy. The new primary makes every member's log equal to its own
    // before it reports, and it knows this set from its first moment.
    let never_served = recover_from.is_empty();
    let was_complete = |node: NodeId| shard.member(node).is_some_and(|member| member.state == MemberState::Complete);
    let holds_all = |node: NodeId| if never_served { was_complete(node) } else { recover_from.contains(&node) };
    let since = state.configuration.version.next();
    let mut members = vec![Member { node: primary, state: MemberState::Complete, since }];
    let mut others: Vec<NodeId> = shard.members.iter().map(|member| member.node).collect();
    others.extend(recover_from.iter().filter(|node| shard.member(**node).is_none()));
    others.retain(|&node| node != primary && state.is_alive(node));
    // Complete copies come first, so that none is left out for a joiner. Copies that the new primary does not hear come
    // last.
    others.sort_by_key(|&node| (!sight.is_useful(shard.shard, primary, node), !holds_all(node)));
    let useful = others.iter().filter(|&&node| sight.is_useful(shard.shard, primary, node)).count();
    let spare = (state.alive_nodes())
        .filter(|node| *node != primary && !others.contains(node) && !recover_from.contains(node))
        .filter(|&node| sight.is_useful(shard.shard, primary, node));
    if useful + spare.count() >= usize::from(state.configuration.min_backups) {
        others.truncate(useful);
    }
    others.truncate(state.replicas() - 1);
    members.extend(others.into_iter().map(|node| Member {
        node,
        state: if holds_all(node) { MemberState::Complete } else { MemberState::Joining },
        since,
    }));
    members.extend(placement::choose_joiners(state, sight, (shard.shard, primary), &members, &recover_from));
    Command::Promote { shard: shard.shard, epoch: shard.epoch.next(), primary, members, recover_from }
}

/// R7.2: in one command, a member that is lost or does not answer its primary leaves the committed set, and a spare
/// node joins it.
fn set_members(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> Option<Command> {
    let members = wanted_members(state, sight, shard);
    let drops_a_copy = shard.phase == ShardPhase::Serving
        && (shard.members.iter()).any(|member| member.state == MemberState::Complete && !members.contains(member));
    if members == shard.members {
        return None;
    }
    if drops_a_copy && !may_drop_a_copy(state, sight, shard) {
        hit(Probe::CopyKept);
        return None;
    }
    Some(Command::SetMembers { shard: shard.shard, epoch: shard.epoch, members })
}

fn wanted_members(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> Vec<Member> {
    let alive: Vec<Member> = shard.members.iter().copied().filter(|member| state.is_alive(member.node)).collect();
    // A joiner drops what it holds. So a node whose copy this recovery may still need must not join.
    let mut set = placement::fill(state, sight, (shard.shard, shard.primary), alive, &shard.recover_from);
    // A recovery waits for each of its members, and needs no more than it has.
    if shard.phase == ShardPhase::Serving {
        set.extend(placement::last_resort(state, sight, shard, &set));
    }
    set
}

/// Whether a complete copy may leave a set that serves; after that it can never be elected. The primary must speak to
/// us, so that it lives on without the copy, and must not be about to be replaced. Until then nothing is synced that
/// this copy lacks; and if the primary is dead, this copy may be the only one.
fn may_drop_a_copy(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> bool {
    let primary = state.configuration.core_of(shard.primary, shard.shard);
    primary.is_some_and(|core| sight.speaks_now(core)) && !sight.is_moving(shard.shard, shard.epoch)
}

/// Whether another node can replace a member that does not answer its primary.
pub(crate) fn is_replaceable(state: &State, sight: Sight<'_>, shard: &ShardConfig, node: NodeId) -> bool {
    let members = wanted_members(state, sight, shard);
    members.len() >= shard.members.len() && !members.iter().any(|member| member.node == node)
}

/// R6.2: the primary first closes a list that must change. The list of a recovering shard is still to be replayed.
fn close_list(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> Option<Command> {
    let wanted = shard.phase == ShardPhase::Serving && !shard.closing && list_must_change(state, sight, shard);
    if wanted && planted::is_on(Bug::ListChangedAtOnce) {
        let witnesses = placement::choose_witnesses(state, sight, shard);
        return Some(Command::OpenList { shard: shard.shard, list: shard.list.next(), witnesses });
    }
    wanted.then_some(Command::CloseList { shard: shard.shard, list: shard.list })
}

/// Whether the list must change. It must if it has no fast path although it could have one, or one that cannot be
/// relied on (R6.1, R5.5). It must also, if there is a better list, when one of its witnesses gets no gc and will be
/// full soon.
pub(crate) fn list_must_change(state: &State, sight: Sight<'_>, shard: &ShardConfig) -> bool {
    if state.configuration.faults == 0 {
        return false;
    }
    if shard.witnesses.is_empty() {
        return !sight.is_stopping(shard.primary) && !placement::choose_witnesses(state, sight, shard).is_empty();
    }
    let unanswered = shard.witnesses.iter().any(|&node| sight.avoids(shard.shard, shard.primary, node));
    if unanswered && !placement::choose_witnesses(state, sight, shard).is_empty() {
        return true;
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
