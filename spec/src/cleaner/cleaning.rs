//! The cleaner's own steps: it copies, moves references, and may give up a pass.

use crate::cleaner::bounds::{FloorCopy, Moves};
use crate::cleaner::memory::Memory;
use crate::cleaner::rules::Rule;
use crate::cleaner::state::{Kind, PRIMARY, Pending, Place, State};
use crate::cleaner::steps::push;
use crate::cleaner::{Action, Cleaner};

impl Cleaner {
    pub(super) fn clean(&self, state: &mut State, action: Action) {
        match action {
            Action::Copy(origin) => self.copy(state, origin),
            Action::Settle => {
                let pending = state.pending.remove(0);
                self.settle(state, pending);
            }
            Action::Abandon => state.pending.clear(),
            other => unreachable!("not the cleaner's: {other:?}"),
        }
    }

    fn copy(&self, state: &mut State, origin: Place) {
        state.left.copies -= 1;
        let copied = self.copied(state, origin);
        let copy = push(state, copied);
        let entry = state.log.last_mut().expect("just pushed");
        (entry.is_copy, entry.ends_group) = (true, true);
        match self.bounds.moves {
            Moves::AtOnce => self.settle(state, Pending { origin, copy }),
            Moves::Later => state.pending.push(Pending { origin, copy }),
        }
    }

    /// What a copy says: the same as its original, except where older entries may be and which client a floor names.
    fn copied(&self, state: &State, origin: Place) -> Kind {
        let oldest_held = state.members[PRIMARY].held.trailing_zeros() as u8;
        let least = if self.keeps(Rule::OldestHeld) { oldest_held } else { state.head };
        match state.log[usize::from(origin)].kind {
            Kind::Object { key, version, oldest } => Kind::Object { key, version, oldest: oldest.max(least) },
            Kind::Tombstone { key, version, oldest, killed } => {
                Kind::Tombstone { key, version, oldest: oldest.max(oldest_held), killed }
            }
            Kind::Record { sequence, lease, acknowledgement } => {
                let acknowledgement = if self.keeps(Rule::AcknowledgementCopied) { acknowledgement } else { 1 };
                Kind::Record { sequence, lease, acknowledgement }
            }
            Kind::ExpiryFloor { time, names_client, first } => {
                if !self.keeps(Rule::FloorCopyForgetsNothing) {
                    return Kind::ExpiryFloor { time, names_client, first: state.log.len() as Place };
                }
                let names_client = names_client && self.bounds.floor_copy == FloorCopy::FirstPlace;
                Kind::ExpiryFloor { time, names_client, first }
            }
            kind @ (Kind::OperationKey { .. } | Kind::Dropped { .. } | Kind::VersionFloor { .. }) => kind,
            Kind::Freed { .. } => unreachable!("never alive"),
        }
    }

    /// R5.7: the reference moves if it still leads to the origin; otherwise the copy is dead. The copy says which reference.
    fn settle(&self, state: &mut State, Pending { origin, copy }: Pending) {
        let Memory { keys, version_floor_entry, client, floor_entry, operation_key, dropped_entry, .. } =
            &mut state.members[PRIMARY].memory;
        let reference = match state.log[usize::from(copy)].kind {
            Kind::Object { key, .. } | Kind::Tombstone { key, .. } => Some(&mut keys[usize::from(key)]),
            Kind::Record { sequence, .. } => {
                client.as_mut().map(|client| &mut client.records[usize::from(sequence) - 1])
            }
            Kind::OperationKey { .. } => Some(operation_key),
            Kind::Dropped { .. } => Some(dropped_entry),
            Kind::ExpiryFloor { .. } => Some(floor_entry),
            Kind::VersionFloor { .. } => Some(version_floor_entry),
            Kind::Freed { .. } => unreachable!("never copied"),
        };
        if let Some(reference) = reference.filter(|at| **at == Some(origin) || !self.keeps(Rule::MovedIfLive)) {
            *reference = Some(copy);
        }
    }
}
