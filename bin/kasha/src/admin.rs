//! `kasha admin`: what only an operator may decide.
//!
//! `give-up` can lose updates, so it says what it does and asks. The others ([`orders`]) say what is to be, and wait until it is so.

pub mod orders;

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use kasha_runtime::say;
use kasha_types::{NodeId, ShardId};
use kasha_wire::link::ToOperator;
use kasha_wire::message::{AdminOrder, GiveUp, GivenUp, Goodbye, Missing};
use kasha_wire::{Configuration, ShardConfig};

use crate::connect::{Address, connect};
use crate::duration::Written;
use crate::talk::Talk;

#[derive(Args)]
pub struct AdminArguments {
    #[command(flatten)]
    cluster: Address,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// Let a shard's recovery go on without the members or witnesses that it waits for, if these are lost for good.
    /// Updates may be lost: the command says which, and asks
    GiveUp {
        /// The shard as `kasha status` shows it, or its number.
        #[arg(long, value_parser = parse_shard)]
        shard: ShardId,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// The members of the coordinator's group, which of them leads, and what it is told of nodes and shards
    Coordinator {
        #[command(subcommand)]
        what: GroupCommand,
    },
    /// After every process runs a new release: let the cluster use what is new in it. An older release cannot join any more
    Finalize,
}

#[derive(Subcommand)]
enum GroupCommand {
    /// A member in the process of this node: instead of one that is missing, or else the group gets two more
    Add(OfNode),
    /// No member in the process of this node. It leaves when another one counts in its place
    Remove(OfNode),
    /// The member in the process of this node is to lead
    Lead(OfNode),
    /// So many members: 1, 3 or 5
    Size {
        /// An odd number.
        members: u8,
    },
    /// How long the leases of nodes are: how long the cluster waits before it replaces a node whose process died
    Lease {
        /// With a unit, from 100ms to 1m. Without it: say what it is.
        lease: Option<Written>,
    },
    /// With how many members beside its primary a shard takes updates at least
    MinBackups {
        /// At most `faults`. Without it: say what it is.
        members: Option<u8>,
    },
}

#[derive(Args)]
struct OfNode {
    /// The node as `kasha status` shows it, or its number.
    #[arg(long, value_parser = parse_node)]
    node: NodeId,
}

/// An order has whole milliseconds.
fn in_millis(lease: Duration) -> Result<u64> {
    let millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    if lease != Duration::from_millis(millis) {
        bail!("a lease has whole milliseconds, and not {lease:?} (K0510)");
    }
    Ok(millis)
}

/// `node-3` or `3`.
fn parse_node(text: &str) -> Result<NodeId> {
    let number = text.strip_prefix("node-").unwrap_or(text);
    number.parse().map(NodeId).context("say `node-3` or `3`")
}

/// `shard-3` or `3`.
fn parse_shard(text: &str) -> Result<ShardId> {
    let number = text.strip_prefix("shard-").unwrap_or(text);
    number.parse().map(ShardId).context("say `shard-3` or `3`")
}

pub fn run(arguments: &AdminArguments) -> Result<()> {
    let cluster = &arguments.cluster;
    match &arguments.command {
        AdminCommand::GiveUp { shard, yes } => give_up(cluster, *shard, *yes),
        AdminCommand::Coordinator { what } => orders::run(
            &known(cluster)?,
            match what {
                GroupCommand::Add(OfNode { node }) => AdminOrder::AddMember(*node),
                GroupCommand::Remove(OfNode { node }) => AdminOrder::RemoveMember(*node),
                GroupCommand::Lead(OfNode { node }) => AdminOrder::Lead(*node),
                GroupCommand::Size { members } => AdminOrder::GroupOf(*members),
                GroupCommand::MinBackups { members: None } => AdminOrder::SayMinBackups,
                GroupCommand::MinBackups { members: Some(members) } => AdminOrder::MinBackups(*members),
                GroupCommand::Lease { lease: None } => AdminOrder::SayLease,
                GroupCommand::Lease { lease: Some(Written(lease)) } => AdminOrder::Lease(in_millis(*lease)?),
            },
        ),
        AdminCommand::Finalize => orders::run(&known(cluster)?, AdminOrder::Finalize),
    }
}

/// The newest configuration, which names the members of the coordinator's group.
fn known(cluster: &Address) -> Result<Configuration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect(cluster, Duration::from_secs(10)).await?;
        let fresh = tokio::time::timeout(Duration::from_secs(2), client.fresh_configuration()).await;
        fresh.ok().and_then(Result::ok).context(
            "the coordinator does not answer, and decides nothing then: start it first, or a majority of its members (K0406)",
        )
    })
}

fn give_up(cluster: &Address, shard: ShardId, yes: bool) -> Result<()> {
    let configuration = known(cluster)?;
    let config = configuration.shard(shard).with_context(|| format!("there is no {shard} (K0506)"))?;
    let missing = ask(&configuration, shard, None)?;
    say!("{}", warning(config, &missing));
    if !yes && !is_confirmed(shard)? {
        bail!("nothing was changed");
    }
    ask(&configuration, shard, Some(missing)).map_err(|error| match error.downcast_ref::<Refused>() {
        Some(_) => error,
        None => error.context(format!(
            "the coordinator's answer did not arrive: perhaps nothing was changed, perhaps it was done; see kasha status, and give \
             the command again if {shard} still waits: it is refused if it was done (K0406)"
        )),
    })?;
    say!("{shard} goes on without what was given up: see kasha status");
    Ok(())
}

/// The text that says what the command does, and what it may lose.
fn warning(config: &ShardConfig, missing: &Missing) -> String {
    if missing.members.is_empty() { of_witnesses(config, missing) } else { of_members(config, missing) }
}

fn of_witnesses(config: &ShardConfig, missing: &Missing) -> String {
    let shard = config.shard;
    let last = config.served.map(|served| served.primary).filter(|node| config.recover_from.contains(node));
    let instead = last.map_or(String::new(), |node| {
        format!(
            "Start {node} instead if you can, and it is not alive: it was the last primary, and its files hold every update \
             that was answered, unless it lost power.\n"
        )
    });
    format!(
        "The recovery of {shard} waits for a witness of {}: {}. All of them are given up, also one that has answered and lost \
         some of what it held, and the shard goes on with what its members \
         hold.\n\
         {instead}\
         What may be lost: updates that clients were told are executed, in one round trip, and that no backup had yet. That \
         is the last few milliseconds before the last primary stopped, or more if it was cut off from its backups. What \
         was on the backups is not lost, and nothing is executed twice.\n\
         Make sure that the last primary and these witnesses are down, and stay down until {shard} serves.",
        config.list,
        names(&missing.witnesses),
    )
}

fn of_members(config: &ShardConfig, missing: &Missing) -> String {
    let shard = config.shard;
    let stay: Vec<NodeId> =
        config.recover_from.iter().copied().filter(|node| !missing.members.contains(node)).collect();
    format!(
        "The recovery of {shard} waits for the log of {}. It is given up, and the recovery goes on with the logs of {}, and with \
         a witness.\n\
         Start it instead if you can: its folder is all that is needed.\n\
         What may be lost: whatever only these logs hold by now. If power was lost, that is what the others had not flushed to \
         their disks, at most what was executed in the last flush interval (100 ms, if you have not set another) before it, and what the \
         witnesses lost with it. If files were damaged, it is whatever the damage took. What a witness still holds of it is put back. Nothing is \
         executed twice.\n\
         The copies that are given up do not count any more, and are overwritten if they come back: make sure that they stay down \
         until {shard} serves.",
        names(&missing.members),
        names(&stay),
    )
}

fn names(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn is_confirmed(shard: ShardId) -> Result<bool> {
    let mut out = std::io::stdout();
    write!(out, "Type {shard} to go on: ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == shard.to_string())
}

/// The coordinator's answer that it changed nothing.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// What the shard waits for. It is given up if it is what the operator has seen.
fn ask(configuration: &Configuration, shard: ShardId, seen: Option<Missing>) -> Result<Missing> {
    let answer = Talk::ask_leader(configuration, &GiveUp { nonce: 1, shard, seen })
        .map_err(|error| Refused(format!("the coordinator does not answer: {error:#} (K0406)")))?;
    match answer {
        ToOperator::GivenUp(GivenUp { missing: Some(missing), refused: None, .. }) => Ok(missing),
        ToOperator::GivenUp(GivenUp { refused: Some(why), .. }) => Err(Refused(why).into()),
        ToOperator::Goodbye(Goodbye { reason }) => Err(Refused(reason).into()),
        ToOperator::NotLeader(_) => Err(Refused("the coordinator elects a leader: try again (K0406)".into()).into()),
        ToOperator::GivenUp(GivenUp { missing: None, refused: None, .. }) | ToOperator::Administered(_) => {
            bail!("the coordinator refused without a reason: run the same version on both sides (K0206)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_named_as_the_status_names_it() {
        assert_eq!(parse_shard("shard-3").unwrap(), ShardId(3));
        assert_eq!(parse_shard("3").unwrap(), ShardId(3));
        assert_eq!(parse_node("node-3").unwrap(), parse_node("3").unwrap());
        assert!(parse_node("shard-3").is_err() && parse_node("").is_err());
        for bad in ["", "shard-", "shard-x", "-1", "65536"] {
            assert!(parse_shard(bad).is_err(), "{bad}");
        }
    }
}
