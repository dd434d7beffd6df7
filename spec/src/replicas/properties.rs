//! The properties of model (b): D1, D2, F2, R7.2 and decisions 0005 and 0007. They must hold in every state.

use stateright::Property;

use crate::replicas::Replicas;
use crate::replicas::rules::Rule;
use crate::replicas::state::{NodeIx, Stage, State};

/// Rules whose absence shows in the number of copies. The absence of other rules shows better in what is lost.
const ABOUT_COPIES: [Rule; 7] = [
    Rule::AllMembers,
    Rule::TailCut,
    Rule::JoinersCounted,
    Rule::AttachNumbered,
    Rule::FewestPeers,
    Rule::KeptUntilWhole,
    Rule::JoinBelowUnsynced,
];

/// All properties, with their names.
pub fn all() -> Vec<Property<Replicas>> {
    vec![
        Property::always("D2: what was synced is in every later primary's log", |_: &Replicas, state: &State| {
            newest_primary(state).is_none_or(|node| state.node(node).log.starts_with(&state.told))
        }),
        Property::always("D2: one log for each synced position", |_: &Replicas, state: &State| !state.told_twice),
        Property::always("D1: what is answered is on f + 1 nodes", |model: &Replicas, state: &State| {
            !state.thin || model.off.is_some_and(|off| !ABOUT_COPIES.contains(&off))
        }),
        Property::always("R7.2: an incomplete copy never leads", |_: &Replicas, state: &State| {
            let leads = |node: &NodeIx| {
                state.primary(*node).is_some_and(|primary| primary.stage == Stage::Replaying || primary.has_begun())
            };
            state.all().filter(leads).all(|node| state.node(node).base == 0 && state.node(node).complete)
        }),
        Property::always("0005: one epoch, one place, one entry", |_: &Replicas, state: &State| {
            state.all().all(|a| state.all().all(|b| agree(state, a, b)))
        }),
        Property::always("F2: nobody follows an epoch that it promised not to", |_: &Replicas, state: &State| {
            let leads = |node| state.primary(node).map_or(0, |primary| primary.epoch);
            state.all().all(|node| leads(node) <= state.node(node).promised)
        }),
        Property::always("0007: after one loss somebody can be elected", |model: &Replicas, state: &State| {
            let losses = state.lost.count_ones();
            losses > u32::from(model.bounds.faults) || model.bounds.deaths == 0 || somebody_is_left(model, state)
        }),
    ]
}

/// The primary of the newest term, when it has its log.
fn newest_primary(state: &State) -> Option<NodeIx> {
    let primary = state.committed.primary;
    let memory = state.primary(primary).filter(|memory| memory.epoch == state.committed.epoch)?;
    memory.has_begun().then_some(primary)
}

/// Whether entries that the code treats as the same entry are the same.
fn agree(state: &State, a: NodeIx, b: NodeIx) -> bool {
    let (a, b) = (state.node(a), state.node(b));
    let from = usize::from(a.base.max(b.base));
    let both = a.log.iter().zip(&b.log).skip(from);
    both.take_while(|(a, b)| a.epoch == b.epoch).all(|(a, b)| a.writer == b.writer)
}

fn somebody_is_left(model: &Replicas, state: &State) -> bool {
    let recover_from = model.recover_from(state);
    state.all().any(|node| recover_from & 1 << node != 0 && state.node(node).up)
}
