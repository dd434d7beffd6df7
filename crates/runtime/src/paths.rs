//! Where a core's files lie in its folder.
//!
//! ```text
//! core.meta
//! coordinator-00000001.log
//! journal-0.log
//! shard-0003/replica.meta
//! shard-0003/segment-00000007.log
//! shard-0003/witness-0000000000000002.slots
//! shard-0003/witness-0000000000000002.mode
//! ```

use std::path::{Path, PathBuf};

use kasha_machine::FileName;
use kasha_types::{ListVersion, SegmentId, ShardId};

/// What a replacement is called until it takes its file's name.
pub(crate) const REPLACEMENT: &str = ".new";

/// What stands behind the name of a removed file whose content is still to go; a number follows.
pub(crate) const GONE: &str = ".gone-";

/// What a file is called once it is removed, if it is the one of this number.
pub(crate) fn gone(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("{GONE}{number}"));
    PathBuf::from(name)
}

/// Whether a file of this name is one of ours that was removed.
pub(crate) fn is_gone(name: &str) -> bool {
    name.rsplit_once(GONE).is_some_and(|(_, number)| number.parse::<u64>().is_ok())
}

/// A file's folder below the core's, if it has one, and its own name.
pub(crate) fn parts(file: FileName) -> (Option<String>, String) {
    let of = |shard: ShardId| Some(format!("shard-{:04}", shard.0));
    match file {
        FileName::Segment { shard, segment } => (of(shard), format!("segment-{:08}.log", segment.0)),
        FileName::Replica(shard) => (of(shard), "replica.meta".to_owned()),
        FileName::Witness { shard, list } => (of(shard), format!("witness-{:016}.slots", list.0)),
        FileName::WitnessMode { shard, list } => (of(shard), format!("witness-{:016}.mode", list.0)),
        FileName::Core => (None, "core.meta".to_owned()),
        FileName::Told => (None, "told.meta".to_owned()),
        FileName::Coordinator(number) => (None, format!("coordinator-{number:08}.log")),
        FileName::Journal(number) => (None, format!("journal-{number}.log")),
    }
}

/// A file's folder, and its path.
pub(crate) fn path(root: &Path, file: FileName) -> (PathBuf, PathBuf) {
    let (folder, name) = parts(file);
    let folder = folder.map_or_else(|| root.to_owned(), |folder| root.join(folder));
    let path = folder.join(name);
    (folder, path)
}

/// The shard whose folder this is.
pub(crate) fn shard(folder: &str) -> Option<ShardId> {
    let shard = ShardId(folder.strip_prefix("shard-")?.parse().ok()?);
    (parts(FileName::Replica(shard)).0.as_deref() == Some(folder)).then_some(shard)
}

/// The file of this name. A name that we would write otherwise ("segment-7.log") is not ours.
pub(crate) fn file(shard: Option<ShardId>, name: &str) -> Option<FileName> {
    fn number<T: std::str::FromStr>(name: &str, prefix: &str, suffix: &str) -> Option<T> {
        name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()
    }
    let file = match shard {
        None if name == "core.meta" => FileName::Core,
        None if name == "told.meta" => FileName::Told,
        None => match number(name, "journal-", ".log") {
            Some(file) => FileName::Journal(file),
            None => FileName::Coordinator(number(name, "coordinator-", ".log")?),
        },
        Some(shard) if name == "replica.meta" => FileName::Replica(shard),
        Some(shard) => {
            if let Some(segment) = number(name, "segment-", ".log") {
                FileName::Segment { shard, segment: SegmentId(segment) }
            } else if let Some(list) = number(name, "witness-", ".slots") {
                FileName::Witness { shard, list: ListVersion(list) }
            } else {
                FileName::WitnessMode { shard, list: ListVersion(number(name, "witness-", ".mode")?) }
            }
        }
    };
    (parts(file).1 == name).then_some(file)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_file() -> impl Strategy<Value = FileName> {
        (any::<u16>(), any::<u32>(), any::<u64>(), 0..8).prop_map(|(shard, small, large, which)| {
            let (shard, list) = (ShardId(shard), ListVersion(large));
            match which {
                0 => FileName::Segment { shard, segment: SegmentId(small) },
                1 => FileName::Replica(shard),
                2 => FileName::Witness { shard, list },
                3 => FileName::WitnessMode { shard, list },
                4 => FileName::Core,
                5 => FileName::Told,
                6 => FileName::Coordinator(small),
                _ => FileName::Journal(small.to_le_bytes()[0]),
            }
        })
    }

    proptest! {
        #[test]
        fn names_come_back(name in any_file()) {
            let (folder, own) = parts(name);
            let of = folder.map(|folder| shard(&folder).unwrap());
            prop_assert_eq!(file(of, &own), Some(name));
        }

        #[test]
        fn arbitrary_names_never_panic(name in ".{0,40}") {
            let _ = (shard(&name), file(None, &name), file(Some(ShardId(1)), &name));
        }
    }

    #[test]
    fn names_are_as_documented_and_others_foreign() {
        let root = Path::new("d");
        let segment = FileName::Segment { shard: ShardId(3), segment: SegmentId(7) };
        assert_eq!(path(root, segment).1, Path::new("d/shard-0003/segment-00000007.log"));
        let slots = FileName::Witness { shard: ShardId(3), list: ListVersion(2) };
        assert_eq!(path(root, slots).1, Path::new("d/shard-0003/witness-0000000000000002.slots"));
        assert_eq!(path(root, FileName::Coordinator(1)).1, Path::new("d/coordinator-00000001.log"));
        assert_eq!(path(root, FileName::Journal(1)).1, Path::new("d/journal-1.log"));
        for foreign in ["segment-7.log", "segment-+0000007.log", "segment-00000007.log~", "core.meta"] {
            assert_eq!(file(Some(ShardId(3)), foreign), None, "{foreign}");
        }
        assert_eq!(shard("shard-3"), None);
        let removed = gone(&path(root, segment).1, 12);
        assert_eq!(removed, Path::new("d/shard-0003/segment-00000007.log.gone-12"));
        assert!(is_gone("segment-00000007.log.gone-12") && !is_gone("segment-00000007.log") && !is_gone("x.gone-y"));
    }
}
