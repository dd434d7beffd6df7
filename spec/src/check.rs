//! Runs a model through stateright, and turns a violation that it finds into a short trace that people can read.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The machine or client that acts.
    pub who: String,
    /// The function in the code that does this step.
    pub function: &'static str,
    /// The result of the step, as text.
    pub text: String,
}

impl Step {
    /// A line of a trace.
    pub fn new(who: String, function: &'static str, text: String) -> Self {
        Self { who, function, text }
    }
}

/// A model that can describe its steps.
pub trait Tell: Model {
    /// Describes one step.
    fn tell(&self, before: &Self::State, action: &Self::Action, after: &Self::State) -> Step;
    /// The part of the last state that shows the violation, as text.
    fn epilogue(&self, last: &Self::State) -> String;
}

/// A sequence of steps that violates a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The property that is violated.
    pub property: &'static str,
    /// The steps, from the initial state on.
    pub steps: Vec<Step>,
    /// The part of the last state that shows it.
    pub epilogue: String,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// Number of distinct states.
    pub states: usize,
    /// The greatest length of a shortest way to a state.
    pub depth: usize,
    /// The time that the search took.
    pub took: Duration,
    /// How a property is violated, if one is.
    pub violation: Option<Trace>,
}

/// Searches all reachable states, breadth first, or until a property is violated.
pub fn search<M>(model: M, threads: usize) -> Found
where
    M: Tell + Clone + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + std::hash::Hash + PartialEq + Send + Sync,
    M::Action: Clone + PartialEq + Send + Sync,
{
    let began = Instant::now();
    let builder = model.clone().checker().threads(threads);
    let checker = builder.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut violations: Vec<_> =
        checker.discoveries().into_iter().map(|(name, path)| shorten(&model, name, path)).collect();
    violations.sort_by_key(|(property, actions)| (actions.len(), *property));
    let violation = violations.first().map(|(property, actions)| tell(&model, property, actions));
    Found { states: checker.unique_state_count(), depth: checker.max_depth(), took: began.elapsed(), violation }
}

/// Leaves out steps that the violation does not need: a checker that works in blocks may find a longer way first.
fn shorten<M: Model>(
    model: &M,
    property: &'static str,
    path: Path<M::State, M::Action>,
) -> (&'static str, Vec<M::Action>)
where
    M::Action: Clone + PartialEq,
    M::State: Clone,
{
    let mut actions = path.into_actions();
    while let Some(shorter) = shorter(model, property, &actions) {
        actions = shorter;
    }
    (property, actions)
}

/// The same actions without one, or without two: one of them may undo what the other does.
fn shorter<M: Model>(model: &M, property: &'static str, actions: &[M::Action]) -> Option<Vec<M::Action>>
where
    M::Action: Clone + PartialEq,
    M::State: Clone,
{
    let pairs = (0..actions.len()).flat_map(|first| (first..actions.len()).map(move |second| (first, second)));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_by_key(|(first, second)| first != second);
    pairs.into_iter().find_map(|(first, second)| {
        let kept = (0..).zip(actions).filter(|(at, _)| ![first, second].contains(at));
        let mut without: Vec<_> = kept.map(|(_, action)| action.clone()).collect();
        without.truncate(violates(model, property, &without)?);
        Some(without)
    })
}

/// The number of these actions after which a property is violated, if all of them are possible.
fn violates<M: Model>(model: &M, property: &'static str, actions: &[M::Action]) -> Option<usize>
where
    M::Action: Clone + PartialEq,
    M::State: Clone,
{
    let condition = model.property(property).condition;
    let mut state = model.init_states().swap_remove(0);
    for (at, action) in actions.iter().enumerate() {
        if !condition(model, &state) {
            return Some(at);
        }
        let mut possible = Vec::new();
        model.actions(&state, &mut possible);
        if !possible.contains(action) {
            return None;
        }
        state = model.next_state(&state, action.clone())?;
    }
    (!condition(model, &state)).then_some(actions.len())
}

fn tell<M: Tell>(model: &M, property: &'static str, actions: &[M::Action]) -> Trace
where
    M::Action: Clone,
    M::State: Clone,
{
    let mut state = model.init_states().swap_remove(0);
    let mut steps = Vec::new();
    for action in actions {
        let next = model.next_state(&state, action.clone()).expect("it was possible before");
        steps.push(model.tell(&state, action, &next));
        state = next;
    }
    Trace { property, steps, epilogue: model.epilogue(&state) }
}
