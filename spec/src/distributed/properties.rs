//! The properties of model (c). They must hold in every state.

use stateright::Property;

use crate::distributed::program::{Class, Forgets};
use crate::distributed::rules::Rule;
use crate::distributed::state::{
    Entry, Executed, KEYS_MAX, Progress, Seen, Set, ShardIx, Stage, State, TXNS_MAX, Timestamp, TxnIx, members,
};
use crate::distributed::{Action, Distributed};

/// Rules whose absence shows in what never ends.
const ABOUT_WAITING: [Rule; 3] = [Rule::VotesUngated, Rule::ReleasesUngated, Rule::PeersAsked];

/// All properties, with their names.
pub fn all() -> Vec<Property<Distributed>> {
    vec![
        Property::always("T1: a transaction is executed at one timestamp, everywhere or nowhere", one_outcome),
        Property::always(
            "D1: what was answered is there, or comes without the client",
            |model: &Distributed, state| {
                model.txns().all(|txn| is_kept(model, state, txn) && is_what_it_saw_there(model, state, txn))
            },
        ),
        Property::always("E2: an answer does not change", |model: &Distributed, state| {
            model.txns().all(|txn| keeps_its_answer(model, state, txn))
        }),
        Property::always("T2: what conflicts is executed in the order of timestamps", |model: &Distributed, state| {
            // Without a rule, something worse is to be shown.
            model.off.is_some() || is_in_order(model, state)
        }),
        Property::always("T3: what was answered is strictly serializable", |model: &Distributed, state| {
            is_acyclic(&edges(model, state))
        }),
        Property::always("T4: everything ends", |model: &Distributed, state| {
            let is_blocked = model.program.forgets != Forgets::Nothing && !model.program.refusals;
            let is_about_waiting = model.off.is_none_or(|off| ABOUT_WAITING.contains(&off));
            !is_about_waiting || is_blocked || !is_stuck(model, state)
        }),
    ]
}

fn executed(state: &State, txn: TxnIx, shard: ShardIx) -> Option<Executed> {
    match state.shard(shard).progress(txn) {
        Progress::Executed(executed) => Some(executed),
        Progress::New | Progress::Pending(_) | Progress::Against | Progress::Stale => None,
    }
}

fn one_outcome(model: &Distributed, state: &State) -> bool {
    model.txns().all(|txn| {
        let mut at: Option<Timestamp> = None;
        let mut is_one = true;
        let mut is_against = matches!(state.txn(txn).stage, Stage::Aborted(_) | Stage::NotCommitted);
        for shard in members(model.plan(txn).participants()) {
            let there = state.shard(shard);
            let execution = there.execution(txn);
            if let Some(execution) = execution {
                is_one &= at.is_none_or(|at| at == execution.at);
                at = Some(execution.at);
            }
            is_against |= match there.progress(txn) {
                Progress::Against => true,
                Progress::Stale => execution.is_none() || there.log.contains(&Entry::Conflict(txn)),
                Progress::New | Progress::Pending(_) | Progress::Executed(_) => false,
            };
        }
        let is_committed = at.is_some() || state.txn(txn).stage == Stage::Committed;
        is_one && !(is_against && is_committed && model.plan(txn).class != Class::Reads)
    })
}

/// Single-shard operations take no timestamp that others must heed, and locks order what is voted on under them.
fn is_in_order(model: &Distributed, state: &State) -> bool {
    (0..model.program.shards).all(|shard| {
        let executions =
            || state.shard(shard).executions().filter(|executed| model.plan(executed.txn).is_distributed());
        executions().enumerate().all(|(at, later)| {
            executions().take(at).all(|earlier| {
                let is_before = (earlier.at, earlier.txn) < (later.at, later.txn);
                is_before || !model.conflicts(earlier.txn, later.txn, shard)
            })
        })
    })
}

fn is_kept(model: &Distributed, state: &State, txn: TxnIx) -> bool {
    let plan = model.plan(txn);
    let is_read = !plan.writes();
    state.txn(txn).stage != Stage::Committed
        || is_read
        || members(plan.participants()).all(|shard| match state.shard(shard).progress(txn) {
            Progress::Executed(_) => true,
            Progress::Stale => state.shard(shard).execution(txn).is_some(),
            Progress::Pending(_) => plan.is_distributed(),
            Progress::New | Progress::Against => false,
        })
}

/// The writers of what an answer saw have not vanished.
fn is_what_it_saw_there(model: &Distributed, state: &State, txn: TxnIx) -> bool {
    let is_there = |writer: TxnIx, shard: ShardIx| {
        let there = state.shard(shard);
        let is_pending = matches!(there.progress(writer), Progress::Pending(_)) && model.plan(writer).is_distributed();
        is_pending || there.execution(writer).is_some()
    };
    let saw = |shard: ShardIx| state.txn(txn).told[usize::from(shard)].into_iter().flatten();
    let writers = |shard: ShardIx| saw(shard).filter_map(|writer| writer.checked_sub(1));
    !matches!(state.txn(txn).stage, Stage::Committed | Stage::Aborted(_))
        || (0..model.program.shards).all(|shard| writers(shard).all(|writer| is_there(writer, shard)))
}

fn keeps_its_answer(model: &Distributed, state: &State, txn: TxnIx) -> bool {
    members(model.plan(txn).participants()).all(|shard| {
        let told = state.txn(txn).told[usize::from(shard)];
        let is_other = |told: Seen| executed(state, txn, shard).is_some_and(|executed| executed.seen != told);
        !told.is_some_and(is_other)
    })
}

/// For each transaction, those that come behind it: because it ended before they began, or because of what was written
/// and read. What was answered counts, and what was written, for its writer read something, too.
fn edges(model: &Distributed, state: &State) -> [Set; TXNS_MAX] {
    let mut behind = [0; TXNS_MAX];
    let is_answered = |txn: TxnIx| matches!(state.txn(txn).stage, Stage::Committed | Stage::Aborted(_));
    for txn in model.txns().filter(|&txn| is_answered(txn)) {
        members(state.txn(txn).before).for_each(|before| behind[usize::from(before)] |= 1 << txn);
    }
    for shard in 0..model.program.shards {
        for key in 0..KEYS_MAX as u8 {
            let writes = |executed: &&Executed| {
                model.plan(executed.txn).part(shard).is_some_and(|part| part.writes & 1 << key != 0)
            };
            let writers: Vec<TxnIx> =
                state.shard(shard).executions().filter(writes).map(|executed| executed.txn).collect();
            for pair in writers.windows(2) {
                behind[usize::from(pair[0])] |= 1 << pair[1];
            }
            for txn in model.txns() {
                let reads = model.plan(txn).part(shard).is_some_and(|part| part.reads & 1 << key != 0);
                let told = state.txn(txn).told[usize::from(shard)].filter(|_| is_answered(txn));
                let update = || state.shard(shard).execution(txn).filter(|executed| !executed.is_read);
                let found = || update().map(|executed| executed.seen);
                let Some(seen) = told.or_else(found).filter(|_| reads) else { continue };
                let next = match seen[usize::from(key)].checked_sub(1) {
                    None => writers.first(),
                    Some(writer) => {
                        behind[usize::from(writer)] |= 1 << txn;
                        let at = writers.iter().position(|&of| of == writer);
                        at.and_then(|at| writers.get(at + 1))
                    }
                };
                if let Some(&next) = next.filter(|&&next| next != txn) {
                    behind[usize::from(txn)] |= 1 << next;
                }
            }
        }
    }
    behind
}

fn is_acyclic(behind: &[Set; TXNS_MAX]) -> bool {
    let mut reached = *behind;
    for _ in 0..TXNS_MAX {
        for txn in 0..TXNS_MAX {
            reached[txn] |= members(reached[txn]).fold(0, |all, next| all | reached[usize::from(next)]);
        }
    }
    (0..TXNS_MAX).all(|txn| reached[txn] & 1 << txn == 0)
}

/// Nothing but a crash can happen, and something is under way.
fn is_stuck(model: &Distributed, state: &State) -> bool {
    let is_over = |txn: TxnIx| {
        let is_pending = |shard: ShardIx| matches!(state.shard(shard).progress(txn), Progress::Pending(_));
        let call = state.txn(txn);
        (call.stage != Stage::Running || call.is_let_go) && !members(model.plan(txn).participants()).any(is_pending)
    };
    if model.txns().all(is_over) {
        return false;
    }
    let mut actions = Vec::new();
    model.client_actions(state, &mut actions);
    model.shard_actions(state, &mut actions);
    // The requests of a client that is gone may be lost.
    let may_fail_to_happen = |action: &Action| match *action {
        Action::OnRecord(..) => true,
        Action::OnRequest(txn, ..) => state.txn(txn).is_let_go,
        _ => false,
    };
    actions.iter().all(may_fail_to_happen)
}
