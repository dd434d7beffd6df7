//! An open file, and how bytes get into it: by system calls, or by stores once it is mapped (decision 0017).
//!
//! Nobody waits for a mapping. Until it is there, and wherever it does not reach, a system call does the same.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use kasha_machine::FileName;

use crate::faults;
use crate::mapping::Mapping;

/// A file that this process writes.
#[derive(Debug)]
pub(crate) struct OpenFile {
    name: FileName,
    pub(crate) file: Arc<File>,
    /// When it was last used, as its owner counts.
    pub(crate) used: u64,
    /// It was written since it was last fsynced.
    pub(crate) dirty: bool,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// System calls.
    Calls,
    /// System calls; the first write asks for a mapping. Before it nobody knows how long the file will be.
    Unasked,
    /// System calls, until the mapping is there that was asked for when the file had been used so often.
    Asked(u64),
    /// Stores.
    Mapped(Mapping),
}

/// A file that is to be mapped by a thread that may wait for the disk.
#[derive(Debug)]
pub(crate) struct ToMap {
    pub(crate) name: FileName,
    pub(crate) file: Arc<File>,
    asked: u64,
}

/// Witnesses write a few hundred bytes at a time, anywhere in a file whose length is fixed; segments grow at their ends.
pub(crate) fn is_mapped(name: FileName) -> bool {
    match name {
        FileName::Witness { .. } => true,
        FileName::Segment { .. }
        | FileName::Replica(_)
        | FileName::WitnessMode { .. }
        | FileName::Core
        | FileName::Coordinator(_) => false,
    }
}

impl OpenFile {
    pub(crate) fn new(name: FileName, file: File) -> Self {
        let way = if is_mapped(name) { Way::Unasked } else { Way::Calls };
        Self { name, file: Arc::new(file), used: 0, dirty: false, way }
    }

    /// Writes, and says whether the file is to be mapped now.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<Option<ToMap>> {
        let Self { file, way, .. } = self;
        faults::write(file, offset, bytes.len(), || match way {
            Way::Mapped(mapping) => mapping.store(offset, bytes).map_or_else(|| file.write_all_at(bytes, offset), Ok),
            Way::Calls | Way::Unasked | Way::Asked(_) => file.write_all_at(bytes, offset),
        })?;
        Ok(if matches!(way, Way::Unasked) { Some(self.ask()) } else { None })
    }

    /// Cuts or extends it, and says whether it is to be mapped now. The mapping that it had reaches bytes that may be gone.
    pub(crate) fn truncate(&mut self, len: u64) -> (io::Result<Option<ToMap>>, Option<Mapping>) {
        let retired = self.unmap();
        let cut = faults::truncate(&self.file, len);
        (cut.map(|()| (is_mapped(self.name) && len > 0).then(|| self.ask())), retired)
    }

    /// A mapping was made, or there can be none. Gives it back if it is not the one that was asked for last.
    pub(crate) fn map(&mut self, to_map: &ToMap, mapping: Option<Mapping>) -> Option<Mapping> {
        if !matches!(self.way, Way::Asked(asked) if asked == to_map.asked) {
            return mapping;
        }
        self.way = mapping.map_or(Way::Calls, Way::Mapped);
        None
    }

    /// Takes the mapping away; from here on nothing is stored.
    pub(crate) fn unmap(&mut self) -> Option<Mapping> {
        match std::mem::replace(&mut self.way, Way::Calls) {
            Way::Mapped(mapping) => Some(mapping),
            Way::Calls | Way::Unasked | Way::Asked(_) => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn has_mapping(&self) -> bool {
        matches!(self.way, Way::Mapped(_))
    }

    fn ask(&mut self) -> ToMap {
        self.way = Way::Asked(self.used);
        ToMap { name: self.name, file: Arc::clone(&self.file), asked: self.used }
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ListVersion, ShardId};

    use super::*;

    /// A mapping that is longer than its file would take stores that are nowhere.
    #[test]
    fn only_the_mapping_that_was_asked_for_last_is_used() {
        let path = std::env::temp_dir().join(format!("kasha-open-file-{}", std::process::id()));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let mut open = OpenFile::new(FileName::Witness { shard: ShardId(1), list: ListVersion(1) }, file);
        let mut cut = |used, len| {
            open.used = used;
            open.truncate(len).0.unwrap()
        };
        let long = cut(1, 8192).unwrap();
        let mapping = Mapping::of(&long.file).unwrap();
        let is_mapped = mapping.is_some();
        assert!(cut(2, 0).is_none(), "there is nothing to map");
        let short = cut(3, 4096).unwrap();
        assert_eq!(open.map(&long, mapping).is_some(), is_mapped, "it comes too late");
        assert!(!open.has_mapping());
        assert!(open.map(&short, Mapping::of(&short.file).unwrap()).is_none());
        assert_eq!(open.has_mapping(), is_mapped);
        assert!(open.write(5000, b"beyond").unwrap().is_none());
        assert_eq!(std::fs::read(&path).unwrap().len(), 5006);
        assert_eq!(open.unmap().is_some(), is_mapped);
        std::fs::remove_file(&path).unwrap();
    }
}
