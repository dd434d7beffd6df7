//! The effect of each action on a state, with the rules that are switched on.

use crate::group_disk::load::apply;
use crate::group_disk::next::dirty;
use crate::group_disk::rules::Rule;
use crate::group_disk::state::{Content, FILES, Kind, PAGES, Page, Record, SLOTS, State};
use crate::group_disk::{Action, GroupDisk, Write};

impl GroupDisk {
    /// Applies an action to a state.
    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Write(write) => {
                self.write(state, write, PAGES);
                state.note();
                if !self.keeps(Rule::AcknowledgedFromDisk) {
                    acknowledge(state);
                }
            }
            Action::WriteLogView => state.log_view_alone = state.memory_mut().content.log_view + 1,
            Action::Fsync => {
                state.disk = state.cache;
                acknowledge(state);
            }
            Action::Kill => {
                state.left.kills -= 1;
                self.load(state, true);
            }
            Action::KillInWrite(write) => {
                state.left.kills -= 1;
                self.write(state, write, 1);
                self.load(state, true);
            }
            Action::LosePower(mask) => self.lose_power(state, mask),
            Action::Rot(page) => self.rot(state, page),
        }
    }

    /// Writes the first pages of a record to the page cache. The memory has what it says.
    fn write(&self, state: &mut State, write: Write, pages: usize) {
        match write {
            Write::Operation => {
                let kind = Kind::Operation(self.next_operation(state));
                append(state, kind, pages);
            }
            Write::View => {
                state.left.views -= 1;
                let view = state.memory_mut().content.view + 1;
                append(state, Kind::View(view), pages);
            }
            Write::NewLog(kept) => self.new_log(state, kept, pages),
            Write::NextFile => {
                let content = state.memory_mut().content.clone();
                self.begin_file(state, content, pages);
            }
        }
    }

    fn next_operation(&self, state: &mut State) -> u8 {
        state.left.operations -= 1;
        self.bounds.operations - state.left.operations
    }

    /// The log of a new view. Its log view comes in one write with it.
    fn new_log(&self, state: &mut State, kept: u8, pages: usize) {
        state.left.cuts -= 1;
        let mut content = state.memory_mut().content.clone();
        content.log_view += 1;
        content.view = content.view.max(content.log_view);
        let in_place = place_of_cut(state, kept).filter(|_| !self.keeps(Rule::CutBeginsFile));
        content.log.truncate(usize::from(kept));
        if let Some((slot, last)) = in_place {
            let memory = state.memory_mut();
            (memory.next, memory.last) = (slot, last);
            append(state, Kind::Cut { view: content.view, log_view: content.log_view, kept }, pages);
        } else {
            content.log.push(self.next_operation(state));
            self.begin_file(state, content, pages);
        }
    }

    /// A file begins: it is zeroed, and gets a snapshot of all that the member has.
    fn begin_file(&self, state: &mut State, content: Content, pages: usize) {
        let memory = state.memory_mut();
        let (old, new) = (usize::from(memory.file), (usize::from(memory.file) + 1) % FILES);
        (memory.file, memory.next, memory.generation) = (new as u8, 0, memory.generation + 1);
        if self.keeps(Rule::ZeroedBeforeLap) {
            state.cache[new] = [[Page::Zero; PAGES]; SLOTS];
        }
        if !self.keeps(Rule::OldFileStays) {
            state.cache[old] = [[Page::Zero; PAGES]; SLOTS];
            state.disk[old] = state.cache[old];
        }
        let mut snapshot = content.clone();
        if !self.keeps(Rule::ViewCarried) {
            snapshot.view = snapshot.log_view;
        }
        append(state, Kind::Snapshot(snapshot), pages);
        state.memory_mut().content = content;
    }

    fn lose_power(&self, state: &mut State, mask: u8) {
        state.left.power_losses -= 1;
        for (at, (file, slot, page)) in (0..).zip(dirty(&state.disk, &state.cache)) {
            if mask & 1 << at != 0 {
                state.disk[file][slot][page] = state.cache[file][slot][page];
            }
        }
        state.cache = state.disk;
        self.load(state, false);
    }

    fn rot(&self, state: &mut State, page: u8) {
        (state.left.rot, state.left.kills) = (state.left.rot - 1, state.left.kills - 1);
        let memory = state.memory_mut();
        let (file, slot) = (usize::from(memory.file), usize::from(memory.next) - 1);
        for files in [&mut state.cache, &mut state.disk] {
            files[file][slot][usize::from(page)] = Page::Rotten;
        }
        state.is_rotten = true;
        self.load(state, true);
    }
}

/// Everything that was written is acknowledged: a load must find it.
fn acknowledge(state: &mut State) {
    let content = state.memory_mut().content.clone();
    state.may_have = [content].into_iter().collect();
}

/// The first pages of a record go to the next slot of the page cache.
fn append(state: &mut State, kind: Kind, pages: usize) {
    let record = state.records.len() as u8;
    let memory = state.memory_mut();
    let after = Some(memory.last).filter(|_| memory.next > 0);
    let (file, slot, generation) = (usize::from(memory.file), usize::from(memory.next), memory.generation);
    apply(&mut memory.content, &kind);
    (memory.last, memory.next) = (record, memory.next + 1);
    state.records.push(Record { after, generation, kind });
    state.cache[file][slot][..pages].fill(Page::Part(record));
}

/// The slot of the first operation that is cut, and the record before it, if both are in this file.
fn place_of_cut(state: &mut State, kept: u8) -> Option<(u8, u8)> {
    let memory = state.memory_mut().clone();
    let first = *memory.content.log.get(usize::from(kept))?;
    let mut at = memory.last;
    for slot in (1..memory.next).rev() {
        let record = &state.records[usize::from(at)];
        let before = record.after?;
        if record.kind == Kind::Operation(first) {
            return Some((slot, before));
        }
        at = before;
    }
    None
}
