//! Runs a model through stateright, and makes of what it finds a short trace that can be read.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who acts.
    pub who: String,
    /// The function of the code that does it there.
    pub function: &'static str,
    /// What came of it.
    pub text: String,
}

impl Step {
    /// A line.
    pub fn new(who: String, function: &'static str, text: String) -> Self {
        Self { who, function, text }
    }
}

/// A model that can say what happens in it.
pub trait Tell: Model {
    /// What one step was.
    fn tell(&self, before: &Self::State, action: &Self::Action, after: &Self::State) -> Step;
    /// What a violation is seen from, in the last state.
    fn epilogue(&self, last: &Self::State) -> String;
}

/// A way to a violated property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The property.
    pub property: &'static str,
    /// How it comes to that.
    pub steps: Vec<Step>,
    /// What shows it.
    pub epilogue: String,
}

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Found {
    /// Distinct states.
    pub states: usize,
    /// Longest of the shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// How a property is violated.
    pub violation: Option<Trace>,
}

/// Searches all that can be reached, breadth first, or until a property is violated.
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

/// Leaves out what a violation does not need: a checker that works in blocks may find a longer way first.
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

/// The same without one action, or without two: what one does another may undo.
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

/// How many of the actions lead to a violation, if they are all possible.
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
