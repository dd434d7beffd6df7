//! What a node did with its files, step by step, and what a crash between two steps leaves of them.

use kasha_log::{EntryKind, GROUP_HEADER_BYTES, entry_bytes};
use kasha_machine::FileName;
use kasha_types::ConnId;

use super::{Files, Heard};

/// What a shell did, in order, for who wants to stop between two of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Write { file: FileName, offset: u64, bytes: Vec<u8> },
    Replace { file: FileName, bytes: Vec<u8> },
    Truncate { file: FileName, len: u64 },
    Remove { file: FileName },
    Commit { fsync: bool },
    Told { to: ConnId, what: Heard },
}

impl Files {
    /// What the step does to the files.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Write { file, offset, bytes } => {
                let content = self.0.entry(*file).or_default();
                let end = *offset as usize + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*offset as usize..end].copy_from_slice(bytes);
            }
            Step::Replace { file, bytes } => drop(self.0.insert(*file, bytes.clone())),
            Step::Truncate { file, len } => self.0.entry(*file).or_default().resize(*len as usize, 0),
            Step::Remove { file } => drop(self.0.remove(file)),
            Step::Commit { .. } | Step::Told { .. } => {}
        }
    }
}

/// What a step has to do with cleaning.
#[derive(Default)]
pub struct Kinds {
    pub copied: Vec<EntryKind>,
    /// Segments that it says are freed.
    pub freed: usize,
    pub removed: bool,
    /// Where its groups end.
    pub ends: Vec<usize>,
}

impl Kinds {
    pub fn of(step: &Step) -> Self {
        let mut kinds =
            Self { removed: matches!(step, Step::Remove { file: FileName::Segment { .. } }), ..Self::default() };
        let Step::Write { file: FileName::Segment { .. }, bytes, .. } = step else { return kinds };
        let len_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("whole groups")) as usize;
        let mut at = 0;
        while at < bytes.len() {
            let is_of_copies = bytes[at + 40] & 1 == 1;
            let mut entry = at + GROUP_HEADER_BYTES as usize;
            at = entry + len_at(at + 4);
            while entry < at {
                let kind = EntryKind::from_u8(bytes[entry]).expect("a kind");
                kinds.freed += usize::from(kind == EntryKind::SegmentFreed);
                kinds.copied.extend(is_of_copies.then_some(kind));
                entry += entry_bytes(len_at(entry + 4));
            }
            kinds.ends.push(at);
        }
        kinds
    }
}

/// A node's files through a run: what its process sees, and what is on the disk.
#[derive(Default)]
pub struct Disk {
    pub cached: Files,
    durable: Files,
    waiting: Vec<Step>,
    /// Steps of the run until the last fsync.
    pub fsynced: usize,
}

impl Disk {
    pub fn follow(&mut self, steps: usize, step: &Step) {
        self.cached.apply(step);
        match step {
            Step::Commit { fsync: true } => {
                self.waiting.drain(..).for_each(|step| self.durable.apply(&step));
                self.fsynced = steps;
            }
            _ => self.waiting.push(step.clone()),
        }
    }

    /// What a loss of power leaves: what was fsynced, and of the rest nothing, or all, or what was done to names without what
    /// was written, as file systems may order it.
    pub fn after_power_loss(&self) -> [Files; 3] {
        let mut names = self.durable.clone();
        let changed = self.waiting.iter().filter(|step| !matches!(step, Step::Write { .. }));
        changed.for_each(|step| names.apply(step));
        [self.durable.clone(), self.cached.clone(), names]
    }

    /// What a kill in the middle of this step may leave: some groups of a write, the last of them cut short or whole.
    pub fn within(&self, step: &Step) -> Vec<Files> {
        let Step::Write { file, offset, bytes } = step else { return Vec::new() };
        let ends = Kinds::of(step).ends;
        let lengths = ends.iter().flat_map(|end| [end - 20, *end]).filter(|length| *length < bytes.len());
        let part = |length: usize| Step::Write { file: *file, offset: *offset, bytes: bytes[..length].to_vec() };
        let cut = |length| {
            let mut files = self.cached.clone();
            files.apply(&part(length));
            files
        };
        lengths.map(cut).collect()
    }
}
