//! File effects and commits (R5.3, R5.4).
//!
//! The loop writes by itself: a write, or a store to a mapped file (decision 0017), ends in the page cache and does not
//! wait. A replacement waits for the disk, a cut gives room back, which takes long, and many removals in one turn do too:
//! these go to the log thread. Until they are applied, every other file effect follows them there, so that effects hold in
//! the order in which the machine gave them. A commit that must be fsynced goes there too, and so does every commit after
//! it until it is done, so that commits are reported in order.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kasha_machine::FileName;
use kasha_types::LocalPosition;

use crate::TrashThread;
use crate::files::{Files, StorageError, failed};
use crate::limits::Limits;
use crate::log_thread::{Job, LogThread, lock};
use crate::mapped_files::{MappedFiles, is_mapped};

/// Files that the loop removes in one turn itself.
const REMOVALS_IN_TURN: u32 = 4;

#[derive(Debug)]
struct Folder {
    files: Arc<Mutex<Files>>,
    mapped: MappedFiles,
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
pub struct Storage {
    folder: Option<Folder>,
    durable: VecDeque<LocalPosition>,
    logs_flushed: bool,
    failed: Option<StorageError>,
}

impl Storage {
    /// Starts the log thread, named after the loop, for the files below `root`, which [`crate::FolderDisk::open`] has made. It calls
    /// `wake` whenever it has news for [`Storage::collect`].
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn new(
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
                let mapped = MappedFiles::new(trash.clone());
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
                    mapped,
                    thread,
                };
                Some(counts)
            }
        };
        Ok(Self { folder, durable: VecDeque::new(), logs_flushed: false, failed: None })
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
    pub fn collect(&mut self) -> Result<(), StorageError> {
        if let Some(folder) = &mut self.folder
            && let Some(news) = folder.thread.news()
        {
            folder.done = news.done;
            self.durable.extend(news.durable);
            self.logs_flushed |= news.logs_flushed;
            news.made.into_iter().for_each(|made| folder.mapped.put(made));
            if self.failed.is_none() {
                self.failed = news.failed;
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// The next commit that holds and was not reported.
    pub fn next_durable(&mut self) -> Option<LocalPosition> {
        self.durable.pop_front()
    }

    /// Whether a commit holds that was not reported.
    pub(crate) fn has_durable(&self) -> bool {
        !self.durable.is_empty()
    }

    /// Whether the machine has to be told something.
    pub(crate) fn has_news(&self) -> bool {
        self.has_durable() || self.logs_flushed
    }

    /// Performs [`kasha_machine::Effect::Write`]. A failure is told by [`Storage::collect`], here and below.
    pub fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        if is_mapped(file) && self.store(file, offset, bytes) {
            return;
        }
        self.perform(|files| files.write(file, offset, bytes), || Job::Write { file, offset, bytes: bytes.into() });
        // A cut, which knows how long the file will be, may have asked before.
        self.map(file);
    }

    /// Performs [`kasha_machine::Effect::Truncate`].
    pub fn truncate(&mut self, file: FileName, len: u64) {
        let folder = self.folder_mut();
        folder.mapped.forget(file);
        folder.ordered_at = folder.give(Job::Truncate { file, len });
        self.map(file);
    }

    pub(crate) fn remove(&mut self, file: FileName) {
        let folder = self.folder_mut();
        folder.mapped.forget(file);
        folder.removed += 1;
        if folder.removed > REMOVALS_IN_TURN {
            folder.ordered_at = folder.give(Job::Remove { file });
            return;
        }
        self.perform(|files| files.remove(file), || Job::Remove { file });
    }

    pub(crate) fn replace(&mut self, file: FileName, bytes: &[u8]) {
        let folder = self.folder_mut();
        folder.mapped.forget(file);
        folder.ordered_at = folder.give(Job::Replace { file, bytes: bytes.into() });
        folder.replaced = true;
    }

    /// Performs [`kasha_machine::Effect::Commit`].
    pub fn commit(&mut self, to: LocalPosition, fsync: bool) {
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
        if fsync && let Err(error) = folder.settle() {
            self.failed = Some(error);
            return;
        }
        if fsync || folder.done < folder.committed_at || folder.thread.applied() < folder.ordered_at {
            folder.committed_at = folder.give(Job::Commit { to, fsync });
        } else {
            self.durable.push_back(to);
        }
    }

    /// Performs [`kasha_machine::Effect::Flush`].
    pub fn flush(&mut self) {
        let Some(folder) = &mut self.folder else { return };
        if let Err(error) = folder.settle() {
            self.failed.get_or_insert(error);
            return;
        }
        // An idle machine asks for it again and again; only a job wakes the disk.
        if folder.thread.applied() < folder.ordered_at || !lock(&folder.files).is_clean() {
            folder.give(Job::Flush);
        }
    }

    /// Performs [`kasha_machine::Effect::FlushLogs`].
    pub fn flush_logs(&mut self) {
        match &mut self.folder {
            // An earlier fsync may be under way, which has forgotten what it covers. So the thread is asked in any case.
            Some(folder) => _ = folder.give(Job::FlushLogs),
            None => self.logs_flushed = true,
        }
    }

    /// Whether the logs that [`Self::flush_logs`] was asked for are fsynced. Says so once.
    pub fn take_logs_flushed(&mut self) -> bool {
        std::mem::take(&mut self.logs_flushed)
    }

    fn folder_mut(&mut self) -> &mut Folder {
        self.folder.as_mut().expect("a machine with files is given a data folder")
    }

    /// Stores to a mapped file. `false`, and nothing happens, if there is none, or if other file effects come first.
    fn store(&mut self, file: FileName, offset: u64, bytes: &[u8]) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let folder = self.folder_mut();
        folder.thread.applied() >= folder.ordered_at && folder.mapped.store(file, offset, bytes)
    }

    /// Has the log thread map a file, if it is one of those and nobody has asked yet.
    fn map(&mut self, file: FileName) {
        let folder = self.folder_mut();
        if let Some(request) = folder.mapped.ask(file) {
            folder.give(Job::Map(request));
        }
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
    /// What was stored so far is to be fsynced with the rest.
    fn settle(&mut self) -> Result<(), StorageError> {
        while let Some(name) = self.mapped.next_touched() {
            lock(&self.files).touch(name)?;
        }
        Ok(())
    }

    fn give(&mut self, job: Job) -> u64 {
        self.thread.push(job);
        self.given += 1;
        self.given
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::mpsc::{Receiver, channel};

    use kasha_machine::Disk as _;
    use kasha_types::{ListVersion, SegmentId, ShardId};
    use proptest::prelude::*;

    use super::*;
    use crate::mapping::Mapping;
    use crate::mapping::tests::SmallDisk;
    use crate::{FolderDisk, faults, paths};

    struct Bench {
        root: PathBuf,
        storage: Storage,
        woken: Receiver<()>,
    }

    impl Bench {
        fn new(name: &str) -> Self {
            Self::with(name, Limits::default(), Some(TrashThread::start("t-trash").unwrap()))
        }

        fn with(name: &str, limits: Limits, trash: Option<TrashThread>) -> Self {
            let root = std::env::temp_dir().join(format!("kasha-storage-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            let disk = FolderDisk::open(&root).unwrap();
            assert!(disk.list().is_empty());
            let (wake, woken) = channel();
            let wake = move || wake.send(()).unwrap_or(());
            let storage = Storage::new("t", Some(root.clone()), limits, trash, wake).unwrap();
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

    const SLOTS: FileName = FileName::Witness { shard: ShardId(3), list: ListVersion(1) };
    const SLOTS_BYTES: u64 = 64 * 1024;

    /// As a node begins an instance of a witness.
    fn begin_witness(storage: &mut Storage) {
        storage.truncate(SLOTS, 0);
        storage.write(SLOTS, 0, b"header");
        storage.truncate(SLOTS, SLOTS_BYTES);
        storage.replace(FileName::WitnessMode { shard: ShardId(3), list: ListVersion(1) }, b"sure");
        storage.commit(LocalPosition(1), false);
    }

    /// The next failure, before which no commit is reported.
    fn failure(bench: &mut Bench) -> String {
        loop {
            if let Err(error) = bench.storage.collect() {
                return error.to_string();
            }
            assert_eq!(bench.storage.next_durable(), None);
            bench.woken.recv().unwrap();
        }
    }

    impl Bench {
        /// Whether the witness's file is written by stores; `None` where no file is.
        fn is_mapped(&self) -> Option<bool> {
            let folder = self.storage.folder.as_ref().unwrap();
            Mapping::can_be_on(&self.root).then(|| folder.mapped.has(SLOTS))
        }

        /// Jobs given to the log thread so far.
        fn jobs(&self) -> u64 {
            self.storage.folder.as_ref().unwrap().given
        }
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
    #[test]
    fn r5_3_what_is_read_is_fsynced_first() {
        use std::os::unix::fs::MetadataExt;

        let mut bench = Bench::new("vouched");
        bench.storage.write(segment(1), 0, b"abc");
        let (folder, path) = paths::path(&bench.root, segment(1));
        let inode = |path: &std::path::Path| fs::metadata(path).unwrap().ino();
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
        let mut bench = Bench::with("gone", Limits::default(), Some(trash));
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
        for turn in 0..3 {
            bench.storage.begin_turn();
            (0..REMOVALS_IN_TURN).for_each(|number| bench.storage.remove(segment(number)));
            assert_eq!(bench.jobs(), 0, "turn {turn}");
        }
        bench.storage.remove(segment(99));
        bench.storage.truncate(segment(1), 0);
        assert_eq!(bench.jobs(), 2);
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

    #[test]
    fn a_witness_is_vouched_for_when_its_file_is_mapped() {
        let mut bench = Bench::new("mapped");
        begin_witness(&mut bench.storage);
        assert_eq!(bench.durable_to(LocalPosition(1)), [LocalPosition(1)]);
        assert_ne!(bench.is_mapped(), Some(false));
        bench.storage.write(SLOTS, 4096, b"a slot");
        bench.storage.commit(LocalPosition(2), false);
        assert_eq!(bench.storage.next_durable(), Some(LocalPosition(2)), "a store holds at once");
        // Beyond its end there is nothing to store to.
        bench.storage.write(SLOTS, SLOTS_BYTES - 3, b"longer");
        let bytes = fs::read(paths::path(&bench.root, SLOTS).1).unwrap();
        assert_eq!((&bytes[..6], &bytes[4096..4102]), (b"header".as_slice(), b"a slot".as_slice()));
        assert_eq!(&bytes[SLOTS_BYTES as usize - 3..], b"longer");
        bench.storage.remove(SLOTS);
        bench.storage.commit(LocalPosition(3), true);
        bench.durable_to(LocalPosition(3));
        assert_ne!(bench.is_mapped(), Some(true));
        fs::remove_dir_all(&bench.root).unwrap();
    }

    /// A store beyond the end of a file is in no file, as long as it is within the mapping's last page.
    #[test]
    fn a_witness_file_that_was_cut_is_not_stored_to_beyond_its_end() {
        let mut bench = Bench::new("cut");
        begin_witness(&mut bench.storage);
        bench.durable_to(LocalPosition(1));
        bench.storage.truncate(SLOTS, 10);
        bench.storage.commit(LocalPosition(2), true);
        bench.durable_to(LocalPosition(2));
        assert_ne!(bench.is_mapped(), Some(false));
        bench.storage.write(SLOTS, 20, b"a slot");
        let expected = [b"header".as_slice(), &[0; 14], b"a slot"].concat();
        assert_eq!(fs::read(paths::path(&bench.root, SLOTS).1).unwrap(), expected);
        fs::remove_dir_all(&bench.root).unwrap();
    }

    /// What another process left, cut by whatever cut it. The node finds that out when it reads it, and may write all the same.
    #[test]
    fn a_witness_file_that_is_too_short_is_written_without_harm() {
        for len in [0, 1, 4096, 5001] {
            let mut bench = Bench::new("short");
            let path = paths::path(&bench.root, SLOTS).1;
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![1; len]).unwrap();
            bench.storage.write(SLOTS, 0, b"header");
            bench.storage.commit(LocalPosition(1), true);
            bench.durable_to(LocalPosition(1));
            assert_ne!(bench.is_mapped(), Some(false));
            bench.storage.write(SLOTS, 4096, b"a slot");
            bench.storage.write(SLOTS, 5000, b"another");
            let mut expected = vec![1; len];
            for (at, bytes) in [(0, b"header".as_slice()), (4096, b"a slot"), (5000, b"another")] {
                expected.resize(expected.len().max(at + bytes.len()), 0);
                expected[at..at + bytes.len()].copy_from_slice(bytes);
            }
            assert_eq!(fs::read(&path).unwrap(), expected, "{len} bytes");
            fs::remove_dir_all(&bench.root).unwrap();
        }
    }

    #[test]
    fn r5_4_a_failed_fsync_of_a_mapped_file_is_told_and_nothing_after_it() {
        for is_flushed in [false, true] {
            let mut bench = Bench::new("failed-fsync");
            begin_witness(&mut bench.storage);
            bench.durable_to(LocalPosition(1));
            let _failing = faults::failing::Failing::new(&paths::path(&bench.root, SLOTS).1);
            bench.storage.write(SLOTS, 4096, b"a slot");
            bench.storage.commit(LocalPosition(2), !is_flushed);
            if is_flushed {
                assert_eq!(bench.storage.next_durable(), Some(LocalPosition(2)));
                let jobs = bench.jobs();
                bench.storage.flush();
                assert_eq!(bench.jobs(), jobs + 1, "a store is something to flush");
            }
            let text = failure(&mut bench);
            assert!(text.contains("cannot fsync") && text.contains(".slots") && text.contains("(K0108)"), "{text}");
            assert_eq!(bench.storage.next_durable(), None);
            fs::remove_dir_all(&bench.root).unwrap();
        }
    }

    #[test]
    fn r8_17_a_flush_of_logs_is_told_and_leaves_other_files() {
        let mut bench = Bench::new("flush-logs");
        begin_witness(&mut bench.storage);
        bench.durable_to(LocalPosition(1));
        let failing = faults::failing::Failing::new(&paths::path(&bench.root, SLOTS).1);
        bench.storage.write(SLOTS, 4096, b"a slot");
        bench.storage.write(segment(1), 0, b"group");
        // The second finds nothing to fsync.
        for _ in 0..2 {
            bench.storage.flush_logs();
            while !bench.storage.take_logs_flushed() {
                bench.woken.recv().unwrap();
                bench.storage.collect().unwrap();
            }
        }
        drop(failing);
        let _failing = faults::failing::Failing::new(&paths::path(&bench.root, segment(1)).1);
        bench.storage.write(segment(1), 5, b"group");
        bench.storage.flush_logs();
        let text = failure(&mut bench);
        assert!(text.contains("cannot fsync") && text.contains("(K0108)"), "{text}");
        assert!(!bench.storage.take_logs_flushed());
        fs::remove_dir_all(&bench.root).unwrap();
    }

    #[test]
    fn a_witness_that_finds_no_room_is_never_vouched_for() {
        let root = std::env::temp_dir().join(format!("kasha-storage-no-room-{}", std::process::id()));
        let Some(_disk) = SmallDisk::mount(&root, "tmpfs", "size=32k") else { return };
        let (wake, woken) = channel();
        let wake = move || wake.send(()).unwrap_or(());
        let storage = Storage::new("t", Some(root.clone()), Limits::default(), None, wake).unwrap();
        let mut bench = Bench { root, storage, woken };
        begin_witness(&mut bench.storage);
        let text = failure(&mut bench);
        assert!(text.contains("cannot take room for") && text.contains(".slots"), "{text}");
        assert!(text.contains("No space left") && text.contains("(K0106)"), "{text}");
        assert_eq!(bench.storage.next_durable(), None);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Write(FileName, u64, Vec<u8>),
        Truncate(FileName, u64),
        Remove(FileName),
        Replace(FileName, Vec<u8>),
        Commit(bool),
        Flush,
        Wait,
    }

    /// Two files that are written by system calls, and two that are mapped.
    fn any_name() -> impl Strategy<Value = FileName> {
        let slots = |list| FileName::Witness { shard: ShardId(3), list: ListVersion(list) };
        prop_oneof![(0..2u32).prop_map(segment), (1..3u64).prop_map(slots)]
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
        prop_oneof![
            6 => (any_name(), 0..40u64, bytes()).prop_map(|(file, at, bytes)| Op::Write(file, at, bytes)),
            1 => (any_name(), 0..40u64).prop_map(|(file, len)| Op::Truncate(file, len)),
            1 => any_name().prop_map(Op::Remove),
            2 => (any_name(), bytes()).prop_map(|(file, bytes)| Op::Replace(file, bytes)),
            3 => any::<bool>().prop_map(Op::Commit),
            1 => Just(Op::Flush),
            // So that mappings are met in every stage of their making.
            1 => Just(Op::Wait),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        #[test]
        fn effects_hold_in_the_order_in_which_they_were_given(ops in proptest::collection::vec(any_op(), 0..60)) {
            let limits = Limits { open_files: 2, ..Limits::default() };
            let mut bench = Bench::with("model", limits, Some(TrashThread::start("t-trash").unwrap()));
            let mut model: BTreeMap<FileName, Vec<u8>> = BTreeMap::new();
            let mut to = LocalPosition(0);
            for op in ops {
                match op {
                    Op::Write(file, at, bytes) => {
                        bench.storage.write(file, at, &bytes);
                        let content = model.entry(file).or_default();
                        let end = at as usize + bytes.len();
                        if !bytes.is_empty() {
                            content.resize(content.len().max(end), 0);
                            content[at as usize..end].copy_from_slice(&bytes);
                        }
                    }
                    Op::Truncate(file, len) => {
                        bench.storage.truncate(file, len);
                        model.entry(file).or_default().resize(len as usize, 0);
                    }
                    Op::Remove(file) => {
                        bench.storage.remove(file);
                        model.remove(&file);
                    }
                    Op::Replace(file, bytes) => {
                        bench.storage.replace(file, &bytes);
                        model.insert(file, bytes);
                    }
                    Op::Commit(fsync) => {
                        to = to.next();
                        bench.storage.commit(to, fsync);
                    }
                    Op::Flush => bench.storage.flush(),
                    Op::Wait => {
                        to = to.next();
                        bench.storage.commit(to, true);
                        bench.durable_to(to);
                    }
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
