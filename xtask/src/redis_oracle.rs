//! `cargo xtask redis-oracle`: random streams of commands to Kasha and to the distribution's Redis, whose replies must be equal (docs/redis.md).

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::ci::Build;
use crate::process_tests::succeeds;
use crate::watch::Watch;
use crate::workspace::Workspace;

/// Builds a server and the program that compares, and runs the latter.
pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Result<ExitCode> {
    if !succeeds("redis-server", &["--version"]) {
        println!("Redis is not installed; trying: apt-get install redis-server");
        let _ = succeeds("apt-get", &["update"]) && succeeds("apt-get", &["install", "--yes", "redis-server"]);
        if !succeeds("redis-server", &["--version"]) {
            bail!("there is no redis-server to compare with (Debian: apt-get install redis-server)");
        }
    }
    let built = Build::new(workspace, &Watch::start())?;
    let folder = workspace.target.join("redis-oracle");
    // Of an earlier run, if there was one.
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = Command::new(built.program("kasha-redis-oracle"));
    command.arg("--kasha").arg(built.program("kasha")).arg("--folder").arg(&folder).args(words);
    let status = command.status().context("the program does not start")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
