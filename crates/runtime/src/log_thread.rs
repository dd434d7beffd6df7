//! The thread that waits for the disk, so that the loop never does (section 12).
//!
//! Group commit: it takes everything that is queued, does it in order, fsyncs each distinct file once, and reports the
//! last commit. A failure ends it (R5.4): what failed is reported, and nothing after it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use kasha_machine::FileName;
use kasha_types::LocalPosition;

use crate::files::{Files, StorageError, failed};
use crate::mapped_files::{Made, ToMap};
use crate::mapping::Mapping;
use crate::paths;

/// One thing to do. Most file effects come here only behind others, which they must not overtake.
#[derive(Debug)]
pub(crate) enum Job {
    Write { file: FileName, offset: u64, bytes: Box<[u8]> },
    Truncate { file: FileName, len: u64 },
    Remove { file: FileName },
    Replace { file: FileName, bytes: Box<[u8]> },
    Map(ToMap),
    Commit { to: LocalPosition, fsync: bool },
    Flush,
    FlushLogs,
}

/// What the thread tells the loop.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Jobs done, from the first.
    pub(crate) done: u64,
    /// The last commit that holds.
    pub(crate) durable: Option<LocalPosition>,
    /// The log segments are fsynced that were written when the loop asked for that.
    pub(crate) logs_flushed: bool,
    /// The mappings that the loop had asked for.
    pub(crate) made: Vec<Made>,
    /// The error that ended the thread.
    pub(crate) failed: Option<StorageError>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    news: Mutex<News>,
    has_news: AtomicBool,
    /// Jobs whose file effects are in the page cache; published while the queue is locked and empty, so that the loop
    /// sees at once that nothing is left to overtake.
    applied: AtomicU64,
}

/// The loop's handle of the thread.
#[derive(Debug)]
pub(crate) struct LogThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A panic while the lock was held cannot leave these values half changed, and ends the process anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogThread {
    /// Starts the thread, which calls `wake` after each batch.
    pub(crate) fn start(
        name: &str,
        files: Arc<Mutex<Files>>,
        wake: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(format!("{name}-log")).spawn(move || {
            let mut applied = 0;
            while run_batch(&theirs, &files, &mut applied) {
                wake();
            }
            wake();
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn push(&self, job: Job) {
        let mut queue = lock(&self.shared.queue);
        queue.jobs.push(job);
        // The thread takes the whole queue, so only the first job finds it asleep.
        if queue.jobs.len() == 1 {
            drop(queue);
            self.shared.filled.notify_one();
        }
    }

    /// How many jobs' file effects are in the page cache.
    pub(crate) fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Acquire)
    }

    /// What was done since the last call, if anything.
    pub(crate) fn news(&self) -> Option<News> {
        if !self.shared.has_news.swap(false, Ordering::Acquire) {
            return None;
        }
        let mut news = lock(&self.shared.news);
        let (made, logs_flushed) = (std::mem::take(&mut news.made), std::mem::take(&mut news.logs_flushed));
        Some(News { done: news.done, durable: news.durable.take(), logs_flushed, made, failed: news.failed.take() })
    }
}

impl Drop for LogThread {
    /// Waits until everything queued is done.
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed, and the loop's own end is under way.
            let _ = thread.join();
        }
    }
}

/// How often a batch takes up what was queued meanwhile, before it fsyncs.
const ROUNDS_MAX: usize = 64;

#[derive(Debug, Default)]
struct Batch {
    durable: Option<LocalPosition>,
    fsync: bool,
    flush_logs: bool,
    to_map: Vec<ToMap>,
    made: Vec<Made>,
}

/// Does what is queued; `false` when there will be no more.
fn run_batch(shared: &Shared, files: &Mutex<Files>, applied: &mut u64) -> bool {
    let mut queue = lock(&shared.queue);
    while queue.jobs.is_empty() {
        if queue.closed {
            return false;
        }
        queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    let result = run_jobs(shared, files, applied, queue);
    let goes_on = result.is_ok();
    let mut news = lock(&shared.news);
    match result {
        Ok(batch) => {
            news.done = *applied;
            news.durable = batch.durable.or(news.durable);
            news.logs_flushed |= batch.flush_logs;
            news.made.extend(batch.made);
        }
        Err(error) => news.failed = Some(error),
    }
    drop(news);
    shared.has_news.store(true, Ordering::Release);
    goes_on
}

fn run_jobs<'a>(
    shared: &'a Shared,
    files: &Mutex<Files>,
    applied: &mut u64,
    mut queue: MutexGuard<'a, Queue>,
) -> Result<Batch, StorageError> {
    let mut batch = Batch::default();
    for _ in 0..ROUNDS_MAX {
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        *applied += jobs.len() as u64;
        batch.apply(jobs, files)?;
        queue = lock(&shared.queue);
        if queue.jobs.is_empty() {
            break;
        }
    }
    shared.applied.store(*applied, Ordering::Release);
    drop(queue);
    batch.map(files)?;
    if batch.fsync || batch.flush_logs {
        let (dirty, root) = {
            let mut files = lock(files);
            let dirty = if batch.fsync { files.take_dirty() } else { files.take_dirty_logs() };
            (dirty, files.root().to_owned())
        };
        dirty.sync(&root)?;
    }
    Ok(batch)
}

impl Batch {
    fn apply(&mut self, jobs: Vec<Job>, files: &Mutex<Files>) -> Result<(), StorageError> {
        for job in jobs {
            match job {
                Job::Write { file, offset, bytes } => lock(files).write(file, offset, &bytes)?,
                Job::Truncate { file, len } => lock(files).truncate(file, len)?,
                Job::Remove { file } => lock(files).remove(file)?,
                Job::Replace { file, bytes } => lock(files).replace(file, &bytes)?,
                Job::Map(request) => {
                    self.to_map.retain(|earlier| earlier.name != request.name);
                    self.to_map.push(request);
                }
                Job::Commit { to, fsync } => {
                    assert!(self.durable < Some(to), "commits are reported in order");
                    self.durable = Some(to);
                    self.fsync |= fsync;
                }
                Job::Flush => self.fsync = true,
                Job::FlushLogs => self.flush_logs = true,
            }
        }
        Ok(())
    }

    /// Maps files, before any commit of this batch is reported: a new file that finds no room never counts as durable. Meanwhile
    /// the loop goes on with system calls.
    fn map(&mut self, files: &Mutex<Files>) -> Result<(), StorageError> {
        for request in self.to_map.drain(..) {
            let file = lock(files).opened(request.name);
            let mapping = file.map_or(Ok(None), |file| Mapping::of(&file)).map_err(|error| {
                let path = paths::path(lock(files).root(), request.name).1;
                failed("take room for", &path)(error)
            })?;
            self.made.push(Made { request, mapping });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_batch_is_reported_by_its_last_commit_and_a_failure_ends_it() {
        let root = std::env::temp_dir().join(format!("kasha-log-thread-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let files = Arc::new(Mutex::new(Files::new(root.clone(), crate::limits::Limits::default(), None)));
        let (wake, woken) = mpsc::channel();
        let thread = LogThread::start("t", Arc::clone(&files), move || wake.send(()).unwrap()).unwrap();
        let held = lock(&files);
        thread.push(Job::Write { file: FileName::Core, offset: 0, bytes: b"abc".as_slice().into() });
        for to in 1..=100 {
            thread.push(Job::Commit { to: LocalPosition(to), fsync: true });
        }
        drop(held);
        let (mut done, mut last) = (0, LocalPosition(0));
        while done < 101 {
            woken.recv().unwrap();
            let Some(news) = thread.news() else { continue };
            assert!(news.failed.is_none());
            assert!(news.done > done);
            done = news.done;
            if let Some(durable) = news.durable {
                assert!(durable > last, "in order");
                last = durable;
            }
        }
        assert_eq!(last, LocalPosition(100));
        std::fs::remove_dir_all(&root).unwrap();
        let shard = kasha_types::ShardId(1);
        thread.push(Job::Replace { file: FileName::Replica(shard), bytes: b"x".as_slice().into() });
        thread.push(Job::Commit { to: LocalPosition(101), fsync: true });
        woken.recv().unwrap();
        let news = thread.news().unwrap();
        assert!(news.failed.is_some());
        assert_eq!(news.durable, None, "nothing after a failure is reported");
    }
}
