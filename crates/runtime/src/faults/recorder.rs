//! Records every change of a file or folder, and every fsync, in the order in which they were made.
//!
//! `KASHA_TEST_JOURNAL` names a folder on the data's file system. Each process writes a journal there, `NNNN.journal`,
//! and moves what it removes beside it instead (`grave-NNNN-N`), so that it can come back. A change is recorded before
//! it is made, with what it overwrites, and both under one lock: what a finished fsync covers is exactly what was
//! recorded before it began. So a reader, after `kill -9`, can undo from the files as they are whatever no fsync covers.
//!
//! A record is a line of fields between tabs; the last field of two kinds is the number of bytes that follow it.
//!
//! ```text
//! write      INODE OFFSET LEN OLD_FILE_LEN BYTES      and the bytes that were there
//! truncate   INODE LEN OLD_FILE_LEN BYTES             and the bytes that are cut off
//! create     INODE PATH
//! remove     INODE PATH GRAVE
//! rename     INODE FROM TO GRAVE                      GRAVE: what was called TO, or -
//! synced     INODE UP_TO                              every record of it among the first UP_TO of this journal
//! folder     PATH UP_TO                               the same for entries of a folder
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

struct Recorder {
    journal: File,
    folder: PathBuf,
    number: usize,
    records: u64,
    graves: u64,
}

/// A recorder that fails would make a test lie, so it ends the process instead.
const MUST: &str = "the recorder of a test build writes";

fn recorder() -> Option<MutexGuard<'static, Recorder>> {
    static RECORDER: OnceLock<Option<Mutex<Recorder>>> = OnceLock::new();
    let recorder =
        RECORDER.get_or_init(|| std::env::var_os("KASHA_TEST_JOURNAL").map(|folder| Mutex::new(start(folder.into()))));
    recorder.as_ref().map(|recorder| recorder.lock().unwrap_or_else(PoisonError::into_inner))
}

fn start(folder: PathBuf) -> Recorder {
    fs::create_dir_all(&folder).expect(MUST);
    let name = |number: usize| folder.join(format!("{number:04}.journal"));
    let number = (0..).find(|number| !name(*number).exists()).expect("numbers do not end");
    let journal = File::options().append(true).create_new(true).open(name(number)).expect(MUST);
    Recorder { journal, folder, number, records: 0, graves: 0 }
}

impl Recorder {
    /// One write, so that `kill -9` leaves all of a record or its beginning.
    fn record(&mut self, line: &str, bytes: &[u8]) {
        let record = [line.as_bytes(), b"\n", bytes].concat();
        self.journal.write_all(&record).expect(MUST);
        self.records += 1;
    }

    fn write(&mut self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let meta = file.metadata()?;
        let old = old_bytes(file, offset, meta.len().min(offset + len));
        let line = format!("write\t{}\t{offset}\t{len}\t{}\t{}", meta.ino(), meta.len(), old.len());
        self.record(&line, &old);
        Ok(())
    }

    fn grave(&mut self) -> PathBuf {
        self.graves += 1;
        self.folder.join(format!("grave-{:04}-{}", self.number, self.graves))
    }
}

fn old_bytes(file: &File, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).expect("it fits memory")];
    file.read_exact_at(&mut bytes, from).expect(MUST);
    bytes
}

pub(crate) fn write(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let Some(mut recorder) = recorder() else { return file.write_all_at(bytes, offset) };
    recorder.write(file, offset, bytes.len() as u64)?;
    file.write_all_at(bytes, offset)
}

/// What is kept of a mapped file: the recorder reads its bytes before they change.
pub(crate) type Kept = File;

pub(crate) fn keep(file: &File) -> io::Result<Kept> {
    file.try_clone()
}

pub(crate) fn store(file: &Kept, offset: u64, len: usize, put: impl FnOnce()) {
    let Some(mut recorder) = recorder() else { return put() };
    recorder.write(file, offset, len as u64).expect(MUST);
    put();
}

pub(crate) fn truncate(file: &File, len: u64) -> io::Result<()> {
    let Some(mut recorder) = recorder() else { return file.set_len(len) };
    let meta = file.metadata()?;
    let old = old_bytes(file, len, meta.len());
    recorder.record(&format!("truncate\t{}\t{len}\t{}\t{}", meta.ino(), meta.len(), old.len()), &old);
    file.set_len(len)
}

/// Recorded when it is made: what a kill leaves unrecorded counts as kept, which it may be.
pub(crate) fn create<T>(path: &Path, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(mut recorder) = recorder() else { return make() };
    let is_new = !path.exists();
    let made = make()?;
    if is_new {
        let line = format!("create\t{}\t{}", fs::metadata(path)?.ino(), path.display());
        recorder.record(&line, &[]);
    }
    Ok(made)
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let Some(mut recorder) = recorder() else { return fs::remove_file(path) };
    let inode = fs::metadata(path)?.ino();
    let grave = recorder.grave();
    recorder.record(&format!("remove\t{inode}\t{}\t{}", path.display(), grave.display()), &[]);
    fs::rename(path, grave)
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let Some(mut recorder) = recorder() else { return fs::rename(from, to) };
    let inode = fs::metadata(from)?.ino();
    let grave = if to.exists() {
        let grave = recorder.grave();
        fs::hard_link(to, &grave)?;
        grave
    } else {
        PathBuf::from("-")
    };
    recorder.record(&format!("rename\t{inode}\t{}\t{}\t{}", from.display(), to.display(), grave.display()), &[]);
    fs::rename(from, to)
}

pub(crate) fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    super::failing::check(file)?;
    #[cfg(test)]
    super::fsynced::note(file)?;
    let Some(up_to) = recorder().map(|recorder| recorder.records) else { return file.sync_data() };
    file.sync_data()?;
    let line = format!("synced\t{}\t{up_to}", file.metadata()?.ino());
    recorder().expect("it was there").record(&line, &[]);
    Ok(())
}

pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = File::open(path)?;
    #[cfg(test)]
    super::fsynced::note(&folder)?;
    let Some(up_to) = recorder().map(|recorder| recorder.records) else { return folder.sync_all() };
    folder.sync_all()?;
    recorder().expect("it was there").record(&format!("folder\t{}\t{up_to}", path.display()), &[]);
    Ok(())
}
