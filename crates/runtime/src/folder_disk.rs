//! One core's folder, as its machine reads it before it runs: what a crash left unfinished goes, and what is read is
//! fsynced first, since from then on it is vouched for.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use kasha_machine::{Disk, FileName};
use rustix::fs::{Advice, fadvise};

use crate::files::{StorageError, failed, make_folders, sync_folder};
use crate::mapped_files::is_mapped;
use crate::{faults, paths};

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
    make_folders(folder)?;
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
            if is_mapped(file) {
                // Reading ahead would leave large folios in the page cache, each of which a store makes dirty as a whole.
                let _ = fadvise(&opened, 0, None, Advice::Random);
            }
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
