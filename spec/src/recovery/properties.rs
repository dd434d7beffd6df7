//! The properties of model (e): D1, E1, and R7.7. They must hold in every state.

use stateright::Property;

use crate::recovery::rules::Rule;
use crate::recovery::state::{Kind, Stage, State, bits};
use crate::recovery::{Action, Recovery};

/// Rules whose absence shows in a shard that waits. The absence of other rules shows better in what is lost.
const ABOUT_WAITING: [Rule; 5] =
    [Rule::ServedUntouched, Rule::MarkBeforeReport, Rule::WholeLogged, Rule::FencesOn, Rule::AttachAfterFile];

/// All properties, with their names.
pub fn all() -> Vec<Property<Recovery>> {
    vec![
        Property::always("D1: what was answered is in the log of who serves", |_: &Recovery, state: &State| {
            let primary = state.committed.primary;
            let serves = |primary: &crate::recovery::state::Primary| {
                primary.stage == Stage::Serving && primary.epoch == state.committed.epoch
            };
            let answered = || (0..).zip(&state.updates).filter(|(_, update)| update.done);
            !state.primary(primary).is_some_and(serves)
                || answered().all(|(update, _)| state.node(primary).place(update).is_some())
        }),
        Property::always("E1: an update runs once", |_: &Recovery, state: &State| {
            let is_update = |kind: Kind| matches!(kind, Kind::Update(_));
            state.all().all(|node| {
                let log = &state.node(node).log;
                (0..log.len()).all(|at| !is_update(log[at].kind) || !log[..at].iter().any(|e| e.kind == log[at].kind))
            })
        }),
        Property::always(
            "R7.7: members that are all intact need no lost witness",
            |model: &Recovery, state: &State| {
                model.off.is_some_and(|off| !ABOUT_WAITING.contains(&off)) || can_serve(model, state)
            },
        ),
    ]
}

/// Whether a term can serve without luck: all members of the set that last served are there and intact, and one log is
/// whole, or a witness of the list is there. A term that begins now can fence all of them.
fn can_serve(model: &Recovery, state: &State) -> bool {
    let list = &state.lists[usize::from(state.list()) - 1];
    let is_witness_there = list.empty || (0..model.bounds.faults).any(|at| !list.witnesses[usize::from(at)].lost);
    let members = || bits(state.committed.recover_from);
    let all_intact = members().all(|node| state.node(node).up && state.node(node).intact);
    is_witness_there || !all_intact || members().any(|node| model.is_whole(state, node)) && !is_stuck(model, state)
}

/// Whether the newest term waits for a witness, and for nothing else.
fn is_stuck(model: &Recovery, state: &State) -> bool {
    let newest = state.primary(state.committed.primary).filter(|primary| primary.epoch == state.committed.epoch);
    let mut actions = Vec::new();
    model.term_actions(state, &mut actions);
    let goes_on = |action: &Action| match *action {
        Action::OnFence(node, _) | Action::Take(node) | Action::CutToMatch(node, _) => node == state.committed.primary,
        _ => false,
    };
    newest.is_some_and(|primary| primary.stage == Stage::Witnessing) && !actions.iter().any(goes_on)
}
