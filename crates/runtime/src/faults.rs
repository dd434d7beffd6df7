//! What the process tests do to this shell, in builds with the feature `test-faults` only: a recorder of everything
//! that is written and fsynced, so that a loss of power can be acted out afterwards; a clock that jumps and drifts; a
//! boot id that changes. Each is off unless its environment variable is set.
//!
//! Without the feature every function here does what it wraps, and nothing else. In tests of this crate each also notes what is
//! fsynced.

#[cfg(feature = "test-faults")]
pub(crate) mod clock;
#[cfg(feature = "test-faults")]
mod recorder;

#[cfg(feature = "test-faults")]
pub(crate) use recorder::{Kept, create, keep, remove, rename, store, sync, sync_folder, truncate, write};

#[cfg(not(feature = "test-faults"))]
pub(crate) use bare::{Kept, create, keep, remove, rename, store, sync, sync_folder, truncate, write};

/// The inodes that this thread has fsynced, in order: a file looks the same whether the disk has it or not.
#[cfg(test)]
pub(crate) mod fsynced {
    use std::cell::RefCell;
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::MetadataExt;

    thread_local! {
        static INODES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn note(file: &File) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        INODES.with_borrow_mut(|inodes| inodes.push(inode));
        Ok(())
    }

    /// The inodes fsynced since the last call.
    pub(crate) fn take() -> Vec<u64> {
        INODES.take()
    }
}

/// The boot id to take for the kernel's.
#[cfg(feature = "test-faults")]
pub(crate) fn boot_id() -> Option<String> {
    std::env::var("KASHA_TEST_BOOT_ID").ok()
}

#[cfg(not(feature = "test-faults"))]
mod bare {
    use std::fs::{self, File};
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    pub(crate) fn write(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Only the recorder needs anything of a mapped file.
    pub(crate) type Kept = ();

    pub(crate) fn keep(_: &File) -> io::Result<Kept> {
        Ok(())
    }

    /// Calls `put`, which stores so many bytes to a place of a mapped file.
    pub(crate) fn store(_: &Kept, _: u64, _: usize, put: impl FnOnce()) {
        put();
    }

    pub(crate) fn truncate(file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    /// Makes a file or folder.
    pub(crate) fn create<T>(_: &Path, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        make()
    }

    pub(crate) fn remove(path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Fsyncs a file's content.
    pub(crate) fn sync(file: &File) -> io::Result<()> {
        #[cfg(test)]
        super::failing::check(file)?;
        #[cfg(test)]
        super::fsynced::note(file)?;
        file.sync_data()
    }

    /// Fsyncs a folder's entries.
    pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
        let folder = File::open(path)?;
        #[cfg(test)]
        super::fsynced::note(&folder)?;
        folder.sync_all()
    }
}

/// Files whose fsync fails, by inode.
#[cfg(test)]
pub(crate) mod failing {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::Mutex;

    use crate::log_thread::lock;

    static INODES: Mutex<Vec<u64>> = Mutex::new(Vec::new());

    /// Until it is dropped, the fsync of this file fails. Drop it before the file goes: another may get the same inode.
    pub(crate) struct Failing(u64);

    impl Failing {
        pub(crate) fn new(path: &Path) -> Self {
            let inode = path.metadata().unwrap().ino();
            lock(&INODES).push(inode);
            Self(inode)
        }
    }

    impl Drop for Failing {
        fn drop(&mut self) {
            lock(&INODES).retain(|inode| *inode != self.0);
        }
    }

    pub(crate) fn check(file: &File) -> io::Result<()> {
        match lock(&INODES).contains(&file.metadata()?.ino()) {
            true => Err(rustix::io::Errno::IO.into()),
            false => Ok(()),
        }
    }
}
