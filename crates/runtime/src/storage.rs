//! File effects and commits (R5.3, R5.4).
//!
//! The loop writes by itself: a write ends in the page cache and does not wait. A replacement waits for the disk, a cut
//! gives room back, which takes long, and many removals in one turn do too: these go to the log thread. Until they are
//! applied, every other file effect follows them there, so that effects hold in the order in which the machine gave them. A commit that must be fsynced goes there too, and so does every commit after
//! it until it is done, so that commits are reported in order.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use kasha_machine::{Disk, FileName};
use kasha_types::LocalPosition;

use crate::files::{Files, StorageError, failed, sync_folder};
use crate::limits::Limits;
use crate::log_thread::{Job, LogThread, lock};
use crate::{TrashThread, faults, paths};

/// Files that the loop removes in one turn itself.
const REMOVALS_IN_TURN: u32 = 4;

#[derive(Debug)]
struct Folder {
    files: Arc<Mutex<Files>>,
    thread: LogThread,
    /// Jobs given to the thread, and done by it.
    given: u64,
    done: u64,
    /// The last job with a file effect, which no file effect may overtake.
    ordered_at: u64,
    /// The last commit given to the thread, which no commit may overtake.
    committed_at: u64,
    /// A replacement was made since the last commit, which must therefore be fsynced.
    replaced: bool,
    /// The last fsync that nobody asked for.
    flushing_at: u64,
    /// Files removed in this turn.
    removed: u32,
    limits: Limits,
}

/// One loop's files; without a folder, commits hold at once.
#[derive(Debug)]
pub(crate) struct Storage {
    folder: Option<Folder>,
    durable: VecDeque<LocalPosition>,
    failed: Option<StorageError>,
}

impl Storage {
    pub(crate) fn new(
        name: &str,
        root: Option<PathBuf>,
        limits: Limits,
        trash: Option<TrashThread>,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, StorageError> {
        let folder = match root {
            None => None,
            Some(root) => {
                let start = failed("start the log thread of", &root);
                let files = Arc::new(Mutex::new(Files::new(root, limits, trash)));
                let thread = LogThread::start(name, Arc::clone(&files), wake).map_err(start)?;
                let (given, done, ordered_at, committed_at, flushing_at) = (0, 0, 0, 0, 0);
                let (replaced, removed) = (false, 0);
                let counts = Folder {
                    given,
                    done,
                    ordered_at,
                    committed_at,
                    replaced,
                    flushing_at,
                    removed,
                    limits,
                    files,
                    thread,
                };
                Some(counts)
            }
        };
        Ok(Self { folder, durable: VecDeque::new(), failed: None })
    }

    /// Whether an effect failed: nothing may leave any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// A turn of the loop begins.
    pub(crate) fn begin_turn(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.removed = 0;
        }
    }

    /// Takes over what the log thread has done.
    ///
    /// # Errors
    /// If any effect so far failed, here or there.
    pub(crate) fn collect(&mut self) -> Result<(), StorageError> {
        if let Some(folder) = &mut self.folder
            && let Some(news) = folder.thread.news()
        {
            folder.done = news.done;
            self.durable.extend(news.durable);
            if self.failed.is_none() {
                self.failed = news.failed;
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// The next commit that holds and was not reported.
    pub(crate) fn next_durable(&mut self) -> Option<LocalPosition> {
        self.durable.pop_front()
    }

    /// Whether a commit holds that was not reported.
    pub(crate) fn has_durable(&self) -> bool {
        !self.durable.is_empty()
    }

    pub(crate) fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        self.perform(|files| files.write(file, offset, bytes), || Job::Write { file, offset, bytes: bytes.into() });
    }

    pub(crate) fn truncate(&mut self, file: FileName, len: u64) {
        let folder = self.folder_mut();
        folder.ordered_at = folder.give(Job::Truncate { file, len });
    }

    pub(crate) fn remove(&mut self, file: FileName) {
        let folder = self.folder_mut();
        folder.removed += 1;
        if folder.removed > REMOVALS_IN_TURN {
            folder.ordered_at = folder.give(Job::Remove { file });
            return;
        }
        self.perform(|files| files.remove(file), || Job::Remove { file });
    }

    pub(crate) fn replace(&mut self, file: FileName, bytes: &[u8]) {
        let folder = self.folder_mut();
        folder.ordered_at = folder.give(Job::Replace { file, bytes: bytes.into() });
        folder.replaced = true;
    }

    pub(crate) fn commit(&mut self, to: LocalPosition, fsync: bool) {
        // What the thread has reported comes first. An error stays, and is found by the caller's `collect`.
        if let Err(error) = self.collect() {
            self.failed = Some(error);
            return;
        }
        let Some(folder) = &mut self.folder else {
            self.durable.push_back(to);
            return;
        };
        let fsync = std::mem::take(&mut folder.replaced) || fsync;
        if fsync || folder.done < folder.committed_at || folder.thread.applied() < folder.ordered_at {
            folder.committed_at = folder.give(Job::Commit { to, fsync });
        } else {
            self.durable.push_back(to);
        }
    }

    pub(crate) fn flush(&mut self) {
        let Some(folder) = &mut self.folder else { return };
        // An idle machine asks for it again and again; only a job wakes the disk.
        if folder.thread.applied() < folder.ordered_at || !lock(&folder.files).is_clean() {
            folder.give(Job::Flush);
        }
    }

    fn folder_mut(&mut self) -> &mut Folder {
        self.folder.as_mut().expect("a machine with files is given a data folder")
    }

    fn perform(&mut self, now: impl FnOnce(&mut Files) -> Result<(), StorageError>, later: impl FnOnce() -> Job) {
        if self.failed.is_some() {
            return;
        }
        let folder = self.folder_mut();
        if folder.thread.applied() < folder.ordered_at {
            folder.ordered_at = folder.give(later());
            return;
        }
        let mut files = lock(&folder.files);
        let result = now(&mut files);
        let crowded = files.dirty_count() > folder.limits.dirty_files && folder.done >= folder.flushing_at;
        drop(files);
        if crowded {
            folder.flushing_at = folder.give(Job::Flush);
        }
        if let Err(error) = result {
            self.failed = Some(error);
        }
    }
}

impl Folder {
    fn give(&mut self, job: Job) -> u64 {
        self.thread.push(job);
        self.given += 1;
        self.given
    }
}

/// One core's folder, as its machine reads it before it runs.
#[derive(Debug)]
pub struct FolderDisk {
    root: Option<PathBuf>,
    names: Vec<FileName>,
}

impl FolderDisk {
    /// Lists the folder, which is created if need be. Replacements and removals that a crash left unfinished go; files
    /// that are not ours are left alone and logged. The folder is fsynced, as the files are that are read: a killed
    /// process may have made files whose names are not on the disk yet, and from now on they are vouched for.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn open(root: &Path) -> Result<Self, StorageError> {
        make_durably(root)?;
        let mut names = Vec::new();
        sync_folder(root)?;
        for (name, path) in entries(root)? {
            match paths::shard(&name) {
                Some(shard) if path.is_dir() => {
                    sync_folder(&path)?;
                    for (name, path) in entries(&path)? {
                        sort_out(paths::file(Some(shard), &name), &name, &path, &mut names)?;
                    }
                }
                _ => sort_out(paths::file(None, &name), &name, &path, &mut names)?,
            }
        }
        names.sort_unstable();
        Ok(Self { root: Some(root.to_owned()), names })
    }

    /// A folder of nothing, for machines that have no files.
    #[must_use]
    pub fn none() -> Self {
        Self { root: None, names: Vec::new() }
    }
}

/// Creates a folder so that what is fsynced in it is found again after a loss of power.
fn make_durably(folder: &Path) -> Result<(), StorageError> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(failed("create the folder", folder))?;
    match folder.canonicalize().ok().as_deref().and_then(Path::parent) {
        Some(parent) => sync_folder(parent),
        None => Ok(()),
    }
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, StorageError> {
    let list = || -> io::Result<Vec<(String, PathBuf)>> {
        fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())))
            .collect()
    };
    list().map_err(failed("list", folder))
}

fn sort_out(file: Option<FileName>, name: &str, path: &Path, names: &mut Vec<FileName>) -> Result<(), StorageError> {
    match file {
        Some(file) => names.push(file),
        None if name.ends_with(paths::REPLACEMENT) || paths::is_gone(name) => match faults::remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", path)(error)),
            Ok(()) | Err(_) => {}
        },
        None => tracing::warn!(path = %path.display(), "not a file of Kasha's: left alone"),
    }
    Ok(())
}

impl Disk for FolderDisk {
    fn list(&self) -> Vec<FileName> {
        self.names.clone()
    }

    fn read(&self, file: FileName) -> io::Result<Option<Vec<u8>>> {
        let Some(root) = &self.root else { return Ok(None) };
        let path = paths::path(root, file).1;
        let read_durably = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            let mut opened = fs::File::open(&path)?;
            faults::sync(&opened)?;
            opened.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read_durably() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::new(error.kind(), failed("read", &path)(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc::{Receiver, channel};

    use kasha_types::{SegmentId, ShardId};
    use proptest::prelude::*;

    use super::*;

    struct Bench {
        root: PathBuf,
        storage: Storage,
        woken: Receiver<()>,
    }

    impl Bench {
        fn new(name: &str) -> Self {
            Self::with_trash(name, Some(TrashThread::start("t-trash").unwrap()))
        }

        fn with_trash(name: &str, trash: Option<TrashThread>) -> Self {
            let root = std::env::temp_dir().join(format!("kasha-storage-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            let disk = FolderDisk::open(&root).unwrap();
            assert!(disk.list().is_empty());
            let (wake, woken) = channel();
            let storage =
                Storage::new("t", Some(root.clone()), Limits::default(), trash, move || wake.send(()).unwrap_or(()))
                    .unwrap();
            Self { root, storage, woken }
        }

        /// Every commit up to this one, as it is reported.
        fn durable_to(&mut self, last: LocalPosition) -> Vec<LocalPosition> {
            let mut got = Vec::new();
            loop {
                self.storage.collect().unwrap();
                while let Some(to) = self.storage.next_durable() {
                    got.push(to);
                }
                if got.last() == Some(&last) {
                    return got;
                }
                self.woken.recv().unwrap();
            }
        }
    }

    fn segment(number: u32) -> FileName {
        FileName::Segment { shard: ShardId(3), segment: SegmentId(number) }
    }

    #[test]
    fn commits_are_reported_in_order_and_at_once_where_nothing_waits() {
        let mut bench = Bench::new("order");
        bench.storage.write(segment(1), 0, b"abc");
        bench.storage.commit(LocalPosition(1), false);
        assert_eq!(bench.storage.next_durable(), Some(LocalPosition(1)), "a write to the page cache holds at once");
        for to in 2..200 {
            bench.storage.write(segment(1), to, b"abc");
            bench.storage.commit(LocalPosition(to), to % 3 == 0);
            bench.storage.flush();
        }
        let got = bench.durable_to(LocalPosition(199));
        assert!(got.is_sorted_by(|a, b| a < b), "{got:?}");
        fs::remove_dir_all(&bench.root).unwrap();
    }

    #[test]
    fn a_replacement_makes_the_next_commit_wait_for_the_disk() {
        let mut bench = Bench::new("replace");
        bench.storage.replace(FileName::Replica(ShardId(9)), b"epoch 5");
        bench.storage.commit(LocalPosition(1), false);
        assert_eq!(bench.storage.next_durable(), None);
        assert_eq!(bench.durable_to(LocalPosition(1)), [LocalPosition(1)]);
        let disk = FolderDisk::open(&bench.root).unwrap();
        assert_eq!(disk.read(FileName::Replica(ShardId(9))).unwrap().unwrap(), b"epoch 5");
        fs::remove_dir_all(&bench.root).unwrap();
    }

    #[test]
    fn a_crash_in_the_middle_of_a_replacement_leaves_the_old_file() {
        let mut bench = Bench::new("crash");
        bench.storage.replace(FileName::Core, b"old");
        bench.storage.write(segment(2), 0, b"x");
        bench.storage.commit(LocalPosition(1), true);
        bench.durable_to(LocalPosition(1));
        fs::write(bench.root.join("core.meta.new"), "ne").unwrap();
        fs::write(bench.root.join("shard-0003/replica.meta.new"), "").unwrap();
        fs::write(bench.root.join("notes.txt"), "mine").unwrap();
        fs::create_dir(bench.root.join("shard-x")).unwrap();
        let disk = FolderDisk::open(&bench.root).unwrap();
        assert_eq!(disk.list(), [segment(2), FileName::Core]);
        assert_eq!(disk.read(FileName::Core).unwrap().unwrap(), b"old");
        assert_eq!(disk.read(FileName::Coordinator(1)).unwrap(), None);
        assert!(!bench.root.join("core.meta.new").exists());
        assert!(!bench.root.join("shard-0003/replica.meta.new").exists());
        assert!(bench.root.join("notes.txt").exists(), "what is not ours is left alone");
        fs::remove_dir_all(&bench.root).unwrap();
    }

    /// Found by the simulator (`fast_restart` 4, `cold_start` 9): a killed process left in the page cache what no fsync
    /// had covered; the next one said that it holds that, and a loss of power took it.
    #[cfg(not(feature = "test-faults"))]
    #[test]
    fn r5_3_what_is_read_is_fsynced_first() {
        use std::os::unix::fs::MetadataExt;

        let mut bench = Bench::new("vouched");
        bench.storage.write(segment(1), 0, b"abc");
        let (folder, path) = paths::path(&bench.root, segment(1));
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        faults::fsynced::take();
        let disk = FolderDisk::open(&bench.root).unwrap();
        assert_eq!(faults::fsynced::take(), [inode(&bench.root), inode(&folder)], "its name is read, too");
        assert_eq!(disk.read(segment(1)).unwrap().unwrap(), b"abc");
        assert_eq!(faults::fsynced::take(), [inode(&path)]);
        fs::remove_dir_all(&bench.root).unwrap();
    }

    #[test]
    fn of_a_removed_file_only_the_name_goes_at_once_and_the_next_start_removes_the_rest() {
        let (trash, rubbish) = TrashThread::idle();
        let mut bench = Bench::with_trash("gone", Some(trash));
        bench.storage.write(segment(1), 0, b"abc");
        let path = paths::path(&bench.root, segment(1)).1;
        bench.storage.remove(segment(1));
        assert!(!path.exists() && paths::gone(&path, 1).exists());
        bench.storage.write(segment(1), 0, b"new");
        bench.storage.remove(segment(2)); // there is no such file
        assert!(bench.storage.collect().is_ok());
        let disk = FolderDisk::open(&bench.root).unwrap();
        assert_eq!(disk.list(), [segment(1)]);
        assert_eq!(disk.read(segment(1)).unwrap().unwrap(), b"new");
        assert!(!paths::gone(&path, 1).exists());
        drop(rubbish);
        fs::remove_dir_all(&bench.root).unwrap();
    }

    #[test]
    fn a_turn_removes_a_few_files_itself_and_cuts_none() {
        let mut bench = Bench::new("at-once");
        let jobs = |bench: &Bench| bench.storage.folder.as_ref().unwrap().given;
        for turn in 0..3 {
            bench.storage.begin_turn();
            (0..REMOVALS_IN_TURN).for_each(|number| bench.storage.remove(segment(number)));
            assert_eq!(jobs(&bench), 0, "turn {turn}");
        }
        bench.storage.remove(segment(99));
        bench.storage.truncate(segment(1), 0);
        assert_eq!(jobs(&bench), 2);
        fs::remove_dir_all(&bench.root).unwrap();
    }

    #[test]
    fn more_files_than_may_be_open() {
        let mut bench = Bench::new("many");
        for round in 0..2u64 {
            for number in 0..600u32 {
                bench.storage.write(segment(number), round * 4, &number.to_le_bytes());
            }
        }
        bench.storage.commit(LocalPosition(1), true);
        bench.durable_to(LocalPosition(1));
        let disk = FolderDisk::open(&bench.root).unwrap();
        assert_eq!(disk.list().len(), 600);
        for number in 0..600u32 {
            let twice = [number.to_le_bytes(), number.to_le_bytes()].concat();
            assert_eq!(disk.read(segment(number)).unwrap().unwrap(), twice);
        }
        fs::remove_dir_all(&bench.root).unwrap();
    }

    #[derive(Clone, Debug)]
    enum Op {
        Write(u32, u64, Vec<u8>),
        Truncate(u32, u64),
        Remove(u32),
        Replace(u32, Vec<u8>),
        Commit(bool),
        Flush,
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
        prop_oneof![
            6 => (0..3u32, 0..40u64, bytes()).prop_map(|(file, at, bytes)| Op::Write(file, at, bytes)),
            1 => (0..3u32, 0..40u64).prop_map(|(file, len)| Op::Truncate(file, len)),
            1 => (0..3u32).prop_map(Op::Remove),
            2 => (0..3u32, bytes()).prop_map(|(file, bytes)| Op::Replace(file, bytes)),
            3 => any::<bool>().prop_map(Op::Commit),
            1 => Just(Op::Flush),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        #[test]
        fn effects_hold_in_the_order_in_which_they_were_given(ops in proptest::collection::vec(any_op(), 0..60)) {
            let mut bench = Bench::new("model");
            let mut model: BTreeMap<FileName, Vec<u8>> = BTreeMap::new();
            let mut to = LocalPosition(0);
            for op in ops {
                match op {
                    Op::Write(file, at, bytes) => {
                        bench.storage.write(segment(file), at, &bytes);
                        let content = model.entry(segment(file)).or_default();
                        let end = at as usize + bytes.len();
                        if !bytes.is_empty() {
                            content.resize(content.len().max(end), 0);
                            content[at as usize..end].copy_from_slice(&bytes);
                        }
                    }
                    Op::Truncate(file, len) => {
                        bench.storage.truncate(segment(file), len);
                        model.entry(segment(file)).or_default().resize(len as usize, 0);
                    }
                    Op::Remove(file) => {
                        bench.storage.remove(segment(file));
                        model.remove(&segment(file));
                    }
                    Op::Replace(file, bytes) => {
                        bench.storage.replace(segment(file), &bytes);
                        model.insert(segment(file), bytes);
                    }
                    Op::Commit(fsync) => {
                        to = to.next();
                        bench.storage.commit(to, fsync);
                    }
                    Op::Flush => bench.storage.flush(),
                }
            }
            bench.storage.commit(to.next(), true);
            let got = bench.durable_to(to.next());
            prop_assert!(got.is_sorted_by(|a, b| a < b));
            let disk = FolderDisk::open(&bench.root).unwrap();
            prop_assert_eq!(disk.list(), model.keys().copied().collect::<Vec<_>>());
            for (file, content) in model {
                prop_assert_eq!(disk.read(file).unwrap().unwrap(), content);
            }
            fs::remove_dir_all(&bench.root).unwrap();
        }
    }
}
