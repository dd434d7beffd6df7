//! A file that is written by stores into memory instead of system calls (decision 0017).
//!
//! Stores and system calls reach the same page cache, so one may take the other's place at any moment. A store cannot report an
//! error: if the system has no page for it, the thread gets SIGBUS. So only a file whose room is taken is mapped, on a
//! file system that overwrites in place; everything else stays with system calls, which fail with a reason.
#![expect(unsafe_code, reason = "a store into mapped memory, and a signal handler")]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FsWord, fallocate, fstatfs};
use rustix::io::Errno;

use crate::faults;

/// File systems that write a page to the place that `fallocate` has taken for it: ext4 (and those that it reads), XFS, tmpfs.
/// Others may want new room for each write (btrfs, ZFS, f2fs), or are not there to be asked (NFS, FUSE).
const IN_PLACE: [FsWord; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// What `MetadataExt::blocks` counts in.
const STAT_BLOCK_BYTES: u64 = 512;

/// A file's bytes as memory. Holds no descriptor, and unmaps when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Raw: other processes may read and write the file, so no reference to its bytes is ever made.
    map: MmapRaw,
    kept: faults::Kept,
}

impl Mapping {
    /// Takes room for the file at its length now, maps it, and touches every page, so that no store has to wait for one. Waits
    /// for the disk. `None` if the file is to be written by system calls.
    ///
    /// # Errors
    /// If there is no room, or the disk fails: what system calls would meet sooner or later.
    pub(crate) fn of(file: &File) -> io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        let len = metadata.len();
        if len == 0 || !is_written_in_place(file)? || !take_room(file, len)? {
            return Ok(None);
        }
        let was_whole = metadata.blocks() * STAT_BLOCK_BYTES >= len;
        match Self::touched(file, len, was_whole) {
            Ok(mapping) => Ok(Some(mapping)),
            Err(error) => {
                tracing::warn!(%error, "a file cannot be mapped, so that writing to it takes a system call each time");
                Ok(None)
            }
        }
    }

    fn touched(file: &File, len: u64, was_whole: bool) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let map = MmapOptions::new().len(len).map_raw(file)?;
        // Else the page cache takes pages in large folios, of which the first changed byte makes all dirty.
        map.advise(Advice::Random)?;
        // New blocks are written once from end to end: an fsync of a block that was never written waits for the journal, too.
        match map.advise(if was_whole { Advice::PopulateRead } else { Advice::PopulateWrite }) {
            // Before Linux 5.14 the first store of each page waits for the page.
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INVAL) => Err(error),
            Ok(()) | Err(_) => Ok(Self { map, kept: faults::keep(file)? }),
        }
    }

    /// Stores bytes; `None`, and nothing happens, if they do not all lie within what is mapped.
    pub(crate) fn store(&mut self, offset: u64, bytes: &[u8]) -> Option<()> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(bytes.len())? > self.map.len() {
            return None;
        }
        // SAFETY: the target lies within the mapping, which is writable and lives as long as `self`. No reference to mapped
        // memory exists anywhere, so `bytes` does not overlap it, and `&mut self` keeps other threads of ours away. Should the file
        // have been cut meanwhile, the system sends SIGBUS, which ends the process: no store goes astray.
        let put = || unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(offset), bytes.len());
        };
        faults::store(&self.kept, offset as u64, bytes.len(), put);
        Some(())
    }
}

/// Whether the file system is one of those that overwrite in place.
fn is_written_in_place(file: &File) -> io::Result<bool> {
    Ok(IN_PLACE.contains(&fstatfs(file)?.f_type))
}

/// Whether the file has all its blocks now. Its length stays as it is: it may have been cut meanwhile.
fn take_room(file: &File, len: u64) -> io::Result<bool> {
    loop {
        match fallocate(file, FallocateFlags::KEEP_SIZE, 0, len) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(error.into()),
            // An old ext3, a sandbox.
            Err(_) => return Ok(false),
        }
    }
}

const BUS_ERROR: &[u8] = b"kasha: a page of a mapped file could not be read or written (SIGBUS): look into the kernel's log, \
replace the disk if it fails, leave the data folder to this process, then start it again, which recovers from its own files \
and from the other nodes (K0116)\n";

/// Has this process say what happened, before it dies of SIGBUS as it would anyway.
///
/// # Errors
/// If the system refuses.
pub fn explain_bus_errors() -> io::Result<()> {
    let explain = || {
        let _ = rustix::io::write(rustix::stdio::stderr(), BUS_ERROR);
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGBUS);
    };
    // SAFETY: the action writes bytes that are there already and raises the signal again, both async-signal-safe; it takes no
    // lock, allocates nothing and does not panic.
    unsafe { signal_hook::low_level::register(signal_hook::consts::SIGBUS, explain) }.map(drop)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    impl Mapping {
        /// Whether files in this folder are mapped.
        pub(crate) fn can_be_on(folder: &Path) -> bool {
            is_written_in_place(&File::open(folder).unwrap()).unwrap()
        }
    }

    /// A file system of a test's own, unmounted when dropped.
    pub(crate) struct SmallDisk(PathBuf);

    impl SmallDisk {
        /// `None`, with a notice, where that is not allowed.
        pub(crate) fn mount(path: &Path, kind: &str, options: &str) -> Option<Self> {
            fs::create_dir_all(path).unwrap();
            let mount = Command::new("mount").args(["-t", kind, "-o", options, "kasha-test"]).arg(path).output();
            if mount.is_ok_and(|output| output.status.success()) {
                return Some(Self(path.to_owned()));
            }
            eprintln!("skipped: this user may not mount a small file system");
            None
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            // Lazily, because files may still be open.
            let unmount = Command::new("umount").arg("-l").arg(&self.0).output();
            assert!(std::thread::panicking() || unmount.is_ok_and(|output| output.status.success()), "unmounted");
            let _ = fs::remove_dir(&self.0);
        }
    }

    /// A file of so many zeros that takes no room yet.
    fn sparse(path: &Path, len: u64) -> File {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap();
        file.set_len(len).unwrap();
        file
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kasha-mapping-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn stores_are_in_the_file_and_nothing_is_stored_beyond_it() {
        let folder = folder("stores");
        let file = sparse(&folder.join("file"), 20_000);
        if let Some(mut mapping) = Mapping::of(&file).unwrap() {
            assert!(file.metadata().unwrap().blocks() * STAT_BLOCK_BYTES >= 20_000, "its room is taken");
            assert_eq!(file.metadata().unwrap().len(), 20_000);
            for (offset, is_within) in
                [(0, true), (4095, true), (19_997, true), (19_998, false), (20_000, false), (u64::MAX - 1, false)]
            {
                assert_eq!(mapping.store(offset, b"abc").is_some(), is_within, "{offset}");
            }
            for offset in [0, 4095, 19_997] {
                let mut bytes = [0; 3];
                file.read_exact_at(&mut bytes, offset).unwrap();
                assert_eq!(&bytes, b"abc", "{offset}");
            }
            file.write_all_at(b"call", 8192).unwrap();
            drop(mapping);
            let again = Mapping::of(&file).unwrap();
            assert!(again.is_some());
            let bytes = fs::read(folder.join("file")).unwrap();
            assert_eq!((bytes.len(), &bytes[4095..4098], &bytes[8192..8196]), (20_000, &b"abc"[..], &b"call"[..]));
        } else {
            eprintln!("skipped: temporary files lie on a file system whose files are not mapped");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_without_bytes_is_not_mapped_and_one_that_was_cut_does_no_harm() {
        let folder = folder("cut");
        assert!(Mapping::of(&sparse(&folder.join("empty"), 0)).unwrap().is_none());
        // It was cut between the look at its length and the first touch.
        let cut = sparse(&folder.join("cut"), 4096);
        if Mapping::can_be_on(&folder) {
            assert!(Mapping::touched(&cut, 3 * 4096, false).is_err(), "an error, not a signal");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_finds_no_room_is_an_error() {
        let folder = folder("full");
        let Some(_disk) = SmallDisk::mount(&folder, "tmpfs", "size=64k") else { return };
        let file = sparse(&folder.join("file"), 1 << 20);
        assert_eq!(Mapping::of(&file).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(Mapping::of(&sparse(&folder.join("small"), 16 << 10)).unwrap().is_some());
    }

    #[test]
    fn on_a_file_system_that_is_not_known_files_are_written_by_system_calls() {
        let folder = folder("unknown");
        let Some(_disk) = SmallDisk::mount(&folder, "ramfs", "mode=700") else { return };
        assert!(Mapping::of(&sparse(&folder.join("file"), 1 << 20)).unwrap().is_none());
    }
}
