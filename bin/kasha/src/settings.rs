//! The settings of a server: one row each. A row is a flag, an environment variable and a setting of the file, and says whose
//! setting it is.

use std::path::PathBuf;

use clap::Args;
use kasha_wire::Durability;
use serde::Deserialize;

use crate::duration::Written;
use crate::place::Place;

/// Whose setting it is. The page for operators must say the same.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One process's: each start may give another value.
    Process,
    /// The cluster's: it is taken from the process that begins the cluster. Later the cluster has it.
    Cluster,
}

/// A value that may be given in one place or in another.
trait Given {
    fn or_given(self, other: Self) -> Self;
}

impl<T> Given for Option<T> {
    fn or_given(self, other: Self) -> Self {
        self.or(other)
    }
}

impl<T> Given for Vec<T> {
    fn or_given(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }
}

impl Given for bool {
    fn or_given(self, other: Self) -> Self {
        self || other
    }
}

macro_rules! settings {
    ($($scope:ident $(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// What was given.
        #[derive(Args, Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings { $($(#[$meta])* pub $name: $type),* }

        impl Settings {
            /// The names of all settings, as a file has them, and whose they are.
            #[cfg(test)]
            pub const ALL: &[(&str, Scope)] = &[$((stringify!($name), Scope::$scope)),*];

            /// What was given here, or else there.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self { $($name: self.$name.or_given(other.$name)),* }
            }
        }
    };
}

settings! {
    Process
    /// This node's number, from 1; it belongs to the data folder for good.
    #[arg(long, env = "KASHA_NODE")]
    node: Option<u16>,
    Process
    /// This node's data folder.
    #[arg(long, env = "KASHA_DATA")]
    data: Option<PathBuf>,
    Process
    /// The address of each core, host:port; none for a process that only hosts a member of the coordinator's group.
    #[arg(long, env = "KASHA_LISTEN", value_delimiter = ',')]
    listen: Vec<Place>,
    Process
    /// The same addresses as other machines reach them, if they differ.
    #[arg(long, env = "KASHA_ADVERTISE", value_delimiter = ',')]
    advertise: Vec<Place>,
    Process
    /// Where the coordinator is found: the address of one member of its group, or of several.
    #[arg(long, env = "KASHA_COORDINATOR", value_delimiter = ',')]
    #[serde(deserialize_with = "places")]
    coordinator: Vec<Place>,
    Process
    /// Begin a new cluster, with the first member of the coordinator's group in this process. One process does.
    #[arg(long, env = "KASHA_HOST_COORDINATOR")]
    host_coordinator: bool,
    Process
    /// Where this process listens as a member of the coordinator's group, or as one that may become a member; by default the first address
    /// of --coordinator with --host-coordinator, else the first of --listen with its port + 1000.
    #[arg(long, env = "KASHA_CONTROL")]
    control: Option<Place>,
    Process
    /// Where this node speaks the Redis protocol, host:port.
    #[arg(long, env = "KASHA_REDIS")]
    redis: Option<Place>,
    Process
    /// The password that programs have to say there (`AUTH`); better in the environment or in the file, since others see command lines.
    #[arg(long, env = "KASHA_REDIS_PASSWORD", hide_env_values = true)]
    redis_password: Option<String>,
    Cluster
    /// Members of the coordinator's group: 1, 3 or 5 (of a new cluster; with --host-coordinator).
    #[arg(long, env = "KASHA_GROUP")]
    group: Option<u8>,
    Cluster
    /// Nodes that must be there before a new cluster begins (with --host-coordinator).
    #[arg(long, env = "KASHA_NODES")]
    nodes: Option<u16>,
    Cluster
    /// Shards of a new cluster (with --host-coordinator).
    #[arg(long, env = "KASHA_SHARDS")]
    shards: Option<u16>,
    Cluster
    /// Crashes that every shard of a new cluster survives (with --host-coordinator).
    #[arg(long, env = "KASHA_FAULTS")]
    faults: Option<u8>,
    Cluster
    /// `replicated` or `fsync`, of a new cluster (with --host-coordinator).
    #[arg(long, env = "KASHA_DURABILITY", value_parser = crate::host::parse_durability)]
    #[serde(deserialize_with = "durability")]
    durability: Option<Durability>,
    Cluster
    /// The smallest number of members beside the primary with which a new cluster accepts updates; default: `faults` (with
    /// --host-coordinator). Later: kasha admin coordinator min-backups.
    #[arg(long, env = "KASHA_MIN_BACKUPS")]
    min_backups: Option<u8>,
    Process
    /// Memory for the log of each replica, in MiB.
    #[arg(long, env = "KASHA_MEMORY_MIB")]
    memory_mib: Option<u64>,
    Process
    /// How long a new cluster waits for a node whose process died: 10ms to 1m. Later: kasha admin coordinator lease.
    #[arg(long, env = "KASHA_LEASE")]
    lease: Option<Written>,
    Process
    /// How long a loop polls before it blocks; by default 15us, or 0 where loops outnumber processors.
    #[arg(long, env = "KASHA_SPIN")]
    spin: Option<Written>,
    Process
    /// How long written bytes may stay unflushed under `replicated`.
    #[arg(long, env = "KASHA_FLUSH_INTERVAL")]
    flush_interval: Option<Written>,
}

fn durability<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Durability>, D::Error> {
    let text = String::deserialize(deserializer)?;
    crate::host::parse_durability(&text).map(Some).map_err(serde::de::Error::custom)
}

/// One address, or a list of them.
fn places<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Place>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        One(String),
        Several(Vec<String>),
    }
    let texts = match Given::deserialize(deserializer)? {
        Given::One(text) => text.split(',').map(str::to_owned).collect(),
        Given::Several(texts) => texts,
    };
    texts.into_iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting without its row there, or without its scope, is found here.
    #[test]
    fn the_page_has_each_setting_and_says_whose_it_is() {
        let page = include_str!("../../../docs/running.md");
        for (name, scope) in Settings::ALL {
            let mut rows = page.lines().filter(|line| line.starts_with("| `"));
            let row =
                rows.find(|line| line.split('|').nth(1).is_some_and(|names| names.contains(&format!("`{name}`"))));
            let row = row.unwrap_or_else(|| panic!("docs/running.md has no row of {name}"));
            let is_cluster = row.contains("of the process that begins the cluster");
            assert_eq!(is_cluster, *scope == Scope::Cluster, "{name}: {row}");
        }
    }

    #[test]
    fn what_is_given_first_wins() {
        let file: Settings =
            toml::from_str("node = 2\nlease = \"3s\"\nlisten = [\"a:1\"]\nhost_coordinator = true").unwrap();
        let flags = Settings { node: Some(1), ..Settings::default() };
        let both = flags.or(file);
        assert_eq!((both.node, both.listen.len(), both.host_coordinator), (Some(1), 1, true));
        assert_eq!(both.lease.map(|lease| lease.0), Some(std::time::Duration::from_secs(3)));
        assert!(toml::from_str::<Settings>("nodde = 2").unwrap_err().to_string().contains("unknown field"));
    }
}
