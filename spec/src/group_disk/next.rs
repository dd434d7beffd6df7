//! Which actions are possible in a state. An action that would change nothing is dropped by the model's `next_state`.

use crate::group_disk::rules::Rule;
use crate::group_disk::state::{FILES, Files, Memory, PAGES, SLOTS, State};
use crate::group_disk::{Action, GroupDisk, Write};

/// The pages of both files, as (file, slot, page).
pub(super) fn places() -> impl Iterator<Item = (usize, usize, usize)> {
    let slots = (0..FILES).flat_map(|file| (0..SLOTS).map(move |slot| (file, slot)));
    slots.flat_map(|(file, slot)| (0..PAGES).map(move |page| (file, slot, page)))
}

/// The pages that were written and not fsynced.
pub(super) fn dirty(disk: &Files, cache: &Files) -> Vec<(usize, usize, usize)> {
    places().filter(|&(file, slot, page)| disk[file][slot][page] != cache[file][slot][page]).collect()
}

impl GroupDisk {
    /// Everything that may happen next.
    pub(super) fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(memory) = &state.memory else { return };
        let mut writes = Vec::new();
        self.writes(state, memory, &mut writes);
        actions.extend(writes.iter().map(|&write| Action::Write(write)));
        if !self.keeps(Rule::LogViewWithLog) && state.left.cuts > 0 {
            actions.push(Action::WriteLogView);
        }
        if state.is_dirty() || state.may_have.len() > 1 {
            actions.push(Action::Fsync);
        }
        if state.left.kills > 0 {
            actions.push(Action::Kill);
            actions.extend(writes.into_iter().map(Action::KillInWrite));
        }
        if state.left.power_losses > 0 {
            let count = dirty(&state.disk, &state.cache).len();
            actions.extend((0..1u16 << count).map(|mask| Action::LosePower(mask as u8)));
        }
        if state.left.rot > 0 && state.left.kills > 0 {
            actions.extend((0..PAGES as u8).map(Action::Rot));
        }
    }

    fn writes(&self, state: &State, memory: &Memory, writes: &mut Vec<Write>) {
        let has_room = usize::from(memory.next) < SLOTS;
        if state.left.operations > 0 && has_room {
            writes.push(Write::Operation);
        }
        if state.left.views > 0 && has_room {
            writes.push(Write::View);
        }
        // What the other file has may be needed until this one is on the disk: one file at a time.
        let may_begin = !state.is_dirty();
        let begins = self.keeps(Rule::CutBeginsFile);
        if state.left.cuts > 0 && state.left.operations > 0 && (!begins || may_begin) && (begins || has_room) {
            writes.extend((0..=memory.content.log.len() as u8).map(Write::NewLog));
        }
        if !has_room && may_begin {
            writes.push(Write::NextFile);
        }
    }
}
