//! Loads the disk: a thread writes a file in the same file system and syncs it, again and again. And says how long a small write takes to
//! reach the disk, with that and without: disks differ in how much such a load is to them.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::harness::median;

/// What is written before each sync, and in what pieces. So much that a file system that puts data on the disk before its journal lets
/// others wait for a good part of it.
const BYTES_EACH: usize = 128 << 20;
const PIECE: usize = 1 << 20;
/// Small writes that are timed, and how many bytes each has.
const SYNCS: usize = 30;
const SYNCED_BYTES: usize = 512;

/// The thread, which ends when this is told to, or dropped.
pub(super) struct Ballast {
    ending: Arc<AtomicBool>,
    began: Instant,
    thread: Option<JoinHandle<std::io::Result<u64>>>,
}

impl Ballast {
    /// Begins to write into this folder.
    pub(super) fn start(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join("ballast");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let ending = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ending);
        let thread = std::thread::Builder::new().name("ballast".to_owned()).spawn(move || write(file, &until));
        Ok(Self { ending, began: Instant::now(), thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Ends it. Returns how many MiB a second reached the disk.
    pub(super) fn end(mut self) -> anyhow::Result<f64> {
        let took = self.began.elapsed();
        let bytes = self.join().context("it runs until now")??;
        Ok(mebibytes_per_second(bytes, took))
    }

    fn join(&mut self) -> Option<anyhow::Result<u64>> {
        self.ending.store(true, Ordering::Release);
        let thread = self.thread.take()?;
        let written = thread.join().map_err(|_| anyhow!("the thread that loads the disk has panicked"));
        Some(written.and_then(|written| written.context("cannot load the disk")))
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        // Nobody asks any more how it went.
        let _ = self.join();
    }
}

/// How long a write of a few bytes takes until it is on the disk, in milliseconds: of several, the one in the middle.
pub(super) fn median_sync_ms(folder: &Path) -> anyhow::Result<f64> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join("syncs");
    let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut sync = || -> std::io::Result<f64> {
        let began = Instant::now();
        file.write_all(&[b's'; SYNCED_BYTES])?;
        file.sync_data()?;
        Ok(began.elapsed().as_secs_f64() * 1000.0)
    };
    let took: Vec<f64> = (0..SYNCS).map(|_| sync()).collect::<Result<_, _>>().context("cannot sync a file")?;
    Ok(median(took.into_iter()))
}

fn mebibytes_per_second(bytes: u64, took: Duration) -> f64 {
    (bytes >> 20) as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn write(mut file: File, ending: &AtomicBool) -> std::io::Result<u64> {
    let piece = vec![b'b'; PIECE];
    let mut written = 0;
    while !ending.load(Ordering::Acquire) {
        // New blocks each time: they go through the file system's journal, which other files wait for, too.
        file.set_len(0)?;
        file.rewind()?;
        for _ in 0..BYTES_EACH / PIECE {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        written += BYTES_EACH as u64;
    }
    Ok(written)
}
