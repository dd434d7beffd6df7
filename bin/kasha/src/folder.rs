//! Which nodes the folder of a whole cluster has ([`crate::start`]): what its coordinator knows, and the folders that are there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kasha_coordinator::{Coordinator, State};
use kasha_runtime::{DataDir, FolderDisk, Owner};
use kasha_types::ClusterId;
use kasha_wire::NodeInfo;

use crate::host::default_group;

/// Nodes of a new cluster.
const NODES: u16 = 3;

/// The nodes of a cluster.
pub struct Nodes {
    /// Their numbers.
    pub numbers: Vec<u16>,
    /// Cores of each.
    pub cores: u8,
    /// Members that the coordinator's group is to have.
    pub group: u8,
    /// The nodes whose processes are members of it.
    pub members: BTreeSet<u16>,
    /// Those of them whose folders are not here any more.
    pub lost_members: Vec<u16>,
    /// The node whose process is told what the cluster is to be: the first one, and later the first that is a member.
    pub host: u16,
}

impl Nodes {
    /// Whether a member of the group may be in the process of this node.
    pub fn may_host(&self, node: u16) -> bool {
        node == 1 || self.group > 1 || self.members.contains(&node)
    }
}

/// What the coordinator knows.
struct Known {
    /// The nodes that have registered, and whether the folder of each is here.
    registered: Vec<(u16, bool)>,
    /// So many nodes the cluster was last told to have.
    wanted: u16,
    /// Its shards have their places.
    is_placed: bool,
}

impl Nodes {
    /// The nodes that the cluster in this folder has, or that a new one is to have.
    pub fn of(
        data: &Path,
        nodes: Option<u16>,
        cores: Option<u8>,
        faults: Option<u8>,
        group: Option<u8>,
    ) -> Result<Self> {
        let folder = data.display();
        let folders = node_folders(data)?;
        let any = folders.iter().min_by_key(|(number, _)| *number).map(|(_, owner)| *owner);
        let stored = stored(data, &folders)?;
        match (cores, any) {
            (Some(given), Some(any)) if given != any.cores => bail!(
                "--cores {given}: the nodes in {folder} were made for {0} cores each: leave --cores away, or give --cores {0} \
                 (K0111)",
                any.cores
            ),
            _ => {}
        }
        if stored.is_none() {
            check_unjoined(data, &folders)?;
        }
        let of_cluster = group.or(stored.as_ref().map(State::group_wanted));
        let members: BTreeSet<u16> =
            stored.iter().flat_map(|state| &state.configuration().group).map(|of| of.node.0).collect();
        let lost_members = stored.as_ref().map_or(Ok(Vec::new()), |state| lost_members(data, &folders, state))?;
        let known = stored.map(|state| Known::of(data, &state)).transpose()?;
        let numbers = match choose(known.as_ref(), nodes) {
            Ok(numbers) => numbers,
            Err(had) => bail!(
                "--nodes {}: {folder} has {had} nodes: leave --nodes away, or give --nodes {had} or more (K0405)",
                nodes.unwrap_or_default()
            ),
        };
        let group = of_cluster
            .unwrap_or_else(|| default_group(faults.unwrap_or(1), u16::try_from(numbers.len()).unwrap_or(u16::MAX)));
        let cores = cores.or(any.map(|owner| owner.cores)).unwrap_or(1);
        let mut host = 1;
        for &number in numbers.iter().rev().filter(|number| members.contains(number)) {
            // A folder that was invited only has no files of a member: its process would begin another cluster.
            if stored_in(&DataDir::open(&node_folder(data, number))?)?.is_some() {
                host = number;
            }
        }
        Ok(Self { numbers, cores, group, members, lost_members, host })
    }
}

/// The folder of a node.
pub fn node_folder(data: &Path, node: u16) -> PathBuf {
    data.join(format!("node-{node}"))
}

/// The folders of nodes that are here.
fn node_folders(data: &Path) -> Result<Vec<(u16, Owner)>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(data).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node-")).and_then(|number| number.parse().ok());
        let Some(number) = number else { continue };
        folders.extend(DataDir::owner(&entry.path())?.map(|owner| (number, owner)));
    }
    Ok(folders)
}

/// The cluster that the nodes in this folder have joined; `None`: none of them has joined one yet.
pub fn cluster_in(data: &Path) -> Result<Option<ClusterId>> {
    let joined = node_folders(data)?.into_iter().map(|(_, owner)| owner.cluster);
    Ok(joined.into_iter().find(|&cluster| cluster != ClusterId(0)))
}

/// What the coordinator's files hold, in whichever folders they are: the newest of its group's. `None`: there is no cluster yet,
/// whatever a start left that failed.
fn stored(data: &Path, folders: &[(u16, Owner)]) -> Result<Option<State>> {
    let mut newest: Option<State> = None;
    for &(number, _) in folders {
        let folder = DataDir::open(&node_folder(data, number))?;
        let state = stored_in(&folder)?;
        folder.check_coordinator(state.is_some())?;
        let version = |state: &State| (state.configuration().version, state.applied());
        if state.as_ref().map(version) > newest.as_ref().map(version) {
            newest = state;
        }
    }
    Ok(newest)
}

/// What the files of the coordinator in this folder hold. `None`: there is no cluster yet.
pub fn stored_in(folder: &DataDir) -> Result<Option<State>> {
    let disk = FolderDisk::open(&folder.coordinator())?;
    let cannot_start = || format!("coordinator: cannot start with {}", folder.coordinator().display());
    Coordinator::stored(&disk, folder.cluster()).with_context(cannot_start)
}

/// Without a coordinator's files no folder of a node may be that of a cluster: a new cluster would pass by what the folder holds.
fn check_unjoined(data: &Path, folders: &[(u16, Owner)]) -> Result<()> {
    for (number, owner) in folders {
        if *number != 1 && owner.cluster != ClusterId(0) {
            bail!(
                "the data folder {} belongs to {}, and the files of its coordinator are in none of the folders here: put back the \
                 folders of the nodes that had them, or give a new cluster a folder of its own with --data (K0105)",
                node_folder(data, *number).display(),
                owner.cluster
            );
        }
    }
    Ok(())
}

/// The nodes whose members are gone with their folders. Without a majority of the members nobody can lead (R9.16).
fn lost_members(data: &Path, folders: &[(u16, Owner)], state: &State) -> Result<Vec<u16>> {
    let mut counting = BTreeSet::new();
    for &(number, _) in folders {
        let folder = DataDir::open(&node_folder(data, number))?;
        let disk = FolderDisk::open(&folder.coordinator())?;
        counting.extend(Coordinator::stored_members(&disk, folder.cluster()).context("coordinator: cannot start")?);
    }
    // Of the lists in all folders only those that the newest state knows, and no folder that was only invited.
    let group: Vec<_> = state.configuration().group.iter().filter(|of| counting.contains(&of.member)).collect();
    let (mut lost, mut elsewhere) = (Vec::new(), 0);
    for of in &group {
        let owner = DataDir::owner(&node_folder(data, of.node.0))?;
        match owner.is_some_and(|owner| owner.identity == of.folder) {
            true => {}
            // A process of its own may host it.
            false if !of.address.ip().is_loopback() => elsewhere += 1,
            false => lost.push(of.node.0),
        }
    }
    let here = group.len() - lost.len() - elsewhere;
    if group.len() > 1 && elsewhere == 0 && 2 * here <= group.len() {
        let names: Vec<_> = lost.iter().map(|node| node_folder(data, *node).display().to_string()).collect();
        bail!(
            "of the {} members of the coordinator's group {here} is left, and no majority: the folders {} are gone, or others are in their places. \
             Put back one of them at least, the newest copy of it (K0512)",
            group.len(),
            names.join(" and ")
        );
    }
    Ok(lost)
}

impl Known {
    fn of(data: &Path, state: &State) -> Result<Self> {
        let configuration = state.configuration();
        let mut registered = Vec::new();
        for info in &configuration.nodes {
            registered.push((info.node.0, is_here(data, info)?));
        }
        Ok(Self { registered, wanted: state.nodes_wanted(), is_placed: !configuration.shards.is_empty() })
    }
}

/// Whether the folder of this node is here. Another one under the same number is of no use: the coordinator refuses it (K0502).
fn is_here(data: &Path, info: &NodeInfo) -> Result<bool> {
    let owner = DataDir::owner(&node_folder(data, info.node.0))?;
    let is_here = owner.is_some_and(|owner| owner.identity == info.incarnation.identity());
    if let Some(elsewhere) = info.cores.iter().find(|address| !is_here && !address.ip().is_loopback()) {
        bail!(
            "{} runs at {elsewhere}, and not from {}: start the nodes of this cluster with `kasha server` (K0405)",
            info.node,
            data.display()
        );
    }
    Ok(is_here)
}

/// The numbers of the nodes that run. A node whose folder is gone is replaced: its number is gone with the folder. `Err`: the cluster has
/// so many nodes, which is more than was given.
fn choose(known: Option<&Known>, given: Option<u16>) -> Result<Vec<u16>, usize> {
    let registered = known.map_or(&[][..], |known| &known.registered);
    let mut numbers: Vec<_> = registered.iter().filter(|(_, is_here)| *is_here).map(|(number, _)| *number).collect();
    // A growth that failed is no growth, and while no shard has a place, any number of nodes will do.
    let had = match known {
        Some(known) if known.is_placed => usize::from(known.wanted).min(registered.len()).max(numbers.len()),
        Some(_) | None => 0,
    };
    let wanted = known.map_or(NODES, |known| known.wanted).into();
    let count = given.map_or(if had > 0 { had } else { wanted }, usize::from);
    if count < had {
        return Err(had);
    }
    numbers.truncate(count);
    let replaced = had.saturating_sub(numbers.len());
    let is_free = |number: &u16| registered.iter().all(|(known, _)| known != number);
    for (nth, number) in (1..u16::MAX).filter(is_free).take(count - numbers.len()).enumerate() {
        if nth < replaced {
            tracing::warn!(
                "the folder of a node is not here: node-{number} takes its place, and gets what others hold"
            );
        }
        numbers.push(number);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(here: &[u16], gone: &[u16], wanted: u16) -> Known {
        let here = here.iter().map(|number| (*number, true));
        let registered = here.chain(gone.iter().map(|number| (*number, false))).collect();
        Known { registered, wanted, is_placed: true }
    }

    #[test]
    fn a_cluster_keeps_its_nodes_and_replaces_those_whose_folders_are_gone() {
        assert_eq!(choose(None, None), Ok(vec![1, 2, 3]));
        assert_eq!(choose(None, Some(5)), Ok(vec![1, 2, 3, 4, 5]));
        assert_eq!(choose(Some(&known(&[1, 2, 3], &[], 3)), None), Ok(vec![1, 2, 3]));
        assert_eq!(choose(Some(&known(&[1, 2], &[3], 3)), None), Ok(vec![1, 2, 4]));
        assert_eq!(choose(Some(&known(&[1, 4], &[2, 3], 3)), None), Ok(vec![1, 4, 5]));
        assert_eq!(choose(Some(&known(&[1, 2, 4], &[3], 3)), None), Ok(vec![1, 2, 4]), "nobody is missing");
        assert_eq!(choose(Some(&known(&[1, 3], &[2], 3)), Some(4)), Ok(vec![1, 3, 4, 5]));
        assert_eq!(choose(Some(&known(&[1, 2, 3], &[], 3)), Some(2)), Err(3));
    }

    #[test]
    fn a_start_that_failed_changes_nothing() {
        assert_eq!(choose(Some(&known(&[1, 2, 3], &[], 5)), None), Ok(vec![1, 2, 3]), "two nodes never registered");
        assert_eq!(choose(Some(&known(&[1, 2, 3], &[], 5)), Some(3)), Ok(vec![1, 2, 3]));
        let first = Known { is_placed: false, ..known(&[1, 3], &[], 40) };
        assert_eq!(choose(Some(&first), Some(3)), Ok(vec![1, 3, 2]));
        assert_eq!(choose(Some(&first), Some(1)), Ok(vec![1]));
        assert_eq!(choose(Some(&first), None).map(|numbers| numbers.len()), Ok(40));
    }

    #[test]
    fn there_are_not_more_numbers_than_there_can_be() {
        assert_eq!(choose(None, Some(u16::MAX)).map(|numbers| numbers.len()), Ok(usize::from(u16::MAX) - 1));
    }
}
