//! Dependencies point one way (DESIGN section 3): first `types` and `commands`, then `machine` and `wire`, then the protocols, which
//! never depend on one another (but the coordinator's log is `viewstamped`), then the crates that compose them.

use crate::tidy::problem::Problem;
use crate::workspace::Package;

enum Allowed {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

use Allowed::{AllBut, Only};

/// Each folder under `crates/`, and the crates of the workspace that it may use. Test code is held to the same table.
const TABLE: &[(&str, Allowed)] = &[
    ("types", Only(&[])),
    ("commands", Only(&[])),
    ("machine", Only(&["types"])),
    ("wire", Only(&["types", "commands"])),
    ("log", Only(&["types"])),
    ("exactly_once", Only(&["types"])),
    ("witness", Only(&["types"])),
    ("distributed", Only(&["types"])),
    ("replication", Only(&["types", "machine", "wire", "log"])),
    ("store", Only(&["types", "commands", "wire", "log", "reference"])),
    ("coordinator", Only(&["types", "machine", "wire", "viewstamped"])),
    ("viewstamped", Only(&["types", "machine"])),
    (
        "node",
        Only(&["types", "machine", "wire", "log", "exactly_once", "witness", "replication", "store", "distributed"]),
    ),
    ("client", Only(&["types", "machine", "wire", "exactly_once", "witness"])),
    ("gateway", Only(&["types", "commands", "machine", "wire", "client"])),
    ("runtime", Only(&["types", "machine", "wire"])),
    ("reference", Only(&["types", "wire"])),
    ("netlab", Only(&["machine"])),
    ("properties", AllBut(&["runtime", "sim", "netlab", "bench", "bin/kasha", "tests/process", "xtask"])),
    ("sim", AllBut(&["bench", "netlab", "runtime", "bin/kasha", "xtask"])),
    ("bench", AllBut(&["bin/kasha", "xtask"])),
];

/// The crates whose code must be deterministic throughout. Of the client, only a part must (see `determinism`).
pub(super) const PROTOCOLS: &[&str] = &[
    "types",
    "commands",
    "machine",
    "wire",
    "log",
    "exactly_once",
    "witness",
    "distributed",
    "replication",
    "store",
    "coordinator",
    "viewstamped",
    "node",
    "gateway",
];

/// External crates that give access to sockets, files, clocks, threads or randomness.
const SHELL_ONLY: &[&str] = &["getrandom", "libc", "mio", "rand", "rustix", "socket2", "tokio"];

pub(super) fn check<'a>(packages: &[Package], text_of: impl Fn(&str) -> &'a str, problems: &mut Vec<Problem>) {
    let key = |package: &Package| {
        let folder = package.folder.as_str();
        folder.strip_prefix("crates/").unwrap_or(folder).to_owned()
    };
    for package in packages {
        let Some(name) = package.folder.strip_prefix("crates/") else { continue };
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some((_, allowed)) = TABLE.iter().find(|(listed, _)| *listed == name) else {
            let text = "the crate has no place in the order of dependencies; add it to xtask/src/tidy/direction.rs";
            problems.push(Problem::new(&manifest, 1, text));
            continue;
        };
        for dependency in &package.dependencies {
            let names_it = |line: &str| line.split(['.', ' ', '=']).next() == Some(dependency.name.as_str());
            let line = 1 + text_of(&manifest).lines().position(names_it).unwrap_or(0);
            let mut report = |text: String| problems.push(Problem::new(&manifest, line, text));
            if let Some(used) = packages.iter().find(|other| other.name == dependency.name).map(key) {
                let is_allowed = match allowed {
                    Only(list) => list.contains(&used.as_str()),
                    AllBut(list) => !list.contains(&used.as_str()),
                };
                if !is_allowed {
                    report(format!(
                        "{name} must not depend on {used}: that is against their order; let the crate above carry the value"
                    ));
                }
            } else if !dependency.is_dev && PROTOCOLS.contains(&name) && SHELL_ONLY.contains(&dependency.name.as_str())
            {
                let other = &dependency.name;
                report(format!(
                    "{name} must not depend on {other}: protocols are deterministic; make it an input or an effect"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, folder: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependency = |&(name, is_dev): &(&str, bool)| Dependency { name: name.to_owned(), is_dev };
        Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn dependencies_point_one_way() {
        let packages = [
            package("kasha-types", "crates/types", &[("kasha-log", false), ("proptest", true), ("tokio", true)]),
            package("kasha-log", "crates/log", &[("kasha-types", false), ("tokio", false)]),
            package("kasha-exactly-once", "crates/exactly_once", &[("kasha-log", true)]),
            package("kasha-sim", "crates/sim", &[("kasha-log", false), ("kasha", false)]),
            package("kasha-odd", "crates/odd", &[]),
            package("kasha", "bin/kasha", &[("kasha-sim", false)]),
        ];
        let mut problems = Vec::new();
        check(&packages, |_| "[dependencies]\nkasha-log = 1\ntokio = 1", &mut problems);
        let found: Vec<_> = problems.iter().map(|problem| (problem.path.as_str(), problem.line)).collect();
        let expected = [
            ("crates/types/Cargo.toml", 2),
            ("crates/log/Cargo.toml", 3),
            ("crates/exactly_once/Cargo.toml", 2),
            ("crates/sim/Cargo.toml", 1),
            ("crates/odd/Cargo.toml", 1),
        ];
        assert_eq!(found, expected);
    }
}
