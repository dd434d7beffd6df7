//! `cargo xtask netlab`: a virtual network to try things in, and the tests of the crate that makes such networks.
//!
//! The command runs on host 0. The network ends with the command. Other hosts are entered with `nsenter`, by the paths
//! that are printed.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use kasha_netlab::{Link, Netlab, NetlabOptions};

use crate::workspace::{Workspace, cargo};

pub(crate) const USAGE: &str = "cargo xtask netlab test | netlab [--hosts N] [--delay 500us] [--jitter 100us] \
                                [--loss PER_MILLE] [--duplicate PER_MILLE] [--seed N] [-- COMMAND…]";

/// The options of the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Play {
    Test,
    Run { hosts: usize, seed: u64, link: Link, command: Vec<String> },
}

/// Reads the arguments after `netlab`; `None` if they make no sense.
pub(crate) fn parse(arguments: &[&str]) -> Option<Play> {
    if arguments == ["test"] {
        return Some(Play::Test);
    }
    let end = arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
    let command = arguments.iter().skip(end + 1).map(|part| (*part).to_owned()).collect();
    let (mut hosts, mut seed, mut link) = (3, 1, Link::default());
    let (pairs, rest) = arguments[..end].as_chunks::<2>();
    for [name, value] in pairs {
        match *name {
            "--hosts" => hosts = value.parse().ok()?,
            "--seed" => seed = value.parse().ok()?,
            "--delay" => link.delay = duration(value)?,
            "--jitter" => link.jitter = duration(value)?,
            "--loss" => link.loss_per_mille = value.parse().ok()?,
            "--duplicate" => link.duplicate_per_mille = value.parse().ok()?,
            _ => return None,
        }
    }
    rest.is_empty().then_some(Play::Run { hosts, seed, link, command })
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// A notice for a person who runs tests that need the network; none if the network is available.
pub(crate) fn notice() -> Option<String> {
    Netlab::available().err().map(|reason| format!("SKIPPED what needs a virtual network: {reason}"))
}

pub(crate) fn run(workspace: &Workspace, play: &Play) -> Result<()> {
    if let Some(notice) = notice() {
        // This is not a failure: a machine without root cannot run these tests.
        println!("{notice}");
        return Ok(());
    }
    match play {
        Play::Test => {
            let mut tests = cargo(&workspace.root);
            let status = tests.args(["test", "-p", "kasha-netlab"]).status().context("cannot run cargo")?;
            ensure!(status.success(), "the tests of the virtual network failed");
            Ok(())
        }
        Play::Run { hosts, seed, link, command } => {
            show(&NetlabOptions { link: *link, ..NetlabOptions::new(*hosts, *seed) }, command)
        }
    }
}

fn show(options: &NetlabOptions, command: &[String]) -> Result<()> {
    let lab = Netlab::with(*options)?;
    for (index, host) in lab.hosts().iter().enumerate() {
        let enter = format!("nsenter --net={}", host.namespace().path().display());
        println!("host {index}  {}  {enter} COMMAND", host.address());
    }
    let shell = [std::env::var("SHELL").unwrap_or_else(|_| "sh".into())];
    let [program, arguments @ ..] = (if command.is_empty() { &shell } else { command }) else { bail!("no command") };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::inherit());
    // Ctrl-C is for the command. The network ends when the command does.
    let ignored = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, ignored).context("cannot handle Ctrl-C")?;
    let mut child = lab.host(0).spawn(command).map_err(|error| anyhow!("cannot start {program}: {error}"))?;
    let status = child.wait().with_context(|| format!("cannot wait for {program}"))?;
    let seen = lab.totals();
    println!(
        "{} packets, {} delivered, {} lost, {} doubled, {} dropped; later than due by {:?} in the mean, {:?} at most",
        seen.packets,
        seen.delivered,
        seen.lost,
        seen.duplicated,
        seen.overflowed + seen.refused,
        seen.late_mean(),
        seen.late_max
    );
    ensure!(status.success(), "{program}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_nonsense_is_refused() {
        assert_eq!(parse(&["test"]), Some(Play::Test));
        let arguments = ["--hosts", "4", "--delay", "500us", "--loss", "10", "--", "ping", "-c", "1"];
        let link = Link { delay: Duration::from_micros(500), loss_per_mille: 10, ..Link::default() };
        let command = ["ping", "-c", "1"].map(str::to_owned).to_vec();
        assert_eq!(parse(&arguments), Some(Play::Run { hosts: 4, seed: 1, link, command }));
        let plain = Play::Run { hosts: 3, seed: 1, link: Link::default(), command: Vec::new() };
        assert_eq!(parse(&[]), Some(plain));
        for nonsense in [&["--hosts"][..], &["--hosts", "many"], &["--delay", "5"], &["--what", "1"]] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
    }
}
