//! What must be true at the end of a run.

use std::collections::BTreeSet;

use super::World;
use super::program::Class;
use super::shard::Entry;

pub fn judge(world: &World) -> Result<(), String> {
    one_outcome(world)?;
    everything_ended(world)?;
    strictly_serializable(world)
}

fn execution(world: &World, call: usize, shard: usize) -> Option<&Entry> {
    world.shards[shard].log.iter().find(|entry| match entry {
        Entry::Executed { txn, .. } | Entry::Single { txn, .. } => *txn == call,
        Entry::Proposed(..)
        | Entry::Against(..)
        | Entry::Aborted { .. }
        | Entry::Ceiling(_)
        | Entry::LetGo(_)
        | Entry::Freed => false,
    })
}

/// T1, D1 and E2.
fn one_outcome(world: &World) -> Result<(), String> {
    for (call, plan) in world.program.plans.iter().enumerate() {
        let known = &world.calls[call];
        let mut times = BTreeSet::new();
        for part in &plan.parts {
            let found = execution(world, call, part.shard);
            let (at, seen) = match found {
                Some(Entry::Executed { at, seen, .. }) => (Some(at.0), Some(seen)),
                Some(Entry::Single { seen, .. }) => (Some(0), Some(seen)),
                _ => (None, None),
            };
            times.insert(at);
            let mut told = [known.told.get(&part.shard), known.prepared.get(&part.shard)].into_iter().flatten();
            if let Some(told) = told.find(|told| seen.is_some_and(|seen| seen != *told)) {
                return Err(format!("E2: call {call} was told {told:?}, and shard {} has {seen:?}", part.shard));
            }
        }
        if times.len() > 1 {
            return Err(format!("T1: call {call} is executed at {times:?}"));
        }
        let is_executed = times.first().is_some_and(Option::is_some);
        for (shard, told) in known.told.iter().filter(|_| known.aborted.is_some()) {
            let is_it =
                |entry: &Entry| matches!(entry, Entry::Aborted { txn, seen, .. } if *txn == call && seen == told);
            if !world.shards[*shard].log.iter().any(is_it) {
                return Err(format!(
                    "D1: call {call} was told that its check said no, and shard {shard} does not know"
                ));
            }
        }
        let bodies: BTreeSet<_> = plan.parts.iter().filter_map(|part| world.shards[part.shard].body_of(call)).collect();
        if bodies.len() > 1 && is_executed {
            return Err(format!("R8.11: call {call} is executed, and its participants know different things"));
        }
        let is_read = plan.parts.iter().all(|part| part.writes.is_empty());
        if known.committed.is_some() && !is_executed && !(is_read && plan.class == Class::Single) {
            return Err(format!("D1: call {call} was answered and is not there"));
        }
        if known.refused && is_executed {
            return Err(format!("T1: call {call} was refused and is executed"));
        }
    }
    Ok(())
}

/// T4 and R8.9.
fn everything_ended(world: &World) -> Result<(), String> {
    for (number, call) in world.calls.iter().enumerate() {
        if !(call.is_dead || call.committed.is_some() || call.refused) {
            let plan = &world.program.plans[number];
            let there: Vec<_> = world.shards.iter().map(|shard| (&shard.log, &shard.participant)).collect();
            return Err(format!("T4: call {number} never ended: {call:?} of {plan:?}: {there:#?}"));
        }
    }
    for (number, shard) in world.shards.iter().enumerate() {
        if !shard.participant.is_idle() {
            return Err(format!("T4: shard {number} keeps something: {:?}", shard.participant));
        }
    }
    Ok(())
}

/// T3: who comes before whom, in real time and by what was read and written, has no circle.
fn strictly_serializable(world: &World) -> Result<(), String> {
    let calls = world.calls.len();
    let mut before: Vec<BTreeSet<usize>> = (world.calls.iter().enumerate())
        .map(|(first, known)| {
            let is_behind = |second: &usize| {
                let (ended, begun) = (known.committed.or(known.aborted), world.calls[*second].begun);
                *second != first && ended.zip(begun).is_some_and(|(ended, begun)| ended < begun)
            };
            (0..calls).filter(is_behind).collect()
        })
        .collect();
    for (shard, there) in world.shards.iter().enumerate() {
        for writers in there.writers.values() {
            for pair in writers.windows(2) {
                before[pair[0]].insert(pair[1]);
            }
        }
        for call in 0..calls {
            let known = &world.calls[call];
            let told = known.told.get(&shard).filter(|_| known.committed.or(known.aborted).is_some());
            let found = execution(world, call, shard).map(|entry| match entry {
                Entry::Executed { seen, .. } | Entry::Single { seen, .. } => seen,
                _ => unreachable!("an execution"),
            });
            let checked = there.log.iter().find_map(|entry| match entry {
                Entry::Aborted { txn, seen, .. } if *txn == call && known.aborted.is_some() => Some(seen),
                _ => None,
            });
            for (key, writer) in told.or(found).or(checked).into_iter().flatten() {
                let writers = there.writers.get(key).map_or(&[][..], Vec::as_slice);
                let next = match writer {
                    None => writers.first(),
                    Some(writer) => {
                        if *writer != call {
                            before[*writer].insert(call);
                        }
                        let Some(at) = writers.iter().position(|other| other == writer) else {
                            return Err(format!("D1: call {call} saw what call {writer} wrote, which is lost"));
                        };
                        writers.get(at + 1)
                    }
                };
                if let Some(next) = next.filter(|next| **next != call) {
                    before[call].insert(*next);
                }
            }
        }
    }
    let mut left: BTreeSet<usize> = (0..calls).collect();
    while let Some(&first) = left.iter().find(|&&call| !left.iter().any(|&other| before[other].contains(&call))) {
        left.remove(&first);
    }
    if left.is_empty() { Ok(()) } else { Err(format!("T3: {left:?} have no order: {before:?}")) }
}
