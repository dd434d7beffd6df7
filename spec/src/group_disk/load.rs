//! What a load finds: the newest file that begins with a whole snapshot, and the records that continue it.

use crate::group_disk::GroupDisk;
use crate::group_disk::rules::Rule;
use crate::group_disk::state::{Content, FILES, Kind, Memory, PAGES, Page, Record, RecordIx, SLOTS, State};

/// What a load says of the files.
enum Found {
    /// This is what the member has.
    Whole(Memory),
    /// Something that was there cannot be read.
    Damaged,
}

impl GroupDisk {
    /// The process starts. `same_boot`: the page cache survived, so everything that was written is there.
    pub(super) fn load(&self, state: &mut State, same_boot: bool) {
        state.memory = match self.find(state, same_boot) {
            Found::Damaged => None,
            Found::Whole(memory) => {
                state.wrong |= !state.may_have.contains(&memory.content);
                Some(memory)
            }
        };
        let Some(memory) = state.memory.clone() else { return };
        // What it found is what it has from now on. It is on the disk before the member says anything.
        state.may_have = [memory.content].into_iter().collect();
        if self.keeps(Rule::RestZeroed) {
            // The other file, too, if its snapshot is not whole: its pages would pass for damage at the next load.
            for file in 0..FILES {
                let is_whole = self.record(state, file, 0).is_ok();
                let rest = if file == usize::from(memory.file) { memory.next.into() } else { 0 };
                if rest > 0 || !is_whole {
                    state.cache[file][rest..].fill([Page::Zero; PAGES]);
                }
            }
        }
        state.disk = state.cache;
    }

    fn find(&self, state: &State, same_boot: bool) -> Found {
        let mut begun = Vec::new();
        for file in 0..FILES {
            match self.record(state, file, 0) {
                Ok(first) => begun.push((state.records[usize::from(first)].generation, file, first)),
                Err(()) if self.is_damage(state, file, 0, same_boot) => return Found::Damaged,
                Err(()) => {}
            }
        }
        let Some(&(generation, file, first)) = begun.iter().max() else { return Found::Damaged };
        let Kind::Snapshot(content) = &state.records[usize::from(first)].kind else { return Found::Damaged };
        let mut memory = Memory { content: content.clone(), file: file as u8, next: 1, last: first, generation };
        while usize::from(memory.next) < SLOTS {
            let slot = usize::from(memory.next);
            let continues = |record: &Record| {
                record.after == Some(memory.last) && record.generation == generation
                    || !self.keeps(Rule::ChainContinued)
            };
            match self.record(state, file, slot) {
                Ok(at) if continues(&state.records[usize::from(at)]) => {
                    apply(&mut memory.content, &state.records[usize::from(at)].kind);
                    (memory.last, memory.next) = (at, memory.next + 1);
                }
                // To whoever continues a checksum, a record that continues another one is a bad record.
                Ok(_) | Err(()) if self.is_damage(state, file, slot, same_boot) => return Found::Damaged,
                Ok(_) | Err(()) => break,
            }
        }
        memory.content.log_view = memory.content.log_view.max(state.log_view_alone);
        Found::Whole(memory)
    }

    /// The record in this slot, if it is whole.
    fn record(&self, state: &State, file: usize, slot: usize) -> Result<RecordIx, ()> {
        let pages = state.cache[file][slot];
        let Page::Part(first) = pages[0] else { return Err(()) };
        let is_whole = pages.iter().all(|&page| page == Page::Part(first)) || !self.keeps(Rule::WholeRecords);
        is_whole.then_some(first).ok_or(())
    }

    /// R9.5: a bad record in the same boot is damage, unless its end is zeros.
    fn is_damage(&self, state: &State, file: usize, slot: usize, same_boot: bool) -> bool {
        let pages = state.cache[file][slot];
        let is_empty = pages.iter().all(|&page| page == Page::Zero);
        let ends_in_zeros = pages[PAGES - 1] == Page::Zero && self.keeps(Rule::ZerosAreATornEnd);
        same_boot && !is_empty && !ends_in_zeros && self.keeps(Rule::DamageIsNotMissing)
    }
}

/// A record, behind those before it.
pub(super) fn apply(content: &mut Content, kind: &Kind) {
    match kind {
        Kind::Snapshot(snapshot) => *content = snapshot.clone(),
        Kind::Operation(number) => content.log.push(*number),
        Kind::View(view) => content.view = *view,
        Kind::Cut { view, log_view, kept } => {
            content.log.truncate(usize::from(*kept));
            (content.view, content.log_view) = (*view, *log_view);
        }
    }
}
