//! The files of one loop that the loop writes by stores into memory (decision 0017).
//!
//! Nobody waits for a mapping. Until the log thread has made it, and wherever it does not reach, a system call writes the same
//! bytes. The mappings belong to the loop alone: a lock between two stores would make the processor wait for the first one.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kasha_machine::FileName;

use crate::TrashThread;
use crate::mapping::Mapping;

/// Witnesses write a few hundred bytes at a time, anywhere in a file whose length is fixed; segments grow at their ends.
pub(crate) fn is_mapped(name: FileName) -> bool {
    match name {
        FileName::Witness { .. } => true,
        FileName::Segment { .. }
        | FileName::Replica(_)
        | FileName::WitnessMode { .. }
        | FileName::Core
        | FileName::Told
        | FileName::Coordinator(_)
        | FileName::Journal(_) => false,
    }
}

/// A file that the log thread is to map, by the number of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToMap {
    pub(crate) name: FileName,
    number: u64,
}

/// What became of a request. Without a mapping, system calls go on writing the file.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) request: ToMap,
    pub(crate) mapping: Option<Mapping>,
}

#[derive(Debug)]
struct Mapped {
    /// The last request. What an earlier one made is of the file as it was before a cut.
    number: u64,
    mapping: Option<Mapping>,
    touched: bool,
}

/// Mappings by file.
#[derive(Debug)]
pub(crate) struct MappedFiles {
    files: HashMap<FileName, Mapped, FixedState>,
    touched: Vec<FileName>,
    requests: u64,
    trash: Option<TrashThread>,
}

impl MappedFiles {
    pub(crate) fn new(trash: Option<TrashThread>) -> Self {
        Self { files: HashMap::default(), touched: Vec::new(), requests: 0, trash }
    }

    /// Stores bytes. `false`, and nothing happens, if they must be written by a system call.
    pub(crate) fn store(&mut self, name: FileName, offset: u64, bytes: &[u8]) -> bool {
        let Some(file) = self.files.get_mut(&name) else { return false };
        if file.mapping.as_mut().and_then(|mapping| mapping.store(offset, bytes)).is_none() {
            return false;
        }
        if !std::mem::replace(&mut file.touched, true) {
            self.touched.push(name);
        }
        true
    }

    /// A file that was stored to since it was named here last: an fsync must cover it.
    pub(crate) fn next_touched(&mut self) -> Option<FileName> {
        let name = self.touched.pop()?;
        if let Some(file) = self.files.get_mut(&name) {
            file.touched = false;
        }
        Some(name)
    }

    /// The request to map a file, unless there was one.
    pub(crate) fn ask(&mut self, name: FileName) -> Option<ToMap> {
        if !is_mapped(name) || self.files.contains_key(&name) {
            return None;
        }
        self.requests += 1;
        self.files.insert(name, Mapped { number: self.requests, mapping: None, touched: false });
        Some(ToMap { name, number: self.requests })
    }

    /// Takes over what the log thread has made.
    pub(crate) fn put(&mut self, made: Made) {
        match self.files.get_mut(&made.request.name).filter(|file| file.number == made.request.number) {
            Some(file) => file.mapping = made.mapping,
            None => self.let_go(made.mapping),
        }
    }

    /// The file is about to be cut, replaced or removed: no store may reach it any more.
    pub(crate) fn forget(&mut self, name: FileName) {
        if let Some(file) = self.files.remove(&name) {
            self.touched.retain(|touched| *touched != name);
            self.let_go(file.mapping);
        }
    }

    /// To take 4096 pages apart takes the system a millisecond or three.
    fn let_go(&self, mapping: Option<Mapping>) {
        if let (Some(mapping), Some(trash)) = (mapping, &self.trash) {
            trash.throw(Box::new(mapping));
        }
    }

    #[cfg(test)]
    pub(crate) fn has(&self, name: FileName) -> bool {
        self.files.get(&name).is_some_and(|file| file.mapping.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use kasha_types::{ListVersion, SegmentId, ShardId};

    use super::*;

    const SLOTS: FileName = FileName::Witness { shard: ShardId(1), list: ListVersion(1) };

    /// A mapping that is longer than its file would take stores that are nowhere.
    #[test]
    fn only_the_mapping_that_was_asked_for_last_is_used() {
        let path = std::env::temp_dir().join(format!("kasha-mapped-files-{}", std::process::id()));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let make = |request, len| {
            file.set_len(len).unwrap();
            Made { request, mapping: Mapping::of(&file).unwrap() }
        };
        let mut files = MappedFiles::new(None);
        assert!(files.ask(FileName::Segment { shard: ShardId(1), segment: SegmentId(1) }).is_none());
        let long = files.ask(SLOTS).unwrap();
        assert!(files.ask(SLOTS).is_none(), "once");
        let long = make(long, 8192);
        let is_mapped = long.mapping.is_some();
        files.forget(SLOTS);
        files.put(long);
        assert!(!files.store(SLOTS, 0, b"x"), "forgotten");
        let short = files.ask(SLOTS).unwrap();
        let late = make(ToMap { name: SLOTS, number: short.number - 1 }, 8192);
        files.put(late);
        assert!(!files.store(SLOTS, 0, b"x"), "of an earlier request");
        files.put(make(short, 4096));
        assert_eq!(files.store(SLOTS, 4000, b"within"), is_mapped);
        assert!(!files.store(SLOTS, 4095, b"beyond"));
        files.store(SLOTS, 3000, b"again");
        assert_eq!(files.next_touched(), is_mapped.then_some(SLOTS));
        assert_eq!(files.next_touched(), None);
        files.store(SLOTS, 0, b"more");
        files.forget(SLOTS);
        assert_eq!(files.next_touched(), None, "what is forgotten is nobody's to fsync");
        std::fs::remove_file(&path).unwrap();
    }
}
