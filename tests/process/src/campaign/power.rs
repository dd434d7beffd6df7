//! Simulates a loss of power in a folder whose processes wrote a journal (`kasha_runtime`, feature `test-faults`).
//!
//! The journal has every change and every fsync, and the bytes that each change overwrote. Everything that an fsync
//! covered is kept. Of the rest, a disk may hold anything: each 512-byte sector of a file as it was at some moment
//! since; the file's length as of some moment; and of the names in a folder the new or the old ones, one by one (POSIX
//! promises no order). A sector itself is never torn, and all bytes of a sector are of the same moment, because it was
//! written back as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use kasha_machine::Rng;

use super::plan::Kept;

const SECTOR: u64 = 512;

/// The position of a record: its journal, and its number there.
type Place = (usize, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Write { offset: u64, len: u64, old_len: u64, old: Vec<u8> },
    Truncate { len: u64, old_len: u64, old: Vec<u8> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Create { inode: u64, path: PathBuf },
    Remove { path: PathBuf, grave: PathBuf },
    Rename { inode: u64, from: PathBuf, to: PathBuf, grave: Option<PathBuf> },
}

/// All journals of a folder.
#[derive(Debug, Default)]
struct Journals {
    changes: Vec<(Place, u64, Change)>,
    entries: Vec<(Place, Entry)>,
    synced: BTreeMap<u64, Place>,
    folders: BTreeMap<PathBuf, Place>,
}

/// The changes that a loss of power took back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number of changes of files that no fsync covered.
    pub changes: usize,
    /// Number of files with such changes.
    pub files: usize,
    /// Number of names (new, gone or changed) that no fsync covered.
    pub names: usize,
    /// Number of these names that are as they were before.
    pub names_undone: usize,
}

/// Turns a folder into what its disk holds after a loss of power, and removes the journals: from now on the folder is
/// what the disk holds. All of its processes must have ended.
///
/// # Errors
/// If a journal cannot be understood or a file cannot be changed.
pub fn lose_power(folder: &Path, journal: &Path, kept: Kept, rng: &mut Rng) -> io::Result<Lost> {
    let journals = Journals::read(journal)?;
    let mut lost = Lost::default();
    let places = inodes(folder, journal)?;
    let mut open: BTreeMap<u64, Vec<&Change>> = BTreeMap::new();
    for (place, inode, change) in &journals.changes {
        if journals.synced.get(inode).is_none_or(|covered| place >= covered) {
            open.entry(*inode).or_default().push(change);
        }
    }
    for (inode, changes) in open {
        // The last name of the file is gone for good, on the platter too.
        let Some(path) = places.get(&inode) else { continue };
        lost.changes += changes.len();
        lost.files += 1;
        forget_changes(path, &changes, kept, rng)?;
    }
    let covers = |path: &Path| path.parent().and_then(|folder| journals.folders.get(folder));
    let is_open = |(place, entry): &&(Place, Entry)| covers(entry.path()).is_none_or(|covered| place >= covered);
    let entries: Vec<&Entry> = journals.entries.iter().filter(is_open).map(|(_, entry)| entry).collect();
    lost.names = entries.len();
    lost.names_undone = forget_entries(&entries, kept, rng)?;
    forget(journal)?;
    Ok(lost)
}

/// Removes the journals: the test has changed the folder, and from now on the folder is what the disk holds.
///
/// # Errors
/// If the journals cannot be removed.
pub fn forget(journal: &Path) -> io::Result<()> {
    match fs::remove_dir_all(journal) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The path of every file below these folders, by inode.
fn inodes(folder: &Path, journal: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![folder.to_owned(), journal.to_owned()]);
    while let Some(folder) = left.pop() {
        if !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            } else {
                found.insert(entry.metadata()?.ino(), entry.path());
            }
        }
    }
    Ok(found)
}

impl Change {
    /// Undoes the change.
    fn undo(&self, content: &mut Vec<u8>) {
        let (at, old_len, old) = match self {
            Self::Write { offset, old_len, old, .. } => (*offset, *old_len, old),
            Self::Truncate { len, old_len, old } => (*len, *old_len, old),
        };
        content.resize(size(old_len), 0);
        content[size(at).min(size(old_len))..][..old.len()].copy_from_slice(old);
    }

    /// The sectors that the change touched.
    fn sectors(&self) -> std::ops::Range<u64> {
        let (from, to) = match self {
            // A write beyond the end also makes the hole before it.
            Self::Write { offset, len, old_len, .. } => (*offset.min(old_len), offset + len),
            Self::Truncate { len, old_len, .. } => (*len.min(old_len), *len.max(old_len)),
        };
        from / SECTOR..to.div_ceil(SECTOR)
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).expect("it fits memory")
}

/// Bytes of a sector, as far as the file has them.
fn sector(content: &[u8], number: u64) -> &[u8] {
    let from = size(number * SECTOR).min(content.len());
    &content[from..content.len().min(from + size(SECTOR))]
}

/// The number of changes after which a piece of the file was last written back.
fn moment(changes: usize, kept: Kept, rng: &mut Rng) -> usize {
    match kept {
        Kept::Nothing => 0,
        Kept::Everything => changes,
        // Mostly all or none of a piece's changes, since a disk is not that busy.
        Kept::Some => match rng.below(4) {
            0 => 0,
            1 => changes,
            _ => size(rng.below(changes as u64 + 1)),
        },
    }
}

fn forget_changes(path: &Path, changes: &[&Change], kept: Kept, rng: &mut Rng) -> io::Result<()> {
    let mut content = fs::read(path)?;
    let image = image(&mut content, changes, |changes| moment(changes, kept, rng));
    let file = File::options().write(true).open(path)?;
    file.set_len(image.len() as u64)?;
    file.write_all_at(&image, 0)
}

/// The file as it may be found. `content` is the file after all changes, and at the end the file before all of them.
fn image(content: &mut Vec<u8>, changes: &[&Change], mut moment: impl FnMut(usize) -> usize) -> Vec<u8> {
    let sectors: BTreeSet<u64> = changes.iter().flat_map(|change| change.sectors()).collect();
    let mut by_moment: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for number in sectors {
        by_moment.entry(moment(changes.len())).or_default().push(number);
    }
    let length_at = moment(changes.len());
    let mut length = content.len();
    let mut pieces: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let whole = content.clone();
    for (index, change) in changes.iter().enumerate().rev() {
        change.undo(content);
        if length_at == index {
            length = content.len();
        }
        for number in by_moment.get(&index).into_iter().flatten() {
            pieces.insert(*number, sector(content, *number).to_vec());
        }
    }
    let mut image = whole;
    image.resize(length, 0);
    for (number, piece) in pieces {
        let from = size(number * SECTOR).min(length);
        let to = length.min(from + size(SECTOR));
        let place = &mut image[from..to];
        place.fill(0);
        let len = piece.len().min(place.len());
        place[..len].copy_from_slice(&piece[..len]);
    }
    image
}

impl Entry {
    fn path(&self) -> &Path {
        match self {
            Self::Create { path, .. } | Self::Remove { path, .. } => path,
            Self::Rename { to, .. } => to,
        }
    }

    fn names(&self) -> Vec<&Path> {
        match self {
            Self::Create { path, .. } | Self::Remove { path, .. } => vec![path],
            Self::Rename { from, to, .. } => vec![from, to],
        }
    }

    fn undo(&self) -> io::Result<()> {
        let is = |path: &Path, inode: u64| fs::metadata(path).is_ok_and(|found| found.ino() == inode);
        match self {
            Self::Create { inode, path } if is(path, *inode) && path.is_dir() => fs::remove_dir_all(path),
            Self::Create { inode, path } if is(path, *inode) => fs::remove_file(path),
            Self::Remove { path, grave } if grave.exists() => fs::rename(grave, path),
            Self::Rename { inode, from, to, grave } if is(to, *inode) => {
                fs::rename(to, from)?;
                grave.as_ref().map_or(Ok(()), |grave| fs::rename(grave, to))
            }
            // The change was recorded and then not made, or its folder is gone.
            Self::Create { .. } | Self::Remove { .. } | Self::Rename { .. } => Ok(()),
        }
    }
}

/// Undoes changes of names. Names that a renaming ties together are kept or undone together, up to one moment.
fn forget_entries(entries: &[&Entry], kept: Kept, rng: &mut Rng) -> io::Result<usize> {
    let mut groups: Vec<(BTreeSet<&Path>, Vec<usize>)> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let (mut names, mut members) = (entry.names().into_iter().collect::<BTreeSet<_>>(), vec![index]);
        groups.retain(|(others, indices)| {
            let is_tied = !others.is_disjoint(&names);
            if is_tied {
                names.extend(others);
                members.extend(indices);
            }
            !is_tied
        });
        members.sort_unstable();
        groups.push((names, members));
    }
    let mut undone: Vec<usize> = Vec::new();
    for (_, members) in &groups {
        undone.extend(&members[moment(members.len(), kept, rng)..]);
    }
    undone.sort_unstable();
    for index in undone.iter().rev() {
        entries[*index].undo()?;
    }
    Ok(undone.len())
}

impl Journals {
    fn read(folder: &Path) -> io::Result<Self> {
        let mut journals = Self::default();
        let mut paths = Vec::new();
        if folder.exists() {
            for entry in fs::read_dir(folder)? {
                paths.push(entry?.path());
            }
        }
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
        paths.sort();
        for (number, path) in paths.iter().enumerate() {
            journals.read_one(number, &fs::read(path)?)?;
        }
        Ok(journals)
    }

    fn read_one(&mut self, journal: usize, mut rest: &[u8]) -> io::Result<()> {
        let mut number = 0;
        // The last record of a killed process may be incomplete.
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            let fields: Vec<&str> = line.split('\t').collect();
            let bytes =
                if matches!(fields[0], "write" | "truncate") { size(numbers(&fields)?[fields.len() - 2]) } else { 0 };
            rest = &rest[end + 1..];
            let Some((old, then)) = rest.split_at_checked(bytes) else { break };
            rest = then;
            self.enter((journal, number), &fields, old)?;
            number += 1;
        }
        Ok(())
    }

    fn enter(&mut self, place: Place, fields: &[&str], old: &[u8]) -> io::Result<()> {
        let number = |field: &str| field.parse::<u64>().map_err(|_| unreadable(fields));
        let later = |covered: &mut Place, up_to: Place| *covered = (*covered).max(up_to);
        match fields {
            ["write", ..] => {
                let [inode, offset, len, old_len, _] = numbers(fields)?[..] else { return Err(unreadable(fields)) };
                self.changes.push((place, inode, Change::Write { offset, len, old_len, old: old.to_vec() }));
            }
            ["truncate", ..] => {
                let [inode, len, old_len, _] = numbers(fields)?[..] else { return Err(unreadable(fields)) };
                self.changes.push((place, inode, Change::Truncate { len, old_len, old: old.to_vec() }));
            }
            ["create", inode, path] => {
                self.entries.push((place, Entry::Create { inode: number(inode)?, path: path.into() }));
            }
            ["remove", _, path, grave] => {
                self.entries.push((place, Entry::Remove { path: path.into(), grave: grave.into() }));
            }
            ["rename", inode, from, to, grave] => {
                let grave = (*grave != "-").then(|| grave.into());
                let (inode, from, to) = (number(inode)?, from.into(), to.into());
                self.entries.push((place, Entry::Rename { inode, from, to, grave }));
            }
            ["synced", inode, up_to] => {
                later(self.synced.entry(number(inode)?).or_default(), (place.0, number(up_to)?));
            }
            ["folder", path, up_to] => {
                later(self.folders.entry(path.into()).or_default(), (place.0, number(up_to)?));
            }
            _ => return Err(unreadable(fields)),
        }
        Ok(())
    }
}

fn numbers(fields: &[&str]) -> io::Result<Vec<u64>> {
    fields[1..].iter().map(|field| field.parse().map_err(|_| unreadable(fields))).collect()
}

fn unreadable(fields: &[&str]) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no record of a journal: {fields:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Folder;

    /// A folder of data and one of journals, and the records that a process would have written.
    struct Bench {
        folder: Folder,
        text: Vec<u8>,
        records: u64,
    }

    impl Bench {
        fn new(name: &str) -> Self {
            let folder = Folder::new(name);
            fs::create_dir(folder.path().join("data")).unwrap();
            fs::create_dir(folder.path().join("journal")).unwrap();
            Self { folder, text: Vec::new(), records: 0 }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join("data").join(name)
        }

        fn record(&mut self, line: &str, bytes: &[u8]) {
            self.text.extend_from_slice(line.as_bytes());
            self.text.push(b'\n');
            self.text.extend_from_slice(bytes);
            self.records += 1;
        }

        fn create(&mut self, name: &str) {
            let path = self.path(name);
            fs::write(&path, "").unwrap();
            let inode = fs::metadata(&path).unwrap().ino();
            self.record(&format!("create\t{inode}\t{}", path.display()), &[]);
        }

        fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) {
            let file = File::options().read(true).write(true).open(self.path(name)).unwrap();
            let meta = file.metadata().unwrap();
            let mut old = vec![0; size((offset + bytes.len() as u64).min(meta.len()).saturating_sub(offset))];
            file.read_exact_at(&mut old, offset).unwrap();
            let (inode, len) = (meta.ino(), meta.len());
            self.record(&format!("write\t{inode}\t{offset}\t{}\t{len}\t{}", bytes.len(), old.len()), &old);
            file.write_all_at(bytes, offset).unwrap();
        }

        fn sync(&mut self, name: &str) {
            let inode = fs::metadata(self.path(name)).unwrap().ino();
            self.record(&format!("synced\t{inode}\t{}", self.records), &[]);
        }

        fn sync_folder(&mut self) {
            let folder = self.path("");
            let folder = folder.to_str().unwrap().trim_end_matches('/').to_owned();
            self.record(&format!("folder\t{folder}\t{}", self.records), &[]);
        }

        fn lose_power(&self, kept: Kept, seed: u64) -> Lost {
            let journal = self.folder.path().join("journal");
            // The last record is torn.
            let text = [&self.text[..], b"write\t1\t0\t5\t0\t5\nab"].concat();
            fs::write(journal.join("0000.journal"), text).unwrap();
            lose_power(&self.path(""), &journal, kept, &mut Rng::new(seed)).unwrap()
        }
    }

    #[test]
    fn what_is_fsynced_stays_and_the_rest_may_go() {
        for (kept, expected) in [(Kept::Nothing, "old__"), (Kept::Everything, "oNEW__more")] {
            let mut bench = Bench::new("platter");
            bench.create("a");
            bench.write("a", 0, b"old__");
            bench.sync("a");
            bench.sync_folder();
            bench.write("a", 1, b"NEW_");
            bench.write("a", 5, b"_more");
            bench.create("b");
            let lost = bench.lose_power(kept, 1);
            assert_eq!((lost.changes, lost.files, lost.names), (2, 1, 1));
            assert_eq!(fs::read_to_string(bench.path("a")).unwrap(), expected);
            assert_eq!(bench.path("b").exists(), kept == Kept::Everything);
            assert!(!bench.folder.path().join("journal").exists(), "what is there is the truth now");
        }
    }

    #[test]
    fn a_file_whose_name_was_not_fsynced_goes_with_its_content() {
        let mut bench = Bench::new("nameless");
        bench.create("a");
        bench.write("a", 0, b"content");
        bench.sync("a");
        assert_eq!(bench.lose_power(Kept::Nothing, 1).names_undone, 1);
        assert!(!bench.path("a").exists());
    }

    #[test]
    fn removals_and_renamings_are_undone() {
        let mut bench = Bench::new("names");
        for (name, content) in [("gone", "gone"), ("meta", "old"), ("meta.new", "new")] {
            bench.create(name);
            bench.write(name, 0, content.as_bytes());
            bench.sync(name);
        }
        bench.sync_folder();
        let grave = |number: u64| bench.folder.path().join(format!("journal/grave-{number}"));
        let (first, second) = (grave(1), grave(2));
        let (gone, meta, new) = (bench.path("gone"), bench.path("meta"), bench.path("meta.new"));
        fs::rename(&gone, &first).unwrap();
        bench.record(&format!("remove\t1\t{}\t{}", gone.display(), first.display()), &[]);
        fs::hard_link(&meta, &second).unwrap();
        let inode = fs::metadata(&new).unwrap().ino();
        fs::rename(&new, &meta).unwrap();
        let line = format!("rename\t{inode}\t{}\t{}\t{}", new.display(), meta.display(), second.display());
        bench.record(&line, &[]);
        bench.lose_power(Kept::Nothing, 1);
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((read(&gone).as_str(), read(&meta).as_str(), read(&new).as_str()), ("gone", "old", "new"));
    }

    #[test]
    fn every_sector_is_as_it_was_at_some_moment() {
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            let mut bench = Bench::new("sectors");
            bench.create("a");
            bench.write("a", 0, &[b'0'; 1024]);
            bench.sync("a");
            bench.sync_folder();
            bench.write("a", 0, &[b'1'; 1024]);
            bench.write("a", 500, &[b'2'; 24]);
            bench.write("a", 1024, &[b'3'; 512]);
            bench.lose_power(Kept::Some, seed);
            let content = fs::read(bench.path("a")).unwrap();
            let first: &[u8] = &content[..512];
            let states = [vec![b'0'; 512], vec![b'1'; 512], [&[b'1'; 500][..], &[b'2'; 12]].concat()];
            assert!(states.iter().any(|state| state == first), "seed {seed}");
            assert!(content.len() == 1024 || content.len() == 1536, "seed {seed}");
            assert!(content[1024..].iter().all(|byte| *byte == 0) || content[1024..] == [b'3'; 512], "seed {seed}");
            seen.insert((first[0], first[511], content[1023], content.get(1024).copied()));
        }
        assert!(seen.len() > 12, "only {seen:?}");
    }
}
