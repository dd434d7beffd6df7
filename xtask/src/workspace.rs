//! The packages of the repository, as `cargo metadata` describes them, and its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A package's dependency on another package.
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) is_dev: bool,
}

/// A member of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// The folder, relative to the root, with `/`.
    pub(crate) folder: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A file of the repository.
pub(crate) struct File {
    /// The path, relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

impl File {
    /// The text; `None` for a binary file.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok().filter(|text| !text.contains('\0'))
    }
}

/// The workspace that this tool belongs to.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// The target folder of cargo.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// A cargo command that runs at the root, without standard input.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    command
}

impl Workspace {
    /// Asks cargo for the packages.
    pub(crate) fn load() -> Result<Self> {
        let own = std::env::var_os("CARGO_MANIFEST_DIR").context("run this tool as `cargo xtask`")?;
        let root = Path::new(&own).parent().context("the tool's folder is not inside the repository")?;
        let output = cargo(root)
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .stderr(Stdio::inherit())
            .output()
            .context("could not run cargo")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed: {}", output.status);
        }
        Self::parse(&serde_json::from_slice(&output.stdout)?)
    }

    /// Reads the output of `cargo metadata`.
    pub(crate) fn parse(metadata: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("cargo metadata: a text is missing");
        let list = |value: &Value| value.as_array().cloned().context("cargo metadata: a list is missing");
        let root = PathBuf::from(text(&metadata["workspace_root"])?);
        let mut packages = Vec::new();
        for package in list(&metadata["packages"])? {
            let manifest = PathBuf::from(text(&package["manifest_path"])?);
            let folder = manifest.parent().and_then(|folder| folder.strip_prefix(&root).ok());
            let mut dependencies = Vec::new();
            for dependency in list(&package["dependencies"])? {
                dependencies.push(Dependency { name: text(&dependency["name"])?, is_dev: dependency["kind"] == "dev" });
            }
            packages.push(Package {
                name: text(&package["name"])?,
                folder: folder.context("a package outside the workspace")?.to_string_lossy().into_owned(),
                dependencies,
            });
        }
        Ok(Self { root, target: PathBuf::from(text(&metadata["target_directory"])?), packages })
    }

    /// The package in a folder.
    pub(crate) fn package(&self, folder: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.folder == folder)
    }

    /// Every file that git tracks or would offer to track, in order of path. Without git, or if git refuses to work
    /// here (an export, a folder of another user): every file except those that the root's ignore list names.
    pub(crate) fn files(&self) -> Result<Vec<File>> {
        let mut paths = match self.listed_by_git() {
            Some(paths) => paths,
            None => {
                let ignored = fs::read_to_string(self.root.join(".gitignore")).unwrap_or_default();
                let ignored: Vec<&str> = ignored.lines().map(|line| line.trim_matches('/')).collect();
                let mut paths = Vec::new();
                self.walk("", &ignored, &mut paths)?;
                paths
            }
        };
        paths.sort();
        let mut files = Vec::new();
        for path in paths {
            // Git also lists files that were removed and not committed yet, and links.
            if fs::symlink_metadata(self.root.join(&path)).is_ok_and(|metadata| metadata.is_file()) {
                let bytes = fs::read(self.root.join(&path)).with_context(|| format!("could not read {path}"))?;
                files.push(File { path, bytes });
            }
        }
        Ok(files)
    }

    fn listed_by_git(&self) -> Option<Vec<String>> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let list = String::from_utf8(output.stdout).ok()?;
        (output.status.success() && !list.is_empty()).then(|| list.split_terminator('\0').map(str::to_owned).collect())
    }

    fn walk(&self, folder: &str, ignored: &[&str], paths: &mut Vec<String>) -> Result<()> {
        for entry in fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if name == ".git" || ignored.contains(&path.as_str()) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                self.walk(&path, ignored, paths)?;
            } else {
                paths.push(path);
            }
        }
        Ok(())
    }
}

/// A hash of some bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> u64 {
    digest(&[File { path: String::new(), bytes: bytes.to_vec() }])
}

/// A hash of all files (FNV-1a, 64 bits): the same tree gives the same number on every machine.
pub(crate) fn digest(files: &[File]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    };
    for file in files {
        add(file.path.as_bytes());
        add(&[0]);
        add(&(file.bytes.len() as u64).to_le_bytes());
        add(&file.bytes);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn the_digest_sees_names_and_contents() {
        let one = digest(&[file("a", "bc")]);
        assert_eq!(one, digest(&[file("a", "bc")]));
        assert_ne!(one, digest(&[file("ab", "c")]));
        assert_ne!(one, digest(&[file("a", "b"), file("c", "")]));
        assert_eq!(digest(&[]), 0xCBF2_9CE4_8422_2325);
    }

    #[test]
    fn metadata_is_understood() {
        let json = r#"{"workspace_root": "/r", "target_directory": "/t", "packages": [{"name": "kasha-log",
            "manifest_path": "/r/crates/log/Cargo.toml", "dependencies": [
            {"name": "kasha-types", "kind": null}, {"name": "proptest", "kind": "dev"}]}]}"#;
        let workspace = Workspace::parse(&serde_json::from_str(json).unwrap()).unwrap();
        let package = workspace.package("crates/log").unwrap();
        assert_eq!(package.name, "kasha-log");
        assert_eq!(package.dependencies.iter().map(|d| d.is_dev).collect::<Vec<_>>(), [false, true]);
    }
}
