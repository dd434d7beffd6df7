//! Folders, small disks and ports that belong to one test.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use kasha_machine::Rng;

/// A new folder. It is removed unless the test fails.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a folder of this process's own.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kasha-process-{name}-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self { path }
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the folder is kept: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Copies a folder with all that is in it.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(&from, &to).expect("a file");
        }
    }
}

/// A small file system for one test.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

/// Fills all the room that is left where this file is.
///
/// # Panics
/// If the file cannot be opened.
pub fn fill(path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).expect("a file on the disk");
    for size in [1 << 20, 1 << 12] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

impl SmallDisk {
    /// Mounts a small file system at `path`. `None`, with a notice, if that is not allowed.
    ///
    /// # Panics
    /// If `path` cannot be made.
    #[must_use]
    pub fn mount(path: PathBuf, mib: u32) -> Option<Self> {
        fs::create_dir_all(&path).expect("a place to mount at");
        let size = format!("size={mib}m");
        let target = path.to_str().expect("text");
        if mount(&["-t", "tmpfs", "-o", &size, "kasha-test", target]) {
            return Some(Self { path });
        }
        eprintln!("SKIPPED: this user may not mount a file system, so no small or read-only disk can be tried");
        None
    }

    /// The path where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it larger.
    ///
    /// # Panics
    /// If that is refused.
    pub fn grow(&self, mib: u32) {
        let size = format!("remount,size={mib}m");
        assert!(mount(&["-o", &size, self.path.to_str().expect("text")]), "a larger disk");
    }

    /// Makes it read-only. Returns whether that worked.
    #[must_use]
    pub fn make_read_only(&self) -> bool {
        mount(&["-o", "remount,ro", self.path.to_str().expect("text")])
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmounts lazily: a child that is being killed may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn mount(arguments: &[&str]) -> bool {
    Command::new("mount").args(arguments).output().is_ok_and(|output| output.status.success())
}

/// The first of `count` adjacent ports on 127.0.0.1 at which nobody listens.
///
/// The ports are not from the range of outgoing connections: while a killed child is away, a client's connection could
/// be given its port.
///
/// # Panics
/// If hardly any port is free.
#[must_use]
pub fn free_ports(count: u16) -> u16 {
    const FIRST: u16 = 10_240;
    const OUTGOING_FIRST: u16 = 32_768;
    const TRIES: u32 = 1000;
    // Tests run side by side, and none listens yet when the next one looks for ports.
    static TAKEN: Mutex<Vec<Range<u16>>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = Rng::new(u64::from(std::process::id()) << 32 | taken.len() as u64);
    for _ in 0..TRIES {
        let first = rng.between(u64::from(FIRST), u64::from(OUTGOING_FIRST - count));
        let first = u16::try_from(first).expect("below the end");
        let range = first..first + count;
        let is_apart = |other: &Range<u16>| other.end <= range.start || range.end <= other.start;
        if taken.iter().all(is_apart) && range.clone().all(is_free) {
            taken.push(range);
            return first;
        }
    }
    panic!("no {count} neighbouring ports are free");
}

/// Whether nobody listens at a port.
#[must_use]
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// The loopback address with this port.
#[must_use]
pub fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
