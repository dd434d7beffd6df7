//! A node's data folder: whose it is, and that only one process uses it.
//!
//! ```text
//! kasha.lock       locked while a process uses the folder
//! kasha.toml       format, cluster, node, cores, identity, number of starts, whether the coordinator began here
//! core-00/ …       each event loop's files
//! coordinator/     the coordinator's files, if it runs here
//! ```

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kasha_types::{ClusterId, Incarnation, NodeId};

use crate::files::{FILE_MODE, StorageError, failed, make_folders, replace, sync_folder};
use crate::random_u64;

const LOCK: &str = "kasha.lock";
const MARKER: &str = "kasha.toml";
const FORMAT: u64 = 3;
/// The marker's line in a folder where a coordinator has begun.
const COORDINATOR: &str = "coordinator = true\n";

/// Why a data folder cannot be used. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process has locked the folder.
    #[error(
        "the data folder {} is used by another process: stop that one first, or give this one a folder of its own \
         (K0101)",
        path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds something else.
    #[error(
        "{} is not a data folder of Kasha's, since {why}: name an empty or new folder, or the right one (K0102)",
        path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Why this is no data folder.
        why: String,
    },
    /// The folder belongs to another node.
    #[error(
        "the data folder {} belongs to {found}, but this process was started as {wanted}: start it as {found}, or \
         give it its own folder, as two nodes must never share one (K0103)",
        path.display()
    )]
    OtherNode {
        /// The folder.
        path: PathBuf,
        /// The node that the folder belongs to.
        found: NodeId,
        /// The node that this process was started as.
        wanted: NodeId,
    },
    /// Made for another number of cores: a shard lies in the folder of its core, and would not be found in another's.
    #[error(
        "the data folder {} was made for {found} cores, but this process was started with {wanted}: give as many addresses \
         as before, or give the node a new number and an empty folder (K0111)",
        path.display()
    )]
    OtherCores {
        /// The folder.
        path: PathBuf,
        /// The number of cores that the folder was made for.
        found: u8,
        /// The number of cores that this process was started with.
        wanted: u8,
    },
    /// Another version of Kasha made the folder.
    #[error(
        "the data folder {} has format {found}, but this version of Kasha reads format {FORMAT}: use the version that \
         wrote it; or, if the other nodes have format {FORMAT}, give this node a new number and an empty folder, and it copies \
         its data from them (K0104)",
        path.display()
    )]
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// The folder's format.
        found: u64,
    },
    /// The folder belongs to another cluster.
    #[error(
        "the data folder {} belongs to {found}, not to {wanted}: check the addresses that this node was given, or give \
         it an empty folder (K0105)",
        path.display()
    )]
    OtherCluster {
        /// The folder.
        path: PathBuf,
        /// The cluster that the folder belongs to.
        found: ClusterId,
        /// The cluster that this node was to join.
        wanted: ClusterId,
    },
    /// The coordinator's files are gone. A new coordinator in their place would know nothing of the cluster, and a member of a group nothing
    /// of what it has promised.
    #[error(
        "the files of the coordinator are gone from {}. If its group has other members, give up this node's whole folder: move it away \
         and start again (kasha start), or start a node with a new number and an empty folder (kasha server). If it was the only \
         member, put back the newest copy of these files (never an older one, if you have that). Nothing was changed (K0117)",
        path.display()
    )]
    CoordinatorGone {
        /// The folder of the coordinator's files.
        path: PathBuf,
    },
    /// The folder could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marker {
    cluster: ClusterId,
    node: NodeId,
    cores: u8,
    identity: u32,
    starts: u32,
    /// A coordinator has begun in this folder: its files are there, or something is wrong (R9.13).
    coordinator: bool,
}

/// Whose folder it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster that the node has joined; 0 if there is none yet.
    pub cluster: ClusterId,
    /// The node's cores.
    pub cores: u8,
    /// What every [`Incarnation`] of the folder has in common.
    pub identity: u32,
}

/// A node's data folder, locked for this process until dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    marker: Marker,
    _lock: File,
}

impl DataDir {
    /// Opens a node's folder, or makes a new one in a place that is empty or does not exist, and counts this start,
    /// durably: every [`DataDir::incarnation`] of a folder is greater than those before.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn open_or_create(path: &Path, node: NodeId, cores: u8) -> Result<Self, DataDirError> {
        make_folders(path)?;
        let empty = is_empty(path)?;
        if !empty && !path.join(MARKER).exists() {
            let why = format!("it holds other files and no {MARKER}");
            return Err(DataDirError::Foreign { path: path.to_owned(), why });
        }
        let lock = take_lock(path)?;
        let found = match fs::read_to_string(path.join(MARKER)) {
            Ok(text) => Marker::parse(path, &text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let identity = u32::try_from(random_u64() >> 32).expect("32 bits");
                Marker { cluster: ClusterId(0), node, cores, identity, starts: 0, coordinator: false }
            }
            Err(error) => return Err(failed("read", &path.join(MARKER))(error).into()),
        };
        if found.node != node {
            return Err(DataDirError::OtherNode { path: path.to_owned(), found: found.node, wanted: node });
        }
        if found.cores != cores {
            return Err(DataDirError::OtherCores { path: path.to_owned(), found: found.cores, wanted: cores });
        }
        let Some(starts) = found.starts.checked_add(1) else {
            let why = format!("its {MARKER} counts as many starts as there can be");
            return Err(DataDirError::Foreign { path: path.to_owned(), why });
        };
        let marker = Marker { starts, ..found };
        let this = Self { path: path.to_owned(), marker, _lock: lock };
        this.save()?;
        if let Some(parent) = path.canonicalize().ok().as_deref().and_then(Path::parent) {
            sync_folder(parent)?;
        }
        Ok(this)
    }

    /// Whose folder it is; `None`: it is no node's yet. Locks nothing.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn owner(path: &Path) -> Result<Option<Owner>, DataDirError> {
        match fs::read_to_string(path.join(MARKER)) {
            Ok(text) => {
                let Marker { cluster, cores, identity, .. } = Marker::parse(path, &text)?;
                Ok(Some(Owner { cluster, cores, identity }))
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(failed("read", &path.join(MARKER))(error).into()),
        }
    }

    /// Opens an existing folder as whatever node it belongs to, without counting a start: for tools.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let text = match fs::read_to_string(path.join(MARKER)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let why = format!("it has no {MARKER}");
                return Err(DataDirError::Foreign { path: path.to_owned(), why });
            }
            Err(error) => return Err(failed("read", &path.join(MARKER))(error).into()),
        };
        let marker = Marker::parse(path, &text)?;
        Ok(Self { path: path.to_owned(), marker, _lock: take_lock(path)? })
    }

    /// The node that the folder belongs to.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.marker.node
    }

    /// The cluster that the node has joined; 0 if there is none yet.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.marker.cluster
    }

    /// Joins a cluster, durably. Joining the same one again changes nothing.
    ///
    /// # Errors
    /// If the node has joined another cluster, or the disk fails.
    pub fn join(&mut self, cluster: ClusterId) -> Result<(), DataDirError> {
        let found = self.marker.cluster;
        if found == cluster {
            return Ok(());
        }
        if found != ClusterId(0) {
            return Err(DataDirError::OtherCluster { path: self.path.clone(), found, wanted: cluster });
        }
        self.marker.cluster = cluster;
        Ok(self.save()?)
    }

    /// A coordinator has begun here, and its files are on the disk: durably noted. From now on a start without them is
    /// refused ([`DataDir::check_coordinator`]).
    ///
    /// # Errors
    /// If the disk fails.
    pub fn note_coordinator(&mut self) -> Result<(), DataDirError> {
        if !self.marker.coordinator {
            self.marker.coordinator = true;
            self.save()?;
        }
        Ok(())
    }

    /// Whether the coordinator that begun here may start. `has_files`: its files hold a cluster.
    ///
    /// # Errors
    /// If it has begun, and its files are gone.
    pub fn check_coordinator(&self, has_files: bool) -> Result<(), DataDirError> {
        match self.marker.coordinator && !has_files {
            true => Err(DataDirError::CoordinatorGone { path: self.coordinator() }),
            false => Ok(()),
        }
    }

    /// The identity of this start of the process.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation::new(self.marker.starts, self.marker.identity)
    }

    /// The coordinator refused this start, because it knows a later one, or another process of the same number: this folder
    /// is an older copy. Its next starts, which count on from here, would pass for new ones some day; so they count from 0
    /// again. A folder that another process has opened since is that one's, and stays as it is.
    ///
    /// # Errors
    /// If the marker cannot be read or written.
    pub fn set_back(&self) -> Result<(), DataDirError> {
        let text = fs::read_to_string(self.path.join(MARKER)).map_err(failed("read", &self.path.join(MARKER)))?;
        if Marker::parse(&self.path, &text)? == self.marker {
            save(&self.path, Marker { starts: 0, ..self.marker })?;
        }
        Ok(())
    }

    /// The folder of an event loop's files.
    #[must_use]
    pub fn core(&self, core: u8) -> PathBuf {
        self.path.join(format!("core-{core:02}"))
    }

    /// The folder of the coordinator's files.
    #[must_use]
    pub fn coordinator(&self) -> PathBuf {
        self.path.join("coordinator")
    }

    fn save(&self) -> Result<(), StorageError> {
        save(&self.path, self.marker)
    }
}

fn save(path: &Path, marker: Marker) -> Result<(), StorageError> {
    replace(path, &path.join(MARKER), marker.format().as_bytes())
}

/// Makes the folder that the folders of several nodes are to be in.
///
/// # Errors
/// If it cannot be made.
pub fn make_folder_of_nodes(path: &Path) -> Result<(), DataDirError> {
    Ok(make_folders(path)?)
}

/// What is in a folder that a whole cluster is to be in, and is not Kasha's: folders of nodes are, and what file systems put into
/// their root. `None`: nothing, or there is no such folder.
///
/// # Errors
/// If the folder cannot be read.
pub fn foreign_in(path: &Path) -> Result<Option<String>, DataDirError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("list", path)(error).into()),
    };
    let is_ours = |name: &str| {
        name == "lost+found" || name.strip_prefix("node-").is_some_and(|number| number.parse::<u16>().is_ok())
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| !is_ours(name)).min())
}

fn is_empty(path: &Path) -> Result<bool, StorageError> {
    let leftover = format!("{MARKER}{}", crate::paths::REPLACEMENT);
    let mut entries = fs::read_dir(path).map_err(failed("list", path))?.flatten();
    Ok(entries.all(|entry| {
        let name = entry.file_name();
        // What a start that was killed early leaves, and what file systems put into their root.
        name == LOCK || name == leftover.as_str() || name == "lost+found"
    }))
}

fn take_lock(path: &Path) -> Result<File, DataDirError> {
    let file = path.join(LOCK);
    let lock = File::options()
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .read(true)
        .write(true)
        .open(&file)
        .map_err(failed("open", &file))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(DataDirError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed("lock", &file)(error).into()),
    }
}

impl Marker {
    fn format(&self) -> String {
        let mut text = String::from("# A data folder of Kasha's. Written at each start; do not edit.\n");
        let Self { cluster, node, cores, identity, starts, coordinator } = self;
        writeln!(text, "format = {FORMAT}\ncluster = {}\nnode = {}", cluster.0, node.0).expect("to memory");
        writeln!(text, "cores = {cores}\nidentity = {identity}").expect("to memory");
        // Not the last line: a marker whose end is cut off must not pass for one without it.
        if *coordinator {
            text.push_str(COORDINATOR);
        }
        writeln!(text, "starts = {starts}").expect("to memory");
        text
    }

    fn parse(path: &Path, text: &str) -> Result<Self, DataDirError> {
        let foreign = |why: String| DataDirError::Foreign { path: path.to_owned(), why };
        let field = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| key.trim() == name)
                .and_then(|(_, value)| value.trim().parse::<u64>().ok())
                .ok_or_else(|| foreign(format!("its {MARKER} has no proper line \"{name} = …\"")))
        };
        let small = |name: &str| -> Result<u32, DataDirError> {
            u32::try_from(field(name)?).map_err(|_| foreign(format!("\"{name}\" in its {MARKER} is too large")))
        };
        let format = field("format")?;
        if format != FORMAT {
            return Err(DataDirError::OtherFormat { path: path.to_owned(), found: format });
        }
        let node =
            u16::try_from(field("node")?).map_err(|_| foreign(format!("\"node\" in its {MARKER} is too large")))?;
        let cores =
            u8::try_from(field("cores")?).map_err(|_| foreign(format!("\"cores\" in its {MARKER} is too large")))?;
        let marker = Self {
            cluster: ClusterId(field("cluster")?),
            node: NodeId(node),
            cores,
            identity: small("identity")?,
            starts: small("starts")?,
            coordinator: said(text).any(|line| line == COORDINATOR),
        };
        // No checksum guards it, and "starts = 12" without its end is a start that was before.
        if !said(text).eq(said(&marker.format())) {
            return Err(foreign(format!("its {MARKER} is not as it was written")));
        }
        Ok(marker)
    }
}

/// What a marker's text says: its lines with their ends, without comments.
fn said(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter(|line| !line.starts_with('#') && *line != "\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("kasha-data-dir-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn every_start_is_greater_and_the_folder_has_one_user() {
        let path = fresh("starts");
        let mut first = DataDir::open_or_create(&path, NodeId(3), 2).unwrap();
        assert!(matches!(DataDir::open_or_create(&path, NodeId(3), 2), Err(DataDirError::InUse { .. })));
        assert!(matches!(DataDir::open(&path), Err(DataDirError::InUse { .. })));
        first.join(ClusterId(77)).unwrap();
        let incarnation = first.incarnation();
        drop(first);
        let mut second = DataDir::open_or_create(&path, NodeId(3), 2).unwrap();
        assert!(second.incarnation() > incarnation);
        assert_eq!(second.incarnation().identity(), incarnation.identity(), "the folder's identity");
        assert_eq!(second.cluster(), ClusterId(77));
        second.join(ClusterId(77)).unwrap();
        assert!(matches!(second.join(ClusterId(78)), Err(DataDirError::OtherCluster { .. })));
        fs::remove_dir_all(&path).unwrap();
    }

    /// Found from outside: without the coordinator's files a new coordinator began, and the cluster was empty.
    #[test]
    fn r9_13_a_folder_remembers_that_a_coordinator_began_in_it() {
        let path = fresh("coordinator");
        let mut first = DataDir::open_or_create(&path, NodeId(3), 2).unwrap();
        first.join(ClusterId(77)).unwrap();
        first.check_coordinator(false).expect("none has begun");
        first.note_coordinator().unwrap();
        first.note_coordinator().unwrap();
        drop(first);
        for _ in 0..3 {
            let again = DataDir::open_or_create(&path, NodeId(3), 2).unwrap();
            again.check_coordinator(true).unwrap();
            let error = again.check_coordinator(false).unwrap_err();
            assert!(error.to_string().contains("K0117") && error.to_string().contains("/coordinator"), "{error}");
        }
        let marker = fs::read_to_string(path.join(MARKER)).unwrap();
        fs::write(path.join(MARKER), marker.replace("coordinator = true", "coordinator = perhaps")).unwrap();
        assert!(
            matches!(DataDir::open(&path), Err(DataDirError::Foreign { .. })),
            "what cannot be read is not left out"
        );
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_folder_that_is_set_back_never_counts_beyond_what_was_refused() {
        let path = fresh("set-back");
        drop(DataDir::open_or_create(&path, NodeId(3), 2).unwrap());
        for _ in 0..3 {
            let copy = DataDir::open_or_create(&path, NodeId(3), 2).unwrap();
            assert!(copy.incarnation().starts() <= 2);
            copy.set_back().unwrap();
        }
        let zombie = DataDir::open_or_create(&path, NodeId(3), 2).unwrap();
        let successor = Marker { starts: 9, ..zombie.marker };
        save(&path, successor).unwrap();
        zombie.set_back().unwrap();
        drop(zombie);
        assert_eq!(
            DataDir::open_or_create(&path, NodeId(3), 2).unwrap().incarnation().starts(),
            10,
            "it is the successor's"
        );
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn wrong_folders_are_refused_with_what_to_do() {
        let path = fresh("wrong");
        assert!(matches!(DataDir::open(&path), Err(DataDirError::Foreign { .. })));
        drop(DataDir::open_or_create(&path, NodeId(3), 2).unwrap());
        let error = DataDir::open_or_create(&path, NodeId(4), 2).unwrap_err();
        assert!(matches!(error, DataDirError::OtherNode { .. }), "{error}");
        let error = DataDir::open_or_create(&path, NodeId(3), 1).unwrap_err();
        assert!(matches!(error, DataDirError::OtherCores { found: 2, wanted: 1, .. }), "{error}");
        assert_eq!(DataDir::open(&path).unwrap().node(), NodeId(3));
        let marker = fs::read_to_string(path.join(MARKER)).unwrap();
        fs::write(path.join(MARKER), marker.replace(&format!("format = {FORMAT}"), "format = 9")).unwrap();
        let error = DataDir::open_or_create(&path, NodeId(3), 2).unwrap_err();
        assert!(matches!(error, DataDirError::OtherFormat { found: 9, .. }), "{error}");
        fs::write(path.join(MARKER), "colour = green").unwrap();
        let error = DataDir::open_or_create(&path, NodeId(3), 2).unwrap_err();
        assert!(matches!(error, DataDirError::Foreign { .. }), "{error}");
        fs::remove_file(path.join(MARKER)).unwrap();
        fs::write(path.join("thesis.txt"), "mine").unwrap();
        let error = DataDir::open_or_create(&path, NodeId(3), 2).unwrap_err();
        assert!(matches!(error, DataDirError::Foreign { .. }), "{error}");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_start_that_was_killed_early_does_no_harm() {
        let path = fresh("early");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(LOCK), "").unwrap();
        fs::write(path.join(format!("{MARKER}.new")), "form").unwrap();
        assert_eq!(DataDir::open_or_create(&path, NodeId(1), 2).unwrap().node(), NodeId(1));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn the_last_start_there_can_be_is_the_last() {
        let path = fresh("last");
        fs::create_dir_all(&path).unwrap();
        let marker = Marker {
            cluster: ClusterId(7),
            node: NodeId(3),
            cores: 2,
            identity: 9,
            starts: u32::MAX - 1,
            coordinator: true,
        };
        fs::write(path.join(MARKER), marker.format()).unwrap();
        let last = DataDir::open_or_create(&path, NodeId(3), 2).unwrap();
        assert_eq!(last.incarnation().starts(), u32::MAX);
        drop(last);
        let error = DataDir::open_or_create(&path, NodeId(3), 2).unwrap_err();
        assert!(matches!(error, DataDirError::Foreign { .. }), "{error}");
        fs::remove_dir_all(&path).unwrap();
    }

    fn any_marker() -> impl Strategy<Value = Marker> {
        any::<(u64, u16, u8, u32, u32, bool)>().prop_map(|(cluster, node, cores, identity, starts, coordinator)| {
            Marker { cluster: ClusterId(cluster), node: NodeId(node), cores, identity, starts, coordinator }
        })
    }

    fn parse(text: &str) -> Option<Marker> {
        Marker::parse(Path::new("folder"), text).ok()
    }

    proptest! {
        #[test]
        fn a_marker_is_read_as_it_was_written_and_no_part_of_it_is(marker in any_marker()) {
            let text = marker.format();
            prop_assert_eq!(parse(&text), Some(marker));
            let (_, fields) = text.split_once('\n').unwrap();
            prop_assert_eq!(parse(&format!("\n{fields}# mine\n")), Some(marker), "comments say nothing");
            for len in 0..text.len() {
                prop_assert_eq!(parse(&text[..len]), None, "{:?}", &text[..len]);
            }
        }

        /// What stands in the file may be any text, and often is nearly a marker.
        #[test]
        fn a_text_is_a_marker_of_which_it_is_the_text_or_is_refused(
            marker in any_marker(),
            changes in proptest::collection::vec((any::<Index>(), 0..3_usize, "[0-9=# \\n+-]{0,2}|cores|.{0,9}"), 0..3),
        ) {
            let mut text: Vec<char> = marker.format().chars().collect();
            for (at, removed, put) in changes {
                let at = at.index(text.len() + 1);
                text.splice(at..(at + removed).min(text.len()), put.chars());
            }
            let text: String = text.into_iter().collect();
            if let Some(read) = parse(&text) {
                let lines = |text: &str| -> Vec<String> {
                    let lines = text.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#'));
                    lines.map(str::to_owned).collect()
                };
                prop_assert_eq!(lines(&read.format()), lines(&text), "but for comments");
            }
        }
    }
}
