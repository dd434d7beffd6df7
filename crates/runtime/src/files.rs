//! Operations on one core's files, and what of them is not fsynced yet.
//!
//! Called by the loop, and by the log thread for what must follow a replacement. Knows nothing of commits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use kasha_machine::FileName;
use rustix::io::Errno;

use crate::limits::Limits;
use crate::{TrashThread, faults, paths};

/// Whatever users put into the store is in these files: only the owner of the process may read them.
pub(crate) const FILE_MODE: u32 = 0o600;
pub(crate) const FOLDER_MODE: u32 = 0o700;

/// A file or folder could not be used. The process must not go on as if it had worked (R5.4).
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {error}; {}", path.display(), advice(error))]
pub struct StorageError {
    /// The action that failed, as a verb.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error. The text tells it too, so it is no `source`, which reports would print once more.
    pub error: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            return "this process has no file descriptor left, and the disk may be well: raise its limit of open files \
                    (ulimit -Hn, or LimitNOFILE of a service), then start it again (K0113)";
        }
        Some(Errno::NFILE) => {
            return "the whole machine has no file descriptor left, and the disk may be well: raise its limit of open \
                    files (sysctl fs.file-max), or stop what uses them, then start the process again (K0113)";
        }
        Some(_) | None => {}
    }
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the process stops, and nothing was acknowledged that is not there: free space, then start it again (K0106)"
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            "make the data folder readable and writable for this user, then start the process again (K0107)"
        }
        ErrorKind::NotFound => {
            "there is no such path: bring back what was moved or removed, or mount its disk, then start the process \
             again; see the page of this code if it is gone for good (K0114)"
        }
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "something else lies there: name another folder for the data (K0102)"
        }
        _ => {
            "what the disk holds is not known any more: look into the kernel's log, replace the disk if it fails, then \
             start the process again, which recovers from its own files and from the other nodes (K0108)"
        }
    }
}

/// Makes the error of an action on a path.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StorageError + use<> {
    let path = path.to_owned();
    move |error| StorageError { action, path, error }
}

#[derive(Debug)]
struct Open {
    file: Arc<File>,
    used: u64,
    dirty: bool,
}

/// What must be fsynced so that everything done so far holds through a loss of power.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    files: Vec<(FileName, Arc<File>)>,
    folders: Vec<PathBuf>,
}

/// One core's folder.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    open: HashMap<FileName, Open, FixedState>,
    uses: u64,
    dirty: Dirty,
    /// The folders of shards that exist, or existed. A folder that is gone is never made again: what was durable in it
    /// is lost, and a process that wrote on would acknowledge into a folder that the next start does not accept.
    folders: HashSet<PathBuf, FixedState>,
    limits: Limits,
    trash: Option<TrashThread>,
    /// Files removed so far: each gets a name of its own until the trash thread has it.
    removals: u64,
}

impl Files {
    pub(crate) fn new(root: PathBuf, limits: Limits, trash: Option<TrashThread>) -> Self {
        // A root that cannot be listed has no files either: the first of them tells the reason.
        let entries = fs::read_dir(&root).into_iter().flatten().flatten();
        let shards = entries.filter(|entry| paths::shard(&entry.file_name().to_string_lossy()).is_some());
        let folders = shards.map(|entry| entry.path()).collect();
        Self { root, open: HashMap::default(), uses: 0, dirty: Dirty::default(), folders, limits, trash, removals: 0 }
    }

    pub(crate) fn write(&mut self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        // The path is made for an error only: this is done for every turn that writes.
        let file = self.dirty_file(name)?;
        faults::write(&file, offset, bytes).map_err(|error| failed("write to", &paths::path(&self.root, name).1)(error))
    }

    pub(crate) fn truncate(&mut self, name: FileName, len: u64) -> Result<(), StorageError> {
        let file = self.dirty_file(name)?;
        faults::truncate(&file, len).map_err(|error| failed("cut", &paths::path(&self.root, name).1)(error))
    }

    /// The folder's entry is fsynced with the next files: a removed file that comes back after a loss of power is one
    /// that the machine would have removed again. Only its name goes at once, if there is a thread for the rest.
    pub(crate) fn remove(&mut self, name: FileName) -> Result<(), StorageError> {
        self.open.remove(&name);
        self.dirty.files.retain(|(dirty, _)| *dirty != name);
        let (folder, path) = paths::path(&self.root, name);
        let removed = match &self.trash {
            None => faults::remove(&path),
            Some(trash) => {
                self.removals += 1;
                let gone = paths::gone(&path, self.removals);
                faults::rename(&path, &gone).map(|()| trash.remove(gone))
            }
        };
        match removed {
            Ok(()) => self.mark_folder(folder),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &path)(error)),
        }
        Ok(())
    }

    /// Replaces a file so that after a crash the old or the new content is found. Waits for the disk.
    pub(crate) fn replace(&mut self, name: FileName, bytes: &[u8]) -> Result<(), StorageError> {
        self.open.remove(&name);
        self.dirty.files.retain(|(dirty, _)| *dirty != name);
        let (folder, path) = paths::path(&self.root, name);
        self.make_folder(&folder)?;
        replace(&folder, &path, bytes)
    }

    /// Somebody else has written to this file, which exists: the next fsync is to cover the file.
    pub(crate) fn touch(&mut self, name: FileName) -> Result<(), StorageError> {
        self.dirty_file(name).map(drop)
    }

    /// A file, if it is open.
    pub(crate) fn opened(&self, name: FileName) -> Option<Arc<File>> {
        self.open.get(&name).map(|open| Arc::clone(&open.file))
    }

    /// Files written since they were last fsynced.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.files.len()
    }

    /// Whether nothing is to be fsynced.
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.files.is_empty() && self.dirty.folders.is_empty()
    }

    /// Hands out what is to be fsynced, and forgets it.
    pub(crate) fn take_dirty(&mut self) -> Dirty {
        self.take_dirty_of(|_| true)
    }

    /// The same of log segments, and of the folders that name them.
    pub(crate) fn take_dirty_logs(&mut self) -> Dirty {
        self.take_dirty_of(|name| matches!(name, FileName::Segment { .. }))
    }

    fn take_dirty_of(&mut self, is_one: impl Fn(FileName) -> bool) -> Dirty {
        let (taken, left) = std::mem::take(&mut self.dirty.files).into_iter().partition(|(name, _)| is_one(*name));
        self.dirty.files = left;
        let taken = Dirty { files: taken, folders: std::mem::take(&mut self.dirty.folders) };
        for (name, _) in &taken.files {
            if let Some(open) = self.open.get_mut(name) {
                open.dirty = false;
            }
        }
        taken
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn dirty_file(&mut self, name: FileName) -> Result<Arc<File>, StorageError> {
        self.uses += 1;
        if self.open.get(&name).is_none_or(|open| !open.dirty) {
            self.make_room()?;
        }
        if !self.open.contains_key(&name) {
            let file = Arc::new(self.open_file(name)?);
            self.open.insert(name, Open { file, used: 0, dirty: false });
            self.close_least_used(name);
        }
        let open = self.open.get_mut(&name).expect("opened above");
        open.used = self.uses;
        if !open.dirty {
            open.dirty = true;
            self.dirty.files.push((name, Arc::clone(&open.file)));
        }
        Ok(Arc::clone(&open.file))
    }

    fn open_file(&mut self, name: FileName) -> Result<File, StorageError> {
        let (folder, path) = paths::path(&self.root, name);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other.map_err(failed("open", &path)),
        }
        self.make_folder(&folder)?;
        options.create(true).truncate(false).mode(FILE_MODE);
        let file = faults::create(&path, || options.open(&path)).map_err(failed("create", &path))?;
        self.mark_folder(folder);
        Ok(file)
    }

    /// Fsyncs the file that waits longest, if so many wait that no descriptor is left for another.
    fn make_room(&mut self) -> Result<(), StorageError> {
        if self.dirty.files.len() < 2 * self.limits.dirty_files {
            return Ok(());
        }
        let (name, file) = self.dirty.files.remove(0);
        faults::sync(&file).map_err(failed("fsync", &paths::path(&self.root, name).1))?;
        if let Some(open) = self.open.get_mut(&name) {
            open.dirty = false;
        }
        Ok(())
    }

    fn close_least_used(&mut self, except: FileName) {
        if self.open.len() <= self.limits.open_files {
            return;
        }
        let others = self.open.iter().filter(|(name, _)| **name != except);
        if let Some(name) = others.min_by_key(|(_, open)| open.used).map(|(name, _)| *name) {
            self.open.remove(&name);
        }
    }

    /// Makes the folder of a shard that had none before. The core's own folder is there since the process began.
    fn make_folder(&mut self, folder: &Path) -> Result<(), StorageError> {
        if folder == self.root || !self.folders.insert(folder.to_owned()) {
            return Ok(());
        }
        match faults::create(folder, || fs::DirBuilder::new().mode(FOLDER_MODE).create(folder)) {
            Ok(()) => self.mark_folder(self.root.clone()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("create the folder", folder)(error)),
        }
        Ok(())
    }

    fn mark_folder(&mut self, folder: PathBuf) {
        if !self.dirty.folders.contains(&folder) {
            self.dirty.folders.push(folder);
        }
    }
}

impl Dirty {
    /// Fsyncs it all. Returns how many files there were.
    pub(crate) fn sync(self, root: &Path) -> Result<usize, StorageError> {
        for (name, file) in &self.files {
            faults::sync(file).map_err(failed("fsync", &paths::path(root, *name).1))?;
        }
        for folder in &self.folders {
            sync_folder(folder)?;
        }
        Ok(self.files.len())
    }
}

/// Makes a folder that only its owner may use, and those above it that are not there.
pub(crate) fn make_folders(folder: &Path) -> Result<(), StorageError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE).create(folder).map_err(failed("create the folder", folder))
}

pub(crate) fn sync_folder(folder: &Path) -> Result<(), StorageError> {
    faults::sync_folder(folder).map_err(failed("fsync the folder", folder))
}

/// Replaces the file at `path` in `folder`, atomically and durably.
pub(crate) fn replace(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let mut name = path.as_os_str().to_owned();
    name.push(paths::REPLACEMENT);
    let new = PathBuf::from(name);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE_MODE);
    let file = faults::create(&new, || options.open(&new)).map_err(failed("create", &new))?;
    faults::write(&file, 0, bytes).map_err(failed("write to", &new))?;
    faults::sync(&file).map_err(failed("fsync", &new))?;
    faults::rename(&new, path).map_err(failed("replace", path))?;
    sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use kasha_types::{SegmentId, ShardId};

    use super::*;

    #[test]
    fn every_failure_has_a_page_that_is_about_it() {
        let told = |errno: Errno| failed("open", Path::new("f"))(errno.into()).to_string();
        for (errno, code) in [
            (Errno::MFILE, "K0113"),
            (Errno::NFILE, "K0113"),
            (Errno::NOENT, "K0114"),
            (Errno::NOSPC, "K0106"),
            (Errno::ACCESS, "K0107"),
            (Errno::IO, "K0108"),
        ] {
            assert!(told(errno).contains(code), "{}", told(errno));
        }
    }

    #[test]
    fn a_folder_that_is_gone_is_not_made_again() {
        let root = std::env::temp_dir().join(format!("kasha-files-gone-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        let segment = |number| FileName::Segment { shard: ShardId(3), segment: SegmentId(number) };
        let gone = |result: Result<(), StorageError>| {
            let error = result.unwrap_err();
            assert!(error.to_string().contains("K0114"), "{error}");
        };
        let new = || Files::new(root.clone(), Limits::default(), None);
        let mut files = new();
        files.write(segment(1), 0, b"x").unwrap();
        let mut restarted = new();
        fs::remove_dir_all(root.join("shard-0003")).unwrap();
        for files in [&mut files, &mut restarted] {
            gone(files.write(segment(2), 0, b"x"));
            gone(files.replace(FileName::Replica(ShardId(3)), b"x"));
        }
        fs::remove_dir(&root).unwrap();
        for files in [&mut files, &mut restarted] {
            gone(files.replace(FileName::Told, b"x"));
            gone(files.write(segment(2), 0, b"x"));
        }
        assert!(!root.exists());
    }

    #[test]
    fn files_that_are_open_or_wait_for_an_fsync_have_a_limit() {
        let root = std::env::temp_dir().join(format!("kasha-files-limit-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        let limits = Limits { open_files: 3, dirty_files: 2, ..Limits::default() };
        let mut files = Files::new(root.clone(), limits, None);
        let name = |number| FileName::Segment { shard: ShardId(3), segment: SegmentId(number) };
        for number in 0..40 {
            files.write(name(number % 20), u64::from(number), b"x").unwrap();
            assert!(files.open.len() <= limits.open_files && files.dirty_count() <= 2 * limits.dirty_files);
        }
        for number in 0..20 {
            let bytes = fs::read(paths::path(&root, name(number)).1).unwrap();
            assert!(bytes[number as usize] == b'x' && bytes[number as usize + 20] == b'x');
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
