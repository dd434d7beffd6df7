//! The properties of model (f): what was told stays (R9.1, R9.5, R9.6), F1 (R9.3), answers are not stale (R9.2), F2 and
//! the length of lifetimes (R9.4). They must hold in every state.

use stateright::Property;

use crate::group::Group;
use crate::group::state::{Kind, NodeIx, State};

/// All properties, with their names.
pub fn all() -> Vec<Property<Group>> {
    vec![
        Property::always(
            "R9.1: what was told is in the log of the newest view that is led",
            |_: &Group, state: &State| {
                state.newest_led().is_none_or(|view| state.view(view).log.starts_with(&state.told.log))
            },
        ),
        Property::always("R9.1: one operation is told for each place", |_: &Group, state: &State| !state.told.twice),
        Property::always("R9.5: one view, one place, one operation", |_: &Group, state: &State| {
            state.all().all(|a| state.all().all(|b| agree(state, a, b)))
        }),
        Property::always("R9.2: an answer knows what was told before its question", |model: &Group, state: &State| {
            // Without a rule, a search with leases shall find two primaries.
            !state.told.stale || model.off.is_some() && model.bounds.now_max > 0
        }),
        Property::always("F1: no node is declared lost that serves", |_: &Group, state: &State| {
            let is_lost = state.told.log.iter().any(|entry| entry.kind == Kind::Lost);
            !is_lost || state.now >= state.lease_ends
        }),
        Property::always(
            "F2: an answer tells no time below one that was told before its question",
            |_: &Group, state: &State| !state.told.back,
        ),
        Property::always("R9.4: an election moves no time ahead", |_: &Group, state: &State| !state.told.jumped),
    ]
}

/// Whether entries of one view at one place are the same entry.
fn agree(state: &State, a: NodeIx, b: NodeIx) -> bool {
    let both = state.member(a).log.iter().zip(&state.member(b).log);
    both.filter(|(a, b)| a.view == b.view).all(|(a, b)| a.kind == b.kind)
}
