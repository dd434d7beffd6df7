//! From every reachable state in which all members are there and intact, a serving term can be reached without a fault
//! and without a client: the present term goes on, or a new one does. A property of the search says in which states
//! that is so; this test walks the steps.

use std::collections::BTreeSet;

use stateright::Model;

use crate::recovery::bounds::{Bounds, ONE_MEMBER, STOP, WITNESS_LOST};
use crate::recovery::rules::Rule;
use crate::recovery::state::{Left, Stage, State, bits};
use crate::recovery::{Action, Recovery};

static ONE_RECOVERY: Bounds = Bounds { name: "one-recovery", updates: 1, terms: 1, ..WITNESS_LOST };
static ONE_MEMBER_ONCE: Bounds = Bounds { name: "one-member-once", terms: 1, ..ONE_MEMBER };

fn serves(state: &State) -> bool {
    let primary = state.primary(state.committed.primary);
    primary.is_some_and(|primary| primary.stage == Stage::Serving && primary.epoch == state.committed.epoch)
}

/// All states that can be reached by steps of some kind, until one is accepted by `until`.
fn walk(
    model: &Recovery,
    from: State,
    steps: impl Fn(&State, &mut Vec<Action>),
    until: impl Fn(&State) -> bool,
) -> (BTreeSet<State>, bool) {
    let mut seen = BTreeSet::from([from.clone()]);
    let mut open = vec![from];
    while let Some(state) = open.pop() {
        if until(&state) {
            return (seen, true);
        }
        let mut actions = Vec::new();
        steps(&state, &mut actions);
        for next in actions.into_iter().filter_map(|action| model.next_state(&state, action)) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    (seen, false)
}

/// Whether the shard serves again if nothing goes wrong any more, no client asks for anything, and one more term may
/// begin.
fn can_reach_service(model: &Recovery, state: &State) -> bool {
    let mut quiet = state.clone();
    quiet.left = Left { terms: 1, kills: 0, losses: 0, list_changes: 0, stops: 0 };
    let steps = |state: &State, actions: &mut Vec<Action>| {
        model.term_actions(state, actions);
        model.promotions(state, actions);
        actions.retain(|action| !matches!(action, Action::OnRequest(..)));
    };
    walk(model, quiet, steps, serves).1
}

/// A state in which the shard waits for ever, if there is one.
fn waits_for_ever(model: &Recovery) -> (usize, Option<State>) {
    let first = model.init_states().swap_remove(0);
    let (states, _) = walk(model, first, |state, actions| model.actions(state, actions), |_| false);
    let is_intact =
        |state: &&State| bits(state.committed.recover_from).all(|node| state.node(node).up && state.node(node).intact);
    let stuck = states.iter().filter(is_intact).find(|state| !can_reach_service(model, state));
    (states.len(), stuck.cloned())
}

#[test]
fn all_members_intact_are_enough() {
    for bounds in [&ONE_RECOVERY, &ONE_MEMBER_ONCE, &STOP] {
        let (states, stuck) = waits_for_ever(&Recovery { bounds, off: None });
        assert!(states > 1000, "{}: {states} states", bounds.name);
        assert_eq!(stuck, None, "{}", bounds.name);
    }
}

#[test]
fn without_a_rule_they_are_not() {
    for off in [Rule::ServedUntouched, Rule::MarkBeforeReport, Rule::WholeLogged, Rule::AttachAfterFile] {
        let (_, stuck) = waits_for_ever(&Recovery { bounds: &ONE_RECOVERY, off: Some(off) });
        assert!(stuck.is_some(), "{off:?}");
    }
}
