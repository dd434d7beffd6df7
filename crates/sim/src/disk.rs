//! The files of a process: what the page cache shows, and what the platter would still have after a loss of power.
//!
//! Every change applies to the cached image at once, and waits in a list until an fsync covers it. A crash of the
//! process loses nothing. A loss of power keeps any subset of the waiting changes: each 512-byte sector of a write, and
//! each change of metadata, is kept or lost by a random draw. A replacement is old or new as a whole (the contract of
//! `Effect::Replace`). Files are sparse: a preallocated witness file costs only what was written to it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use kasha_machine::{Disk, FileName, Rng};
use kasha_types::{SegmentId, ShardId};

const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// Position in a replica's marks of the end that was surely acknowledged.
const NOTED_AT: u64 = 24;
/// Position in a group's header of the group's own offset in the log.
const GROUP_OFFSET_AT: u64 = 16;

type Page = [u8; PAGE_BYTES];

/// The content of a file, in shared pages. Bytes without a page are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pages: BTreeMap<u64, Rc<Page>>,
    len: u64,
}

impl Content {
    fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes at an offset; a gap reads as zeros.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = (at % PAGE_BYTES as u64) as usize;
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - within));
            let page = self.pages.entry(at / PAGE_BYTES as u64).or_insert_with(|| Rc::new([0; PAGE_BYTES]));
            Rc::make_mut(page)[within..within + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        self.len = self.len.max(at);
    }

    /// Cuts or extends the content to this length.
    pub fn truncate(&mut self, len: u64) {
        let keep = len.div_ceil(PAGE_BYTES as u64);
        self.pages.retain(|&index, _| index < keep);
        let within = (len % PAGE_BYTES as u64) as usize;
        if let Some(page) = self.pages.get_mut(&(len / PAGE_BYTES as u64)).filter(|_| within > 0) {
            Rc::make_mut(page)[within..].fill(0);
        }
        self.len = len;
    }

    /// The bytes from `offset`; fewer than `len` if the file ends.
    #[must_use]
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = offset.saturating_add(len as u64).min(self.len);
        let mut out = vec![0; usize::try_from(end.saturating_sub(offset)).expect("in memory")];
        let (first, last) = (offset / PAGE_BYTES as u64, end.div_ceil(PAGE_BYTES as u64));
        for (&index, page) in self.pages.range(first..last.max(first)) {
            let base = index * PAGE_BYTES as u64;
            let (from, to) = (base.max(offset), (base + PAGE_BYTES as u64).min(end));
            if from < to {
                out[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&page[(from - base) as usize..(to - base) as usize]);
            }
        }
        out
    }

    /// The whole content.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.read(0, usize::try_from(self.len).expect("in memory"))
    }

    /// Whether `is_it` is true for one of the 4 KiB pages that were ever written.
    #[must_use]
    pub fn any_page(&self, mut is_it: impl FnMut(&[u8; 4096]) -> bool) -> bool {
        self.pages.values().any(|page| is_it(page))
    }

    /// Whether the bytes at `offset` are these.
    #[must_use]
    pub fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        offset + bytes.len() as u64 <= self.len && self.read(offset, bytes.len()) == bytes
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write { file: FileName, offset: u64, bytes: Rc<[u8]> },
    Replace { file: FileName, bytes: Rc<[u8]> },
    Truncate { file: FileName, len: u64 },
    Remove { file: FileName },
}

impl Change {
    fn file(&self) -> FileName {
        match self {
            Self::Write { file, .. }
            | Self::Replace { file, .. }
            | Self::Truncate { file, .. }
            | Self::Remove { file } => *file,
        }
    }
}

type Image = BTreeMap<FileName, Content>;

fn apply(image: &mut Image, change: &Change) {
    match change {
        Change::Write { file, offset, bytes } => image.entry(*file).or_default().write(*offset, bytes),
        Change::Replace { file, bytes } => drop(image.insert(*file, Content::of(bytes))),
        Change::Truncate { file, len } => image.entry(*file).or_default().truncate(*len),
        Change::Remove { file } => drop(image.remove(file)),
    }
}

/// Number of changes so far. An fsync covers the changes before its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The files of one process.
#[derive(Debug, Default)]
pub struct SimDisk {
    cached: Image,
    durable: Image,
    /// What no fsync of all files has covered. `None`: an fsync of the logs has.
    waiting: VecDeque<Option<Change>>,
    covered: u64,
}

impl SimDisk {
    /// A disk without files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk that holds what this one surely holds.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { cached: self.durable.clone(), durable: self.durable.clone(), ..Self::default() }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.cached, &change);
        self.waiting.push_back(Some(change));
    }

    /// Writes at an offset of a file.
    pub fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        self.change(Change::Write { file, offset, bytes: bytes.into() });
    }

    /// Replaces the whole content of a file.
    pub fn replace(&mut self, file: FileName, bytes: &[u8]) {
        self.change(Change::Replace { file, bytes: bytes.into() });
    }

    /// Cuts a file to a length.
    pub fn truncate(&mut self, file: FileName, len: u64) {
        self.change(Change::Truncate { file, len });
    }

    /// Removes a file.
    pub fn remove(&mut self, file: FileName) {
        self.change(Change::Remove { file });
    }

    /// A mark behind everything that was changed so far.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.covered + self.waiting.len() as u64)
    }

    /// A mark behind everything that was fsynced, or lost, so far.
    #[must_use]
    pub fn covered(&self) -> Mark {
        Mark(self.covered)
    }

    /// An fsync that began at `mark` has ended.
    pub fn synced(&mut self, mark: Mark) {
        while self.covered < mark.0 {
            let change = self.waiting.pop_front().expect("marked changes are there");
            if let Some(change) = change {
                apply(&mut self.durable, &change);
            }
            self.covered += 1;
        }
    }

    /// An fsync of the log segments that began at `mark` has ended. Other files wait for an fsync as before.
    pub fn synced_logs(&mut self, mark: Mark) {
        let marked = usize::try_from(mark.0.saturating_sub(self.covered)).expect("in memory");
        for change in self.waiting.iter_mut().take(marked) {
            let is_of_a_log = |change: &mut Change| matches!(change.file(), FileName::Segment { .. });
            if let Some(change) = change.take_if(is_of_a_log) {
                apply(&mut self.durable, &change);
            }
        }
    }

    /// A process starts: what it reads is fsynced first (see [`Disk`]).
    pub fn settle(&mut self) {
        let all = self.mark();
        self.synced(all);
    }

    /// An fsync has failed: the waiting changes are lost. (The page cache may go on showing them; nobody may rely on
    /// that.)
    pub fn lose_unsynced(&mut self) {
        self.covered += self.waiting.len() as u64;
        self.waiting.clear();
        self.cached = self.durable.clone();
    }

    /// Power was lost: keeps everything that was fsynced, and an arbitrary part of the rest.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        // Runs of changes that keep all, nothing or a prefix find other bugs than independent draws do. A file system
        // may also keep names and lose what was written.
        let style = rng.below(5);
        let prefix = rng.below(self.waiting.len() as u64 + 1);
        for (index, change) in (0u64..).zip(std::mem::take(&mut self.waiting)) {
            self.covered += 1;
            let Some(change) = change else { continue };
            let is_written = matches!(change, Change::Write { .. });
            let keep = |rng: &mut Rng| match style {
                0 => false,
                4 => !is_written,
                1 => index < prefix,
                2 => index + 1 < prefix || (index + 1 == prefix && rng.chance(1, 2)),
                _ => rng.chance(1, 2),
            };
            match &change {
                Change::Write { file, offset, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let sector_end = SECTOR_BYTES - (*offset as usize + at) % SECTOR_BYTES;
                        let end = bytes.len().min(at + sector_end);
                        if keep(rng) {
                            let part: Rc<[u8]> = bytes[at..end].into();
                            let offset = offset + at as u64;
                            apply(&mut self.durable, &Change::Write { file: *file, offset, bytes: part });
                        }
                        at = end;
                    }
                }
                Change::Replace { .. } | Change::Truncate { .. } | Change::Remove { .. } => {
                    if keep(rng) {
                        apply(&mut self.durable, &change);
                    }
                }
            }
        }
        self.cached = self.durable.clone();
    }

    /// The files whose damage a process can distinguish from what a crash leaves. Of a log's newest segment, whose end
    /// may be torn, that is only the part that the replica's marks note as acknowledged.
    #[must_use]
    pub fn damageable(&self) -> Vec<FileName> {
        let is_damageable = |file: FileName| match file {
            FileName::Segment { shard, segment } => {
                self.is_sealed(shard, segment) || self.acknowledged_within(shard, file) > 0
            }
            FileName::Replica(_)
            | FileName::Witness { .. }
            | FileName::WitnessMode { .. }
            | FileName::Core
            | FileName::Told => true,
            FileName::Coordinator(_) | FileName::Journal(_) => false,
        };
        let files = self.cached.iter().filter(|(file, content)| is_damageable(**file) && !content.is_empty());
        files.map(|(&file, _)| file).collect()
    }

    /// Whether the log has a later segment than this one.
    #[must_use]
    pub fn is_sealed(&self, shard: ShardId, segment: SegmentId) -> bool {
        let newer = |file: &FileName| match *file {
            FileName::Segment { shard: of, segment: other } => of == shard && other > segment,
            _ => false,
        };
        self.cached.keys().any(newer)
    }

    /// Bytes of a segment that its replica has noted as acknowledged (R5.5), by the documented layouts of both files.
    fn acknowledged_within(&self, shard: ShardId, segment: FileName) -> u64 {
        let number = |file: FileName, at: u64| {
            let bytes = self.cached.get(&file)?.read(at, 8);
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let (noted, base) = (number(FileName::Replica(shard), NOTED_AT), number(segment, GROUP_OFFSET_AT));
        noted.zip(base).map_or(0, |(noted, base)| noted.saturating_sub(base))
    }

    /// Damages a file: it is gone, or begins with other bytes, or lacks its end.
    pub fn damage(&mut self, file: FileName, rng: &mut Rng) {
        self.settle();
        let shortest = match file {
            FileName::Segment { shard, .. } if rng.chance(1, 2) => self.acknowledged_within(shard, file),
            _ => 0,
        };
        let len = self.cached.get(&file).map_or(0, Content::len);
        let shortest = shortest.min(len);
        if shortest > 0 {
            self.truncate(file, rng.below(shortest));
        } else if rng.chance(1, 2) {
            self.remove(file);
        } else {
            self.write(file, 0, &rng.next_u64().to_le_bytes());
        }
        self.settle();
    }

    /// Changes the last bytes of a log's newest segment. A process that starts in the same boot can detect that.
    pub fn damage_end(&mut self, rng: &mut Rng) -> bool {
        self.settle();
        let is_newest =
            |file: &FileName| matches!(*file, FileName::Segment { shard, segment } if !self.is_sealed(shard, segment));
        let newest: Vec<_> =
            self.cached.iter().filter(|(file, content)| is_newest(file) && content.len() >= 8).collect();
        if newest.is_empty() {
            return false;
        }
        let &(&file, content) = rng.pick(&newest);
        let at = content.len() - 8;
        self.write(file, at, &rng.next_u64().to_le_bytes());
        self.settle();
        true
    }

    /// A file, as the page cache shows it.
    #[must_use]
    pub fn cached(&self, file: FileName) -> Option<&Content> {
        self.cached.get(&file)
    }

    /// A file, as it surely is after a loss of power.
    #[must_use]
    pub fn durable(&self, file: FileName) -> Option<&Content> {
        self.durable.get(&file)
    }

    /// Every file, as the page cache shows it.
    pub fn files(&self) -> impl Iterator<Item = (FileName, &Content)> {
        self.cached.iter().map(|(&name, content)| (name, content))
    }
}

impl Disk for SimDisk {
    fn list(&self) -> Vec<FileName> {
        self.cached.keys().copied().collect()
    }

    fn read(&self, file: FileName) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.cached.get(&file).map(Content::bytes))
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{SegmentId, ShardId};

    use super::*;

    const FILE: FileName = FileName::Replica(ShardId(1));

    fn content(disk: &SimDisk) -> Vec<u8> {
        disk.read(FILE).expect("readable").unwrap_or_default()
    }

    #[test]
    fn sparse_content_is_a_file() {
        let mut rng = Rng::new(1);
        let (mut content, mut model) = (Content::default(), Vec::new());
        for _ in 0..500 {
            let offset = rng.below(20_000) as usize;
            if rng.chance(1, 5) {
                content.truncate(offset as u64);
                model.resize(offset, 0);
            } else {
                let bytes: Vec<u8> = (0..rng.below(9000)).map(|n| n as u8 ^ offset as u8).collect();
                content.write(offset as u64, &bytes);
                if !bytes.is_empty() {
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
            assert_eq!(content.bytes(), model);
            let from = rng.below(25_000);
            let expected = model.get(from as usize..).map_or(&[][..], |rest| &rest[..rest.len().min(700)]);
            assert_eq!(content.read(from, 700), expected);
        }
    }

    #[test]
    fn what_was_fsynced_survives_any_loss_of_power() {
        for seed in 0..200 {
            let (mut disk, mut rng) = (SimDisk::new(), Rng::new(seed));
            disk.write(FILE, 0, &[1; 2000]);
            let mark = disk.mark();
            disk.write(FILE, 2000, &[2; 2000]);
            disk.synced(mark);
            disk.lose_power(&mut rng);
            assert_eq!(content(&disk)[..2000], [1; 2000]);
        }
    }

    #[test]
    fn an_fsync_of_logs_covers_nothing_else() {
        let log = FileName::Segment { shard: ShardId(1), segment: SegmentId(0) };
        for seed in 0..200 {
            let (mut disk, mut rng) = (SimDisk::new(), Rng::new(seed));
            disk.write(FILE, 0, &[1; 600]);
            disk.write(log, 0, &[1; 600]);
            disk.truncate(log, 500);
            let mark = disk.mark();
            disk.write(log, 500, &[2; 600]);
            disk.synced_logs(mark);
            assert_eq!((disk.mark(), disk.durable(FILE).is_none()), (Mark(4), true), "marks stay as they are");
            disk.lose_power(&mut rng);
            let bytes = disk.read(log).expect("readable").expect("it is there");
            assert_eq!(bytes[..500], [1; 500], "{seed}");
        }
    }

    #[test]
    fn a_file_that_was_removed_before_an_fsync_of_logs_stays_away() {
        let log = FileName::Segment { shard: ShardId(1), segment: SegmentId(0) };
        let mut disk = SimDisk::new();
        disk.write(log, 0, &[1; 600]);
        disk.remove(log);
        disk.synced_logs(disk.mark());
        disk.settle();
        disk.lose_power(&mut Rng::new(1));
        assert_eq!(disk.read(log).expect("readable"), None);
    }

    #[test]
    fn a_failed_fsync_takes_what_waits() {
        let mut disk = SimDisk::new();
        disk.write(FILE, 0, &[1; 100]);
        disk.synced(disk.mark());
        disk.write(FILE, 0, &[2; 200]);
        let mark = disk.mark();
        disk.lose_unsynced();
        assert_eq!(content(&disk), [1; 100]);
        disk.synced(mark);
        assert_eq!(content(&disk), [1; 100]);
    }

    #[test]
    fn what_was_not_is_lost_kept_and_torn() {
        let (mut lost, mut kept, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let (mut disk, mut rng) = (SimDisk::new(), Rng::new(seed));
            disk.write(FILE, 0, &[7; 1500]);
            assert_eq!(content(&disk), [7; 1500], "a crash of the process loses nothing");
            disk.lose_power(&mut rng);
            match content(&disk) {
                bytes if bytes == [7; 1500] => kept += 1,
                bytes if bytes.is_empty() => lost += 1,
                _ => torn += 1,
            }
        }
        assert!(lost > 0 && kept > 0 && torn > 0, "{lost} {kept} {torn}");
    }

    #[test]
    fn a_replacement_is_never_torn() {
        for seed in 0..200 {
            let (mut disk, mut rng) = (SimDisk::new(), Rng::new(seed));
            disk.replace(FILE, &[1; 1500]);
            disk.synced(disk.mark());
            disk.replace(FILE, &[2; 900]);
            disk.lose_power(&mut rng);
            assert!(content(&disk) == [1; 1500] || content(&disk) == [2; 900]);
        }
    }
}
